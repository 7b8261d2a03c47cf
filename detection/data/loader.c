/* loader.c - the loader of images with objects. An example is an image in its own view; a batch
 * holds the pixels of all, padded to one size.
 *
 * Examples are numbered among the images in use, not among those of the annotations. */
#include "inner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMALLEST = 32, MOST_MULTIPLE = 4096 };

typedef struct state {
    tp_object_source source;
    tp_object_loader_opts o;
    int64_t *used, images;      /* positions of the images in use, increasing */
    bool *wide;                 /* [images] */
    int64_t length;             /* images of an epoch */
    int64_t *batches;           /* [length]: an order cut into batches */
    tp_example_sampler sampler; /* the caller's, of images in use */
    int64_t global;             /* images of a batch, of all processes that share it */
    int64_t *left;              /* [2,global]: images waiting for a full batch of their shape */
    tp_coco_tally noted;
} state;

typedef struct slot {
    tp_object_batch b;
    float *x;
    size_t room; /* floats of x */
    int64_t (*size)[2], (*original)[2];
    int64_t *image;
    tp_objects *objects;
    tp_object_room *rooms;
    tp_image *seen; /* [batch]: the images in their views */
} slot;

static void slot_new(tp_loader *L, const void *of, void *at)
{
    slot *s = at;
    const int64_t B = ((const state *)of)->o.batch;
    s->size = tp_loader_alloc(L, B, sizeof *s->size);
    s->original = tp_loader_alloc(L, B, sizeof *s->original);
    s->image = tp_loader_alloc(L, B, sizeof *s->image);
    s->objects = tp_loader_alloc(L, B, sizeof *s->objects);
    s->rooms = tp_loader_alloc(L, B, sizeof *s->rooms);
    s->seen = tp_loader_alloc(L, B, sizeof *s->seen);
}

static void slot_free(const void *of, void *at)
{
    slot *s = at;
    const int64_t B = ((const state *)of)->o.batch;
    for (int64_t i = 0; s->rooms && i < B; i++) tp__object_room_free(&s->rooms[i]);
    for (int64_t i = 0; s->seen && i < B; i++) tp_image_free(&s->seen[i]);
    free(s->x);
}

static void work_free(void *work)
{
    tp_image_free(work);
}

/* Cuts the permutation into batches of one shape, each added as soon as it is full. */
static void cut(void *of, int64_t *order, int64_t n)
{
    const state *S = of;
    const int64_t B = S->global, steps = n / B;
    int64_t waiting[2] = { 0, 0 }, done = 0, rest = 0;
    if (!S->o.train) return;
    for (int64_t i = 0; i < n; i++) {
        const int shape = S->wide[order[i]];
        S->left[shape * B + waiting[shape]++] = order[i];
        if (waiting[shape] < B) continue;
        memcpy(S->batches + done * B, S->left + shape * B, (size_t)B * sizeof *S->batches);
        waiting[shape] = 0;
        done++;
    }
    for (int shape = 0; shape < 2; shape++)
        for (int64_t k = 0; k < waiting[shape] && done < steps && rest < B; k++)
            S->batches[done * B + rest++] = S->left[shape * B + k];
    memcpy(order, S->batches, (size_t)(steps * B) * sizeof *order);
}

/* The first image in use at position i or behind it; beyond the last one, the first of all. */
static int64_t number_from(const state *S, int64_t i)
{
    int64_t low = 0, high = S->images;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (S->used[middle] < i)
            low = middle + 1;
        else
            high = middle;
    }
    return low < S->images ? low : 0;
}

/* The order of the caller's sampler, which knows all images of the annotations. */
static const char *sample(const void *of, const tp_epoch *s, tp_random *r, int64_t *order)
{
    const state *S = of;
    const tp_example_sampler *by = S->o.sampler;
    tp_epoch all = *s;
    all.count = tp_coco_images(S->source.coco);
    const char *why = by->order(by->env, &all, r, order);
    for (int64_t i = 0; !why && i < s->length; i++)
        if (order[i] >= 0 && order[i] < all.count)
            order[i] = number_from(S, order[i]);
        else
            why = "its order has a number beyond the images of the annotations";
    return why;
}

/* ---- one image ---- */

static tp_object_view view_of(const state *S, int64_t height, int64_t width, int64_t epoch,
                              int64_t place)
{
    const tp_object_loader_opts *o = &S->o;
    tp_object_view v = { .from = { height, width }, .profile = o->profile };
    int64_t size = o->size[0];
    if (o->train) {
        tp_random r =
            tp_random_stream(o->seed, "view of objects", (uint64_t)place, (uint64_t)epoch);
        size = o->size[tp_random_below(&r, o->sizes)];
        v.mirror = tp_random_below(&r, 2) == 1 && !o->no_mirror;
    }
    tp_shortest_side(o->profile, height, width, size, o->most, v.to);
    return v;
}

/* Notes objects of an image of unknown size that turn out not to fit it. */
static void note_unseen(const state *S, int64_t image, const tp_object_room *room, char *why)
{
    if (room->unseen == 0 || tp_coco_image_at(S->source.coco, image)->height > 0) return;
    snprintf(why, TP_EXAMPLE_WHY, "%lld of its objects, which do not fit its size",
             (long long)room->unseen);
}

static tp_example_state fail(char *why, const char *reason)
{
    snprintf(why, TP_EXAMPLE_WHY, "%s", reason);
    return TP_EXAMPLE_NO_MEMORY;
}

static tp_example_state make(void *of, const tp_loader_example *e, void *at, void *work, char *why)
{
    const state *S = of;
    const slot *s = at;
    tp_image *raw = work;
    const int64_t i = e->at, image = S->used[e->number];
    if (!tp_object_source_read(&S->source, image, raw)) {
        fail(why, raw->why);
        if (raw->shortage == TP_E_MEMORY) return TP_EXAMPLE_NO_MEMORY;
        return raw->shortage ? TP_EXAMPLE_FAILED : TP_EXAMPLE_BAD;
    }
    const tp_object_view v = view_of(S, raw->height, raw->width, e->epoch, e->place);
    s->image[i] = image;
    s->rooms[i].objects = (tp_objects){ 0 };
    if (!tp_view_image(&v, raw, &s->seen[i])) return fail(why, s->seen[i].why);
    if (S->o.train) {
        if (!tp__objects_fill(&S->o, S->source.coco, image, &v, &s->rooms[i]))
            return fail(why, "objects: out of memory");
        note_unseen(S, image, &s->rooms[i], why);
    }
    for (int a = 0; a < 2; a++) {
        s->size[i][a] = v.to[a];
        s->original[i][a] = v.from[a];
    }
    return TP_EXAMPLE_MADE;
}

/* Exchanges the members that own memory. */
static void move(void *of, void *at, int64_t to, int64_t from)
{
    const slot *s = at;
    const tp_object_room room = s->rooms[to];
    const tp_image seen = s->seen[to];
    (void)of;
    s->rooms[to] = s->rooms[from];
    s->rooms[from] = room;
    s->seen[to] = s->seen[from];
    s->seen[from] = seen;
    s->image[to] = s->image[from];
    memcpy(s->size[to], s->size[from], sizeof s->size[to]);
    memcpy(s->original[to], s->original[from], sizeof s->original[to]);
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

/* Makes the batch large enough for an image of that size. */
static void cover(tp_object_batch *b, const state *S, const int64_t size[2])
{
    const int64_t height = tp_padded_side(size[0], S->o.multiple);
    const int64_t width = tp_padded_side(size[1], S->o.multiple);
    if (height > b->height) b->height = height;
    if (width > b->width) b->width = width;
}

/* Makes it large enough for the images of other processes, too, as far as the annotations give
 * their sizes: padding reaches into a network's results, which must not depend on processes. */
static void cover_others(tp_object_batch *b, const state *S, const tp_loader_batch *head)
{
    const int64_t from = S->o.batch * S->o.share.rank;
    for (int64_t i = 0; i < head->total; i++) {
        const tp_coco_image *image = tp_coco_image_at(S->source.coco, S->used[head->all[i]]);
        if ((i >= from && i < from + S->o.batch) || image->height < 1) continue;
        const tp_object_view v =
            view_of(S, image->height, image->width, head->epoch, head->place + i);
        cover(b, S, v.to);
    }
}

static void finish(tp_loader *L, void *of, const tp_loader_batch *head, void *at)
{
    const state *S = of;
    slot *s = at;
    tp_object_batch b = { .n = head->n, .epoch = head->epoch, .step = head->step };
    for (int64_t i = 0; i < b.n; i++) {
        cover(&b, S, s->size[i]);
        s->objects[i] = s->rooms[i].objects;
    }
    cover_others(&b, S, head);
    const int64_t cells = b.height * b.width * 3;
    if (!reserve(s, (size_t)(b.n * cells))) {
        tp_loader_fail(L, TP_E_MEMORY,
                       "objects: out of memory for a batch of %lld x %lld pixels; lower the batch",
                       (long long)b.width, (long long)b.height);
        return;
    }
    for (int64_t i = 0; i < b.n; i++)
        tp_view_floats(&s->seen[i], &S->o.scale, b.height, b.width, s->x + i * cells);
    b.x = s->x;
    b.size = (const int64_t(*)[2])s->size;
    b.original = (const int64_t(*)[2])s->original;
    b.image = s->image;
    b.objects = s->objects;
    s->b = b;
}

static const char *example_name(const void *of, int64_t number, char *buf, size_t size)
{
    const state *S = of;
    (void)buf, (void)size;
    return tp_coco_image_at(S->source.coco, S->used[number])->file;
}

static const tp_loader_kind objects = { .name = "images",
                                        .state = sizeof(state),
                                        .slot = sizeof(slot),
                                        .work = sizeof(tp_image),
                                        .slot_new = slot_new,
                                        .slot_free = slot_free,
                                        .work_free = work_free,
                                        .stream = "order of objects",
                                        .arrange = cut,
                                        .make = make,
                                        .move = move,
                                        .finish = finish,
                                        .example_name = example_name };

/* ---- opening ---- */

static bool check(tp_loader *L, const state *S)
{
    const tp_object_loader_opts *o = &S->o;
    const float *std = o->scale.std;
    bool sizes = o->most >= 1 && o->most <= 1 << 14;
    for (int i = 0; i < o->sizes; i++) sizes = sizes && o->size[i] >= 1 && o->size[i] <= 1 << 14;
    if (!tp_coco_ok(S->source.coco))
        return tp_loader_fail(L, TP_E_IO, "%s", tp_coco_why(S->source.coco));
    if (o->batch < 1 || o->batch > 1 << 16 || !sizes)
        return tp_loader_fail(L, TP_E_VALUE, "objects: batch or size is out of range");
    if (o->multiple < TP_SIDE_MULTIPLE || o->multiple > MOST_MULTIPLE ||
        o->multiple % TP_SIDE_MULTIPLE != 0)
        return tp_loader_fail(L, TP_E_VALUE,
                              "objects: batches are padded to multiples of 32, 64 ... 4096");
    if (!(std[0] > 0.0f && std[1] > 0.0f && std[2] > 0.0f))
        return tp_loader_fail(L, TP_E_VALUE, "objects: scale.std must be positive in all channels");
    return true;
}

/* Is the image used? Notes which of its objects are not. */
static bool image_counts(state *S, const tp_coco_image *image)
{
    const tp_object_loader_opts *o = &S->o;
    const tp_coco *X = S->source.coco;
    const bool small = o->profile == TP_MMDETECTION && image->height > 0 &&
                       (image->height < SMALLEST || image->width < SMALLEST);
    bool any = false;
    if (!o->train) return true;
    for (int64_t k = 0; k < image->objects; k++) {
        const tp_coco_object *a = tp_coco_object_at(X, image->first + k);
        const tp_coco_reason unfit = small ? TP_COCO_SMALL_IMAGE : tp__object_unfit(o, X, a);
        if (unfit != TP_COCO_REASONS)
            tp_coco_tally_add(&S->noted, unfit, a->id);
        else if (tp__object_is_cut(o, X, a))
            tp_coco_tally_add(&S->noted, TP_COCO_CUT_POLYGONS, a->id);
        any = any || unfit == TP_COCO_REASONS;
    }
    return any;
}

static bool choose_images(tp_loader *L, state *S)
{
    const int64_t all = tp_coco_images(S->source.coco);
    S->global = S->o.batch * tp_share_parts(S->o.share);
    S->used = tp_loader_alloc(L, all, sizeof *S->used);
    S->wide = tp_loader_alloc(L, all, sizeof *S->wide);
    if (!S->wide) return false;
    for (int64_t i = 0; i < all; i++) {
        const tp_coco_image *image = tp_coco_image_at(S->source.coco, i);
        if (!image_counts(S, image)) continue;
        S->wide[S->images] = image->width > image->height;
        S->used[S->images++] = i;
    }
    if (all == 0) return tp_loader_fail(L, TP_E_VALUE, "the annotations have no images");
    if (S->images == 0)
        return tp_loader_fail(L, TP_E_VALUE, "none of the %lld images has an object %s",
                              (long long)all,
                              S->o.masks ? "with a mask to learn from" : "that is no crowd");
    const tp_example_sampler *by = S->o.sampler;
    S->length = by && by->length > 0 ? by->length : S->images;
    if (!S->o.train) return true;
    if (S->length < S->global)
        return tp_loader_fail(
            L, TP_E_VALUE,
            "%lld images with objects (of %lld) do not fill a batch of %lld: lower the batch",
            (long long)S->length, (long long)all, (long long)S->global);
    S->left = tp_loader_alloc(L, 2 * S->global, sizeof *S->left);
    S->batches = S->left ? tp_loader_alloc(L, S->length, sizeof *S->batches) : NULL;
    return S->batches != NULL;
}

/* Opens the loader with the images in use, some of them known to be missing. */
static void open_used(tp_loader *L, state *S)
{
    const tp_object_loader_opts *o = &S->o;
    const bool sampled = o->sampler && o->sampler->order;
    if (sampled) S->sampler = (tp_example_sampler){ sample, S, o->sampler->length };
    bool *missing = o->missing ? tp_loader_alloc(L, S->images, sizeof *missing) : NULL;
    for (int64_t i = 0; missing && i < S->images; i++) missing[i] = o->missing[S->used[i]];
    tp_loader_open(L, &(tp_loader_examples){ .count = S->images, .missing = missing },
                   &(tp_loader_opts){ .batch = o->batch,
                                      .seed = o->seed,
                                      .train = o->train,
                                      .threads = o->threads,
                                      .ahead = o->ahead,
                                      .strict = !o->bad,
                                      .bad = o->bad,
                                      .env = o->env,
                                      .sampler = sampled ? &S->sampler : o->sampler,
                                      .share = o->share });
}

static bool is_given(const tp_pixel_scale *scale)
{
    bool given = false;
    for (int a = 0; a < 3; a++) given = given || scale->mean[a] != 0 || scale->std[a] != 0;
    return given;
}

tp_loader *tp_object_loader_new(const tp_object_source *s, const tp_object_loader_opts *o)
{
    if (!s) return NULL;
    tp_loader *L = tp_loader_new(&objects);
    state *S = tp_loader_state(L, &objects);
    if (!S) return L;
    *S = (state){ .source = *s, .o = *o };
    if (S->o.sizes < 1) S->o.sizes = 1;
    if (S->o.sizes > TP_OBJECT_SIZES) S->o.sizes = TP_OBJECT_SIZES;
    if (S->o.size[0] == 0) S->o.size[0] = 800;
    if (S->o.most == 0) S->o.most = 1333;
    if (S->o.multiple == 0) S->o.multiple = TP_SIDE_MULTIPLE;
    if (!is_given(&S->o.scale)) S->o.scale = tp_pixels_imagenet;
    if (S->o.threads < 1) S->o.threads = 1;
    if (S->o.ahead < 2) S->o.ahead = 3;
    if (check(L, S) && choose_images(L, S)) open_used(L, S);
    return L;
}

/* ---- queries ---- */

int64_t tp_object_loader_images(const tp_loader *L)
{
    const state *S = tp_loader_state(L, &objects);
    return S ? S->images : 0;
}

const tp_coco_tally *tp_object_loader_noted(const tp_loader *L)
{
    static const tp_coco_tally none;
    const state *S = tp_loader_state(L, &objects);
    return S ? &S->noted : &none;
}

bool tp_object_loader_unread(tp_loader *L, int64_t i)
{
    const state *S = tp_loader_state(L, &objects);
    const int64_t at = S && S->images > 0 ? number_from(S, i) : 0;
    return S && S->images > 0 && S->used[at] == i && tp_loader_is_bad(L, at);
}

void tp_object_loader_largest(const tp_loader *L, int64_t size[2])
{
    const state *S = tp_loader_state(L, &objects);
    if (!S) return;
    size[0] = size[1] = S->o.multiple;
    for (int64_t i = 0; i < S->images; i++) {
        const tp_coco_image *image = tp_coco_image_at(S->source.coco, S->used[i]);
        for (int k = 0; k < (S->o.train ? S->o.sizes : 1); k++) {
            int64_t to[2] = { S->o.most, S->o.most }; /* for an unknown size */
            if (image->height > 0)
                tp_shortest_side(S->o.profile, image->height, image->width, S->o.size[k], S->o.most,
                                 to);
            for (int a = 0; a < 2; a++) {
                const int64_t side = tp_padded_side(to[a], S->o.multiple);
                if (side > size[a]) size[a] = side;
            }
        }
    }
}

bool tp_object_loader_next(tp_loader *L, tp_object_batch *b)
{
    return tp_loader_take(L, &objects, b, sizeof *b);
}
