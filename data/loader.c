/* loader.c - batches of images that worker threads prepare.
 *
 * A ring of batches connects the workers with tp_loader_next. The caller's thread decides which
 * images a batch has, in order; any free worker takes the next image. The pixels of an image depend
 * on (seed, epoch, place in the epoch) only, so neither the number of workers nor their order
 * matters. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "loader.h"

enum { DEFAULT_THREADS = 2, DEFAULT_AHEAD = 4, ROUNDED = 256 };

static tp_loader no_memory = { .failed = true, .why = "images: out of memory" };

void tp__loader_fail(tp_loader *L, const char *format, ...)
{
    va_list args;
    if (L->failed) return;
    va_start(args, format);
    vsnprintf(L->why, sizeof L->why, format, args);
    va_end(args);
    L->failed = true;
}

/* ---- opening ---- */

static bool check(tp_loader *L)
{
    const int64_t count = tp_image_set_count(L->X), B = L->o.batch;
    if (!tp_image_set_ok(L->X)) {
        tp__loader_fail(L, "%s", tp_image_set_why(L->X));
    } else if (B < 1 || B > (1 << 20) || L->augment.size < 1 || L->augment.size > (1 << 14)) {
        tp__loader_fail(L, "batches of %lld images of size %lld are out of range", (long long)B,
                        (long long)L->augment.size);
    } else if (L->o.train && L->length < B) {
        tp__loader_fail(L,
                        "%lld training images (of %lld in the set) do not fill a batch of %lld: "
                        "lower the batch",
                        (long long)L->length, (long long)count, (long long)B);
    } else {
        return true;
    }
    return false;
}

static bool slot_new(tp_loader *L, tp_loader_slot *s)
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
    if (!ok) tp__loader_fail(L, "images: out of memory for %d batches", L->o.ahead);
    return ok;
}

static void start(tp_loader *L)
{
    for (int i = 0; i < L->o.threads; i++)
        if (pthread_create(&L->thread[i], NULL, tp__loader_worker, L) == 0) L->threads++;
    if (L->threads == 0) tp__loader_fail(L, "images: no thread could be started");
}

tp_loader *tp_loader_new(const tp_image_set *X, const tp_loader_opts *o)
{
    if (!X) return NULL;
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
        tp_loader_slot *s = &L->ring[i];
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

/* ---- batches ---- */

bool tp_loader_ok(const tp_loader *L)
{
    if (!L) return false;
    return !L->failed;
}

const char *tp_loader_why(const tp_loader *L)
{
    if (!L) return "loader: NULL was given in place of a loader";
    return L->failed ? L->why : "";
}

int64_t tp_loader_steps(const tp_loader *L)
{
    if (!L) return 0;
    const int64_t B = L->o.batch > 0 ? L->o.batch : 1;
    return L->o.train ? L->length / B : (L->length + B - 1) / B;
}

double tp_loader_waited(const tp_loader *L)
{
    if (!L) return 0;
    return L->waited;
}

int64_t tp_loader_skipped(const tp_loader *L)
{
    if (!L) return 0;
    return L->skipped;
}

void tp_loader_seek(tp_loader *L, int64_t epoch, int64_t step)
{
    if (!L) return;
    if (L->failed || (epoch == L->next_epoch && step == L->next_step)) return;
    join(L); /* drops the batches prepared so far */
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

/* Waits for the oldest batch. NULL: no batch is left, or L has failed. */
static tp_loader_slot *wait_for(tp_loader *L)
{
    const double begin = now();
    tp_loader_slot *s = &L->ring[L->taken % L->o.ahead];
    while (L->taken < L->scheduled && s->done < L->o.batch && !L->failed)
        pthread_cond_wait(&L->ready, &L->lock);
    L->waited += now() - begin;
    return L->taken < L->scheduled && !L->failed ? s : NULL;
}

/* Without this check the loader would loop forever over a set with no readable image. */
static bool some_are_left(tp_loader *L)
{
    const int64_t count = tp_image_set_count(L->X);
    if (L->skipped < count) return true;
    tp__loader_fail(L, "none of the %lld images could be read", (long long)count);
    return false;
}

/* Reports the images that could not be read since the last call. */
static void report(tp_loader *L)
{
    char name[512];
    pthread_mutex_lock(&L->lock);
    tp_loader_notes N = L->notes;
    L->notes = (tp_loader_notes){ 0 };
    pthread_mutex_unlock(&L->lock);
    for (int i = 0; L->o.bad && i < N.n; i++)
        L->o.bad(L->o.env, tp_image_set_name(L->X, N.at[i].image, name, sizeof name), N.at[i].why);
    free(N.at);
}

bool tp_loader_next(tp_loader *L, tp_batch *b)
{
    if (!L) return false;
    tp_loader_slot *s = NULL;
    *b = (tp_batch){ 0 };
    if (L->failed || L->threads == 0) return false;
    pthread_mutex_lock(&L->lock);
    if (L->holds) L->taken++; /* the caller is done with its last batch */
    for (bool more = true; more;) {
        while (L->scheduled - L->taken < L->o.ahead && tp__loader_schedule(L)) {
        }
        pthread_cond_broadcast(&L->work);
        s = wait_for(L);
        more = s && s->n == 0; /* none of its images could be read */
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
    if (!L) {
        tp_raise_here(T, TP_E_STATE, "loader_feed: NULL was given in place of a loader");
        return 0;
    }
    const int64_t size = L->augment.size;
    tp_batch b;
    tp_loader_seek(L, epoch, step);
    if (!tp_loader_next(L, &b)) {
        if (L->failed) tp_raise(T, TP_E_IO, "%s", L->why);
        return 0;
    }
    tp_feed(T, &to[0], TP_F32, TP_SHAPE(b.n, size, size, 3), b.x);
    tp_feed(T, &to[1], TP_F32, TP_SHAPE(b.n, tp_image_set_classes(L->X)), b.target);
    return tp_ok(T) ? b.n : 0;
}
