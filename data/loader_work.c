/* loader_work.c - the worker threads of a loader: each takes one image of the oldest unfinished
 * batch, and the one that finishes a batch mixes it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader.h"

static void give_up(tp_loader *L, int64_t image, const char *why)
{
    char name[512];
    tp__loader_fail(L, "%s: %s", tp_image_set_name(L->X, image, name, sizeof name), why);
    pthread_cond_broadcast(&L->ready);
}

/* Counts an unreadable image once, and keeps the reason for the report. */
static void note_bad(tp_loader *L, int64_t image, const char *why)
{
    tp_loader_notes *N = &L->notes;
    if (L->broken[image]) return;
    L->broken[image] = true;
    L->skipped++;
    if (L->o.strict) give_up(L, image, why);
    if (N->n == N->room) {
        const int room = N->room ? 2 * N->room : 16;
        tp_loader_note *more = realloc(N->at, (size_t)room * sizeof *more);
        if (!more) return; /* it is counted, but not reported */
        N->at = more;
        N->room = room;
    }
    N->at[N->n].image = image;
    snprintf(N->at[N->n++].why, sizeof N->at->why, "%s", why);
}

/* Prepares image i of a slot. In training the next image replaces one that cannot be read. */
static void prepare(tp_loader *L, tp_loader_slot *s, int64_t i, tp_augment_work *w)
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
        if (w->shortage) /* no fault of the image: skipping it would change the data */
            give_up(L, image, w->why);
        else
            note_bad(L, image, w->why);
        pthread_mutex_unlock(&L->lock);
        if (w->shortage) break;
    }
    s->index[i] = first;
    s->bad[i] = true;
}

/* Closes the gaps of images that could not be read; returns the number of images left. */
static int64_t drop_bad(const tp_loader *L, const tp_loader_slot *s)
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

/* Mixes a complete batch; returns its number of images. */
static int64_t finish(const tp_loader *L, const tp_loader_slot *s)
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

void *tp__loader_worker(void *env)
{
    tp_loader *L = env;
    tp_augment_work w = { 0 };
    pthread_mutex_lock(&L->lock);
    while (!L->stop) {
        tp_loader_slot *s = NULL;
        int64_t i = 0;
        for (int64_t k = L->taken; k < L->scheduled && !s; k++) {
            tp_loader_slot *candidate = &L->ring[k % L->o.ahead];
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
        if (s->done + 1 == s->n) { /* the last one: no other thread touches the batch now */
            pthread_mutex_unlock(&L->lock);
            const int64_t n = finish(L, s);
            pthread_mutex_lock(&L->lock);
            s->n = s->given = n;
            s->done = L->o.batch; /* complete, even if images were dropped */
            pthread_cond_broadcast(&L->ready);
        } else {
            s->done++;
        }
    }
    pthread_mutex_unlock(&L->lock);
    tp_augment_work_free(&w);
    return NULL;
}
