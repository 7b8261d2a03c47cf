/* loader.c - batches of images with objects, made by worker threads.
 *
 * Batch `step` of `epoch` has the number epoch * steps + step. Whoever makes it derives the order of the epoch from the
 * seed, so batches do not depend on each other. */
#include "loader.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prefetch.h"

enum { WHY = 1024, SMALLEST = 32, MOST_MULTIPLE = 4096 };

typedef struct slot {
    tp_object_batch b;
    float *x;
    size_t room; /* floats of x */
    int64_t (*size)[2], (*original)[2];
    int64_t *image;
    tp_objects *objects;
    tp_object_room *rooms;
} slot;

/* What a worker needs besides. */
typedef struct scratch {
    tp_image raw;
    tp_image *seen;                         /* [batch] the resized images                    */
    int64_t *order, *batches, *left, epoch; /* the epoch's permutation, cut into batches */
} scratch;

typedef struct bad_image {
    int64_t image;
    char why[512];
} bad_image;

struct tp_object_loader {
    tp_object_source source;
    tp_object_loader_opts o;
    int64_t *used, images; /* positions of the images that it uses */
    bool *wide;            /* [images] */
    int64_t steps;
    slot *ring;
    scratch *work;
    tp_prefetch *P;
    tp_coco_tally noted;
    pthread_mutex_t lock; /* of why, broken, told and bad */
    bool *broken, *told;  /* [all images] is known to be unreadable; objects of it were reported */
    bad_image *bad;
    int bads, bad_room;
    atomic_bool failed; /* why is complete */
    char why[WHY];      /* workers write it: read it only once L has failed */
};

static tp_object_loader no_memory = { .failed = true, .why = "objects: out of memory" };

static void fail(tp_object_loader *L, const char *why)
{
    pthread_mutex_lock(&L->lock);
    if (!L->failed) snprintf(L->why, WHY, "%s", why);
    L->failed = true;
    pthread_mutex_unlock(&L->lock);
}

/* ---- the order of an epoch ---- */

static void shuffle(int64_t *at, int64_t n, tp_random *r)
{
    for (int64_t i = n - 1; i > 0; i--) {
        const int64_t k = tp_random_below(r, i + 1), t = at[i];
        at[i] = at[k];
        at[k] = t;
    }
}

/* Cuts the permutation into batches: a batch of one shape follows when it is full. */
static void cut(const tp_object_loader *L, scratch *w)
{
    const int64_t B = L->o.batch;
    int64_t waiting[2] = { 0, 0 }, done = 0, rest = 0;
    for (int64_t i = 0; i < L->images; i++) {
        const int shape = L->wide[w->order[i]];
        w->left[shape * B + waiting[shape]++] = w->order[i];
        if (waiting[shape] < B) continue;
        memcpy(w->batches + done * B, w->left + shape * B, (size_t)B * sizeof *w->batches);
        waiting[shape] = 0;
        done++;
    }
    for (int shape = 0; shape < 2; shape++)
        for (int64_t k = 0; k < waiting[shape] && done < L->steps && rest < B; k++)
            w->batches[done * B + rest++] = w->left[shape * B + k];
}

static void order_epoch(const tp_object_loader *L, scratch *w, int64_t epoch)
{
    if (w->epoch == epoch) return;
    for (int64_t i = 0; i < L->images; i++) w->order[i] = i;
    if (L->o.train) {
        tp_random r = tp_random_stream(L->o.seed, "order of objects", 0, (uint64_t)epoch);
        shuffle(w->order, L->images, &r);
        cut(L, w);
    } else {
        memcpy(w->batches, w->order, (size_t)L->images * sizeof *w->order);
    }
    w->epoch = epoch;
}

/* ---- one image ---- */

/* Keeps what is to be reported of an image, once: once [all images]. */
static void note(tp_object_loader *L, bool *once, int64_t image, const char *why)
{
    pthread_mutex_lock(&L->lock);
    if (!once[image]) {
        once[image] = true;
        if (L->bads == L->bad_room) {
            const int room = L->bad_room ? 2 * L->bad_room : 16;
            bad_image *more = realloc(L->bad, (size_t)room * sizeof *more);
            if (more) {
                L->bad = more;
                L->bad_room = room;
            }
        }
        if (L->bads < L->bad_room) {
            L->bad[L->bads].image = image;
            snprintf(L->bad[L->bads++].why, sizeof L->bad->why, "%s", why);
        }
    }
    pthread_mutex_unlock(&L->lock);
}

bool tp_object_loader_unread(tp_object_loader *L, int64_t i)
{
    if (!L->broken) return false;
    pthread_mutex_lock(&L->lock);
    const bool broken = L->broken[i];
    pthread_mutex_unlock(&L->lock);
    return broken;
}

/* Reads the image at `first` of those in use, or in training the next one that can be read. Returns its place; -1: it
 * is left out, or L has failed. A failing disk or a lack of memory ends training: with another image in its place, the
 * run would differ. */
static int64_t read_image(tp_object_loader *L, scratch *w, int64_t first)
{
    const int64_t tries = L->o.train && L->o.bad ? L->images : 1;
    for (int64_t k = 0; k < tries; k++) {
        const int64_t at = (first + k) % L->images;
        if (tp_object_loader_unread(L, L->used[at])) continue;
        if (tp_object_source_read(&L->source, L->used[at], &w->raw)) return at;
        if (w->raw.shortage || !L->o.bad) {
            fail(L, w->raw.why);
            return -1;
        }
        note(L, L->broken, L->used[at], w->raw.why);
    }
    if (L->o.train) fail(L, "none of the images can be read");
    return -1;
}

/* Objects of an image whose size was unknown may prove not to fit it. */
static void note_unseen(tp_object_loader *L, int64_t image, const tp_object_room *room)
{
    char why[80];
    if (room->unseen == 0 || tp_coco_image_at(L->source.coco, image)->height > 0) return;
    snprintf(why, sizeof why, "%lld of its objects, which do not fit its size",
             (long long)room->unseen);
    note(L, L->told, image, why);
}

static tp_object_view view_of(const tp_object_loader *L, const tp_image *p, int64_t epoch,
                              int64_t place)
{
    const tp_object_loader_opts *o = &L->o;
    tp_object_view v = { .from = { p->height, p->width }, .profile = o->profile };
    int64_t size = o->size[0];
    if (o->train) {
        tp_random r =
            tp_random_stream(o->seed, "view of objects", (uint64_t)place, (uint64_t)epoch);
        size = o->size[tp_random_below(&r, o->sizes)];
        v.mirror = tp_random_below(&r, 2) == 1 && !o->no_mirror;
    }
    tp_shortest_side(o->profile, p->height, p->width, size, o->most, v.to);
    return v;
}

/* ---- one batch ---- */

static bool reserve(slot *s, size_t floats)
{
    if (floats <= s->room) return true;
    free(s->x);
    s->x = malloc(floats * sizeof *s->x);
    s->room = s->x ? floats : 0;
    return s->x != NULL;
}

static void fill(const tp_object_loader *L, const slot *s, const scratch *w,
                 const tp_object_batch *b)
{
    const int64_t cells = b->height * b->width * 3;
    for (int64_t i = 0; i < b->n; i++)
        tp_view_floats(&w->seen[i], &L->o.scale, b->height, b->width, s->x + i * cells);
}

/* Adds the image at `at` of those in use to the batch. */
static bool add_image(tp_object_loader *L, slot *s, scratch *w, int64_t at, int64_t place,
                      tp_object_batch *b)
{
    const tp_object_view v = view_of(L, &w->raw, b->epoch, place);
    const int64_t i = b->n;
    s->image[i] = L->used[at];
    s->rooms[i].objects = (tp_objects){ 0 };
    if (!tp_view_image(&v, &w->raw, &w->seen[i])) fail(L, w->seen[i].why);
    if (L->o.train) {
        if (!tp__objects_fill(&L->o, L->source.coco, L->used[at], &v, &s->rooms[i]))
            fail(L, "objects: out of memory");
        note_unseen(L, L->used[at], &s->rooms[i]);
    }
    if (L->failed) return false;
    s->objects[i] = s->rooms[i].objects;
    for (int a = 0; a < 2; a++) {
        s->size[i][a] = v.to[a];
        s->original[i][a] = v.from[a];
    }
    const int64_t height = tp_padded_side(v.to[0], L->o.multiple);
    const int64_t width = tp_padded_side(v.to[1], L->o.multiple);
    if (height > b->height) b->height = height;
    if (width > b->width) b->width = width;
    b->n++;
    return true;
}

static void make(void *env, int number, int64_t k, int worker)
{
    tp_object_loader *L = env;
    scratch *w = &L->work[worker];
    slot *s = &L->ring[number];
    const int64_t B = L->o.batch, epoch = k / L->steps, step = k % L->steps;
    tp_object_batch b = { .epoch = epoch, .step = step };
    if (L->failed) return;
    order_epoch(L, w, epoch);
    for (int64_t place = step * B; place < L->images && place < (step + 1) * B; place++) {
        const int64_t at = read_image(L, w, w->batches[place]);
        if (L->failed || (at >= 0 && !add_image(L, s, w, at, place, &b))) return;
    }
    if (!reserve(s, (size_t)(b.n * b.height * b.width * 3))) {
        fail(L, "objects: out of memory for a batch");
        return;
    }
    fill(L, s, w, &b);
    b.x = s->x;
    b.size = (const int64_t(*)[2])s->size;
    b.original = (const int64_t(*)[2])s->original;
    b.image = s->image;
    b.objects = s->objects;
    s->b = b;
}

/* ---- opening ---- */

static bool check(tp_object_loader *L)
{
    const tp_object_loader_opts *o = &L->o;
    const float *std = o->scale.std;
    bool sizes = o->most >= 1 && o->most <= 1 << 14;
    for (int i = 0; i < o->sizes; i++) sizes = sizes && o->size[i] >= 1 && o->size[i] <= 1 << 14;
    if (!tp_coco_ok(L->source.coco))
        fail(L, tp_coco_why(L->source.coco));
    else if (o->batch < 1 || o->batch > 1 << 16 || !sizes)
        fail(L, "objects: batch or size is out of range");
    else if (o->multiple < TP_SIDE_MULTIPLE || o->multiple > MOST_MULTIPLE ||
             o->multiple % TP_SIDE_MULTIPLE != 0)
        fail(L, "objects: batches are padded to multiples of 32, 64 ... 4096");
    else if (!(std[0] > 0.0f && std[1] > 0.0f && std[2] > 0.0f))
        fail(L, "objects: scale.std must be positive in all channels");
    return !L->failed;
}

/* Is the image used? Notes which of its objects are not. */
static bool image_counts(tp_object_loader *L, const tp_coco_image *image)
{
    const tp_object_loader_opts *o = &L->o;
    const tp_coco *X = L->source.coco;
    const bool small = o->profile == TP_MMDETECTION && image->height > 0 &&
                       (image->height < SMALLEST || image->width < SMALLEST);
    bool any = false;
    if (!o->train) return true;
    for (int64_t k = 0; k < image->objects; k++) {
        const tp_coco_object *a = tp_coco_object_at(X, image->first + k);
        const tp_coco_reason unfit = small ? TP_COCO_SMALL_IMAGE : tp__object_unfit(o, X, a);
        if (unfit != TP_COCO_REASONS)
            tp_coco_tally_add(&L->noted, unfit, a->id);
        else if (tp__object_is_cut(o, X, a))
            tp_coco_tally_add(&L->noted, TP_COCO_CUT_POLYGONS, a->id);
        any = any || unfit == TP_COCO_REASONS;
    }
    return any;
}

static bool choose_images(tp_object_loader *L)
{
    const int64_t all = tp_coco_images(L->source.coco), B = L->o.batch;
    L->used = malloc((size_t)(all + 1) * sizeof *L->used);
    L->wide = malloc((size_t)(all + 1) * sizeof *L->wide);
    L->broken = calloc((size_t)all + 1, sizeof *L->broken);
    L->told = calloc((size_t)all + 1, sizeof *L->told);
    if (!L->used || !L->wide || !L->broken || !L->told) return false;
    if (L->o.missing) memcpy(L->broken, L->o.missing, (size_t)all * sizeof *L->broken);
    for (int64_t i = 0; i < all; i++) {
        const tp_coco_image *image = tp_coco_image_at(L->source.coco, i);
        if (!image_counts(L, image)) continue;
        L->wide[L->images] = image->width > image->height;
        L->used[L->images++] = i;
    }
    L->steps = L->o.train ? L->images / B : (L->images + B - 1) / B;
    if (L->steps > 0) return true;
    char why[200];
    if (all == 0)
        snprintf(why, sizeof why, "the annotations have no images");
    else if (L->images == 0)
        snprintf(why, sizeof why, "none of the %lld images has an object %s", (long long)all,
                 L->o.masks ? "with a mask to learn from" : "that is no crowd");
    else
        snprintf(why, sizeof why,
                 "%lld images with objects (of %lld) do not fill a batch of %lld: lower the batch",
                 (long long)L->images, (long long)all, (long long)B);
    fail(L, why);
    return true;
}

static bool new_slot(slot *s, size_t B)
{
    s->size = malloc(B * sizeof *s->size);
    s->original = malloc(B * sizeof *s->original);
    s->image = malloc(B * sizeof *s->image);
    s->objects = malloc(B * sizeof *s->objects);
    s->rooms = calloc(B, sizeof *s->rooms);
    return s->size && s->original && s->image && s->objects && s->rooms;
}

static bool new_scratch(const tp_object_loader *L, scratch *w, size_t B)
{
    const size_t n = (size_t)L->images + B;
    w->seen = calloc(B, sizeof *w->seen);
    w->order = malloc(n * sizeof *w->order);
    w->batches = malloc(n * sizeof *w->batches);
    w->left = malloc(2 * B * sizeof *w->left);
    w->epoch = -1;
    return w->seen && w->order && w->batches && w->left;
}

static bool allocate(tp_object_loader *L)
{
    const size_t B = (size_t)L->o.batch;
    L->ring = calloc((size_t)L->o.ahead, sizeof *L->ring);
    L->work = calloc((size_t)L->o.threads, sizeof *L->work);
    bool ok = L->ring && L->work;
    for (int i = 0; ok && i < L->o.ahead; i++) ok = new_slot(&L->ring[i], B);
    for (int i = 0; ok && i < L->o.threads; i++) ok = new_scratch(L, &L->work[i], B);
    const tp_prefetch_opts p = { .threads = L->o.threads,
                                 .ahead = L->o.ahead,
                                 .last = L->o.train ? INT64_MAX / 2 : L->steps,
                                 .make = make,
                                 .env = L };
    L->P = ok ? tp__prefetch_new(&p) : NULL;
    return L->P != NULL;
}

static bool is_given(const tp_pixel_scale *scale)
{
    bool given = false;
    for (int a = 0; a < 3; a++) given = given || scale->mean[a] != 0 || scale->std[a] != 0;
    return given;
}

tp_object_loader *tp_object_loader_new(const tp_object_source *s, const tp_object_loader_opts *o)
{
    if (!s) return NULL;
    tp_object_loader *L = calloc(1, sizeof *L);
    if (!L) return &no_memory;
    pthread_mutex_init(&L->lock, NULL);
    L->source = *s;
    L->o = *o;
    if (L->o.sizes < 1) L->o.sizes = 1;
    if (L->o.sizes > TP_OBJECT_SIZES) L->o.sizes = TP_OBJECT_SIZES;
    if (L->o.size[0] == 0) L->o.size[0] = 800;
    if (L->o.most == 0) L->o.most = 1333;
    if (L->o.multiple == 0) L->o.multiple = TP_SIDE_MULTIPLE;
    if (!is_given(&L->o.scale)) L->o.scale = tp_pixels_imagenet;
    if (L->o.threads < 1) L->o.threads = 1;
    if (L->o.ahead < 2) L->o.ahead = 3;
    if (check(L) && (!choose_images(L) || (!L->failed && !allocate(L))))
        fail(L, "objects: out of memory");
    return L;
}

void tp_object_loader_free(tp_object_loader *L)
{
    if (!L || L == &no_memory) return;
    tp__prefetch_free(L->P);
    for (int i = 0; L->ring && i < L->o.ahead; i++) {
        slot *s = &L->ring[i];
        for (int64_t k = 0; s->rooms && k < L->o.batch; k++) tp__object_room_free(&s->rooms[k]);
        void *const pieces[] = { s->x, s->size, s->original, s->image, s->objects, s->rooms };
        for (size_t k = 0; k < sizeof pieces / sizeof *pieces; k++) free(pieces[k]);
    }
    for (int i = 0; L->work && i < L->o.threads; i++) {
        scratch *w = &L->work[i];
        for (int64_t k = 0; w->seen && k < L->o.batch; k++) tp_image_free(&w->seen[k]);
        tp_image_free(&w->raw);
        void *const pieces[] = { w->seen, w->order, w->batches, w->left };
        for (size_t k = 0; k < sizeof pieces / sizeof *pieces; k++) free(pieces[k]);
    }
    void *const pieces[] = { L->ring, L->work, L->used, L->wide, L->broken, L->told, L->bad };
    for (size_t k = 0; k < sizeof pieces / sizeof *pieces; k++) free(pieces[k]);
    pthread_mutex_destroy(&L->lock);
    free(L);
}

/* ---- batches ---- */

bool tp_object_loader_ok(const tp_object_loader *L)
{
    if (!L) return false;
    return !L->failed;
}

const char *tp_object_loader_why(const tp_object_loader *L)
{
    if (!L) return "object_loader: NULL was given in place of a loader";
    return L->failed ? L->why : "";
}

int64_t tp_object_loader_images(const tp_object_loader *L)
{
    if (!L) return 0;
    return L->images;
}

int64_t tp_object_loader_steps(const tp_object_loader *L)
{
    if (!L) return 0;
    return L->steps;
}

const tp_coco_tally *tp_object_loader_noted(const tp_object_loader *L)
{
    return &L->noted;
}

void tp_object_loader_largest(const tp_object_loader *L, int64_t size[2])
{
    if (!L) return;
    size[0] = size[1] = L->o.multiple;
    for (int64_t i = 0; i < L->images; i++) {
        const tp_coco_image *image = tp_coco_image_at(L->source.coco, L->used[i]);
        for (int k = 0; k < (L->o.train ? L->o.sizes : 1); k++) {
            int64_t to[2] = { L->o.most, L->o.most }; /* if its size is unknown */
            if (image->height > 0)
                tp_shortest_side(L->o.profile, image->height, image->width, L->o.size[k], L->o.most,
                                 to);
            for (int a = 0; a < 2; a++) {
                const int64_t side = tp_padded_side(to[a], L->o.multiple);
                if (side > size[a]) size[a] = side;
            }
        }
    }
}

void tp_object_loader_seek(tp_object_loader *L, int64_t epoch, int64_t step)
{
    if (!L) return;
    if (L->P) tp__prefetch_seek(L->P, epoch * L->steps + step);
}

/* Reports the images that could not be read since the last call. */
static void report(tp_object_loader *L)
{
    pthread_mutex_lock(&L->lock);
    bad_image *bad = L->bad;
    const int n = L->bads;
    L->bad = NULL;
    L->bads = L->bad_room = 0;
    pthread_mutex_unlock(&L->lock);
    for (int i = 0; L->o.bad && i < n; i++)
        L->o.bad(L->o.env, tp_coco_image_at(L->source.coco, bad[i].image)->file, bad[i].why);
    free(bad);
}

bool tp_object_loader_next(tp_object_loader *L, tp_object_batch *b)
{
    if (!L) return false;
    *b = (tp_object_batch){ 0 };
    while (L->P && !L->failed && b->n == 0) { /* of a batch without images, none could be read */
        const int at = tp__prefetch_next(L->P);
        report(L);
        if (at < 0 || L->failed) return false;
        *b = L->ring[at].b;
    }
    return b->n > 0;
}
