/* loader.c - batches of images prepared by worker threads.
 *
 * A ring of batches lies between the workers and tp_loader_next. The caller's thread decides which
 * images a batch has, in order; workers take them one by one, whoever is free, and whoever
 * finishes a batch mixes it. An image's pixels follow from (seed, epoch, place in the epoch), so
 * that neither the number of workers nor their order matters. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tapegrad/image_set.h>

enum { WHY = 1024, DEFAULT_THREADS = 2, DEFAULT_AHEAD = 4, ROUNDED = 256 };

typedef struct slot {
    int64_t epoch, step, n;
    int64_t given, done;    /* images that workers have taken, and finished */
    int64_t *index, *place; /* [batch]: which image, and where in the epoch */
    float *x, *target;
    int32_t *label;
    bool *bad; /* [batch]: it could not be read */
} slot;

/* Images that could not be read, until the caller has been told. */
typedef struct note {
    int64_t image;
    char why[512];
} note;
typedef struct notes {
    note *at;
    int n, room;
} notes;

struct tp_loader {
    const tp_image_set *X;
    tp_loader_opts o;
    tp_augment augment;
    int64_t pixels;           /* floats of an image */
    int64_t length;           /* examples an epoch */
    int64_t epoch, step;      /* that are scheduled next */
    int64_t *order, order_of; /* [length]: of that epoch */
    slot *ring;
    int64_t scheduled, taken;      /* batches, counted from the start */
    bool holds;                    /* the caller reads batch `taken` */
    int64_t next_epoch, next_step; /* of the batch that tp_loader_next will give */
    bool *broken;                  /* [count]: it could not be read  */
    notes notes;
    int64_t skipped;
    double waited;
    bool stop;
    pthread_mutex_t lock;
    pthread_cond_t work, ready;
    pthread_t *thread;
    int threads; /* that run */
    char why[WHY];
};

static tp_loader no_memory = { .why = "images: out of memory" };

/* ---- order ---- */

static void swap(int64_t *a, int64_t *b)
{
    const int64_t t = *a;
    *a = *b;
    *b = t;
}

/* Entry i is image * repeats + which repetition. */
static void make_order(tp_loader *L, int64_t epoch)
{
    const int64_t count = tp_image_set_count(L->X), r = L->o.repeats;
    if (L->order_of == epoch) return;
    for (int64_t i = 0; i < count; i++) L->order[i] = i;
    if (L->o.train) {
        tp_random random = tp_random_stream(L->o.seed, "order", 0, (uint64_t)epoch);
        for (int64_t i = count - 1; i > 0; i--)
            swap(&L->order[i], &L->order[tp_random_below(&random, i + 1)]);
    }
    for (int64_t i = count - 1; r > 1 && i >= 0; i--) /* from behind: places are read first */
        for (int64_t k = r - 1; k >= 0; k--)
            if (i * r + k < count) L->order[i * r + k] = L->order[i] * r + k;
    L->order_of = epoch;
}

/* Fills the next slot of the ring. False: the epoch was the last one. */
static bool schedule(tp_loader *L)
{
    const int64_t B = L->o.batch, steps = tp_loader_steps(L);
    if (L->step >= steps) {
        if (!L->o.train) return false;
        L->epoch++;
        L->step = 0;
    }
    slot *s = &L->ring[L->scheduled % L->o.ahead];
    make_order(L, L->epoch);
    s->epoch = L->epoch;
    s->step = L->step;
    s->n = B < L->length - L->step * B ? B : L->length - L->step * B;
    s->given = s->done = 0;
    for (int64_t i = 0; i < s->n; i++) {
        s->place[i] = L->step * B + i;
        s->index[i] = L->order[s->place[i]];
        s->bad[i] = false;
    }
    L->step++;
    L->scheduled++;
    return true;
}

/* ---- workers ---- */

/* Counts an image, once, and keeps the reason to be reported. */
static void note_bad(tp_loader *L, int64_t image, const char *why)
{
    notes *N = &L->notes;
    char name[512];
    if (L->broken[image]) return;
    L->broken[image] = true;
    L->skipped++;
    if (L->o.strict && !L->why[0]) {
        snprintf(L->why, WHY, "%s: %s", tp_image_set_name(L->X, image, name, sizeof name), why);
        pthread_cond_broadcast(&L->ready);
    }
    if (N->n == N->room) {
        const int room = N->room ? 2 * N->room : 16;
        note *more = realloc(N->at, (size_t)room * sizeof *more);
        if (!more) return; /* it is counted all the same */
        N->at = more;
        N->room = room;
    }
    N->at[N->n].image = image;
    snprintf(N->at[N->n++].why, sizeof N->at->why, "%s", why);
}

/* What is no fault of the image ends the loading: it would go on with other data. */
static void give_up(tp_loader *L, int64_t image, const char *why)
{
    char name[512];
    if (L->why[0]) return;
    snprintf(L->why, WHY, "%s: %s", tp_image_set_name(L->X, image, name, sizeof name), why);
    pthread_cond_broadcast(&L->ready);
}

/* Tells the caller of images that could not be read since the last time. */
static void report(tp_loader *L)
{
    char name[512];
    pthread_mutex_lock(&L->lock);
    notes N = L->notes;
    L->notes = (notes){ 0 };
    pthread_mutex_unlock(&L->lock);
    for (int i = 0; L->o.bad && i < N.n; i++)
        L->o.bad(L->o.env, tp_image_set_name(L->X, N.at[i].image, name, sizeof name), N.at[i].why);
    free(N.at);
}

/* Prepares image i of a slot; in training, if it cannot be read, another in its place. */
static void prepare(tp_loader *L, slot *s, int64_t i, tp_augment_work *w)
{
    const int64_t count = tp_image_set_count(L->X), tries = L->o.train && !L->o.strict ? 8 : 1;
    const int64_t first = s->index[i] / L->o.repeats;
    const tp_example e = { L->o.seed, (uint64_t)s->epoch, (uint64_t)s->place[i] };
    for (int64_t k = 0; k < tries; k++) {
        const int64_t image = (first + k) % count;
        s->label[i] = tp_image_set_label(L->X, image);
        if (tp_image_set_prepare(L->X, image, &L->augment, w, e, s->x + i * L->pixels)) {
            s->index[i] = image;
            return;
        }
        pthread_mutex_lock(&L->lock);
        if (w->shortage)
            give_up(L, image, w->why);
        else
            note_bad(L, image, w->why);
        pthread_mutex_unlock(&L->lock);
        if (w->shortage) break;
    }
    s->index[i] = first;
    s->bad[i] = true;
}

/* Closes the gaps that images left which could not be read; returns how many remain. */
static int64_t drop_bad(const tp_loader *L, const slot *s)
{
    int64_t n = 0;
    for (int64_t i = 0; i < s->n; i++) {
        if (s->bad[i]) continue;
        if (n < i) {
            memmove(s->x + n * L->pixels, s->x + i * L->pixels, (size_t)L->pixels * sizeof *s->x);
            s->label[n] = s->label[i];
            s->index[n] = s->index[i];
        }
        n++;
    }
    return n;
}

/* Returns how many images the batch has. */
static int64_t finish(const tp_loader *L, const slot *s)
{
    const int64_t size = L->augment.size, classes = tp_image_set_classes(L->X);
    const tp_example batch = { L->o.seed, (uint64_t)s->epoch, (uint64_t)s->step };
    tp_mixing d = { .lambda = 1.0 };
    const int64_t n = drop_bad(L, s);
    if (L->o.train && n % 2 == 0) d = tp_mix_draw(&L->augment.mix, batch, size, size);
    tp_mix_apply(&d, s->x, n, size, size, 3);
    tp_mix_targets(&d, L->o.train ? L->augment.mix.smoothing : 0.0, s->label, n, classes,
                   s->target);
    return n;
}

static void *worker(void *env)
{
    tp_loader *L = env;
    tp_augment_work w = { 0 };
    pthread_mutex_lock(&L->lock);
    while (!L->stop) {
        slot *s = NULL;
        int64_t i = 0;
        for (int64_t k = L->taken; k < L->scheduled && !s; k++) {
            slot *candidate = &L->ring[k % L->o.ahead];
            if (candidate->given < candidate->n) s = candidate;
        }
        if (!s) {
            pthread_cond_wait(&L->work, &L->lock);
            continue;
        }
        i = s->given++;
        pthread_mutex_unlock(&L->lock);
        prepare(L, s, i, &w);
        pthread_mutex_lock(&L->lock);
        if (s->done + 1 == s->n) { /* the last one: nobody else touches the batch now */
            pthread_mutex_unlock(&L->lock);
            const int64_t n = finish(L, s);
            pthread_mutex_lock(&L->lock);
            s->n = s->given = n;
            s->done = L->o.batch; /* complete, whatever was dropped */
            pthread_cond_broadcast(&L->ready);
        } else {
            s->done++;
        }
    }
    pthread_mutex_unlock(&L->lock);
    tp_augment_work_free(&w);
    return NULL;
}

/* ---- opening ---- */

static bool check(tp_loader *L)
{
    const int64_t count = tp_image_set_count(L->X), B = L->o.batch;
    if (!tp_image_set_ok(L->X)) {
        snprintf(L->why, WHY, "%s", tp_image_set_why(L->X));
    } else if (B < 1 || B > (1 << 20) || L->augment.size < 1 || L->augment.size > (1 << 14)) {
        snprintf(L->why, WHY, "batches of %lld images of size %lld are out of range", (long long)B,
                 (long long)L->augment.size);
    } else if (L->o.train && L->length < B) {
        snprintf(L->why, WHY,
                 "%lld training images (of %lld in the set) do not fill a batch of %lld: "
                 "lower the batch",
                 (long long)L->length, (long long)count, (long long)B);
    } else {
        return true;
    }
    return false;
}

static bool slot_new(tp_loader *L, slot *s)
{
    const size_t B = (size_t)L->o.batch;
    s->index = malloc(B * sizeof *s->index);
    s->place = malloc(B * sizeof *s->place);
    s->x = malloc(B * (size_t)L->pixels * sizeof *s->x);
    s->label = malloc(B * sizeof *s->label);
    s->target = malloc(B * (size_t)tp_image_set_classes(L->X) * sizeof *s->target);
    s->bad = malloc(B * sizeof *s->bad);
    return s->index && s->place && s->x && s->label && s->target && s->bad;
}

static bool allocate(tp_loader *L)
{
    const size_t count = (size_t)tp_image_set_count(L->X);
    L->order = malloc((count + 1) * sizeof *L->order);
    L->broken = calloc(count + 1, sizeof *L->broken);
    L->ring = calloc((size_t)L->o.ahead, sizeof *L->ring);
    L->thread = calloc((size_t)L->o.threads, sizeof *L->thread);
    bool ok = L->order && L->broken && L->ring && L->thread;
    for (int i = 0; ok && i < L->o.ahead; i++) ok = slot_new(L, &L->ring[i]);
    if (!ok) snprintf(L->why, WHY, "images: out of memory for %d batches", L->o.ahead);
    return ok;
}

static void start(tp_loader *L)
{
    for (int i = 0; i < L->o.threads; i++)
        if (pthread_create(&L->thread[i], NULL, worker, L) == 0) L->threads++;
    if (L->threads == 0) snprintf(L->why, WHY, "images: no thread could be started");
}

tp_loader *tp_loader_new(const tp_image_set *X, const tp_loader_opts *o)
{
    tp_loader *L = calloc(1, sizeof *L);
    if (!L) return &no_memory;
    const int64_t count = tp_image_set_count(X);
    L->X = X;
    L->o = *o;
    L->augment = *o->augment;
    if (L->o.threads < 1) L->o.threads = DEFAULT_THREADS;
    if (L->o.ahead < 1) L->o.ahead = DEFAULT_AHEAD;
    if (L->o.repeats < 1) L->o.repeats = 1;
    L->length = L->o.repeats > 1 && count >= ROUNDED ? count / ROUNDED * ROUNDED : count;
    L->pixels = L->augment.size * L->augment.size * 3;
    L->order_of = -1;
    pthread_mutex_init(&L->lock, NULL);
    pthread_cond_init(&L->work, NULL);
    pthread_cond_init(&L->ready, NULL);
    if (check(L) && allocate(L)) start(L);
    return L;
}

static void join(tp_loader *L)
{
    pthread_mutex_lock(&L->lock);
    L->stop = true;
    pthread_cond_broadcast(&L->work);
    pthread_mutex_unlock(&L->lock);
    for (int i = 0; i < L->threads; i++) pthread_join(L->thread[i], NULL);
    L->threads = 0;
    L->stop = false;
}

void tp_loader_free(tp_loader *L)
{
    if (!L || L == &no_memory) return;
    join(L);
    for (int i = 0; L->ring && i < L->o.ahead; i++) {
        slot *s = &L->ring[i];
        void *const pieces[] = { s->index, s->place, s->x, s->label, s->target, s->bad };
        for (size_t k = 0; k < sizeof pieces / sizeof *pieces; k++) free(pieces[k]);
    }
    free(L->ring);
    free(L->order);
    free(L->broken);
    free(L->thread);
    free(L->notes.at);
    pthread_cond_destroy(&L->ready);
    pthread_cond_destroy(&L->work);
    pthread_mutex_destroy(&L->lock);
    free(L);
}

/* ---- reading ---- */

bool tp_loader_ok(const tp_loader *L)
{
    return L->why[0] == '\0';
}

const char *tp_loader_why(const tp_loader *L)
{
    return L->why;
}

int64_t tp_loader_steps(const tp_loader *L)
{
    const int64_t B = L->o.batch > 0 ? L->o.batch : 1;
    return L->o.train ? L->length / B : (L->length + B - 1) / B;
}

double tp_loader_waited(const tp_loader *L)
{
    return L->waited;
}

int64_t tp_loader_skipped(const tp_loader *L)
{
    return L->skipped;
}

void tp_loader_seek(tp_loader *L, int64_t epoch, int64_t step)
{
    if (L->why[0] || (epoch == L->next_epoch && step == L->next_step)) return;
    join(L); /* what was prepared is not wanted */
    L->epoch = L->next_epoch = epoch;
    L->step = L->next_step = step;
    L->scheduled = L->taken = 0;
    L->holds = false;
    start(L);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Waits for the oldest batch. NULL: there is none, or an error. */
static slot *wait_for(tp_loader *L)
{
    const double begin = now();
    slot *s = &L->ring[L->taken % L->o.ahead];
    while (L->taken < L->scheduled && s->done < L->o.batch && !L->why[0])
        pthread_cond_wait(&L->ready, &L->lock);
    L->waited += now() - begin;
    return L->taken < L->scheduled && !L->why[0] ? s : NULL;
}

/* Without this a set of nothing but broken images would be read for ever. */
static bool some_are_left(tp_loader *L)
{
    const int64_t count = tp_image_set_count(L->X);
    if (L->skipped < count) return true;
    if (!L->why[0])
        snprintf(L->why, WHY, "none of the %lld images could be read", (long long)count);
    return false;
}

bool tp_loader_next(tp_loader *L, tp_batch *b)
{
    slot *s = NULL;
    *b = (tp_batch){ 0 };
    if (L->why[0] || L->threads == 0) return false;
    pthread_mutex_lock(&L->lock);
    if (L->holds) L->taken++; /* the batch that was given last is free again */
    for (bool more = true; more;) {
        while (L->scheduled - L->taken < L->o.ahead && schedule(L)) {
        }
        pthread_cond_broadcast(&L->work);
        s = wait_for(L);
        more = s && s->n == 0; /* no image of it could be read */
        if (more) L->taken++;
        if (more && L->o.train && !some_are_left(L)) s = NULL, more = false;
    }
    L->holds = s != NULL;
    pthread_mutex_unlock(&L->lock);
    report(L);
    if (!s) return false;
    *b = (tp_batch){ s->n, s->epoch, s->step, s->x, s->label, s->target, s->index };
    const bool last = L->o.train && s->step + 1 == tp_loader_steps(L);
    L->next_epoch = s->epoch + last;
    L->next_step = last ? 0 : s->step + 1;
    return true;
}

int64_t tp_loader_feed(tp_loader *L, tp_tape *T, int64_t epoch, int64_t step, tp_tensor to[2])
{
    const int64_t size = L->augment.size;
    tp_batch b;
    tp_loader_seek(L, epoch, step);
    if (!tp_loader_next(L, &b)) {
        if (L->why[0]) tp_raise(T, TP_E_IO, "%s", L->why);
        return 0;
    }
    tp_feed(T, &to[0], TP_F32, TP_SHAPE(b.n, size, size, 3), b.x);
    tp_feed(T, &to[1], TP_F32, TP_SHAPE(b.n, tp_image_set_classes(L->X)), b.target);
    return tp_ok(T) ? b.n : 0;
}
