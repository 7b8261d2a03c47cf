/* loader.c - the loader of images: runs examples through the pipeline and mixes whole batches. */
#include <string.h>
#include <tapegrad/image_set.h>

enum { DEFAULT_THREADS = 2, DEFAULT_AHEAD = 4, ROUNDED = 256, TRIES = 8 };

typedef struct state {
    const tp_image_set *X;
    tp_image_loader_opts o;
    tp_augment augment;
    int64_t pixels; /* floats of an image */
} state;

typedef struct slot {
    tp_image_batch b;
    float *x, *target;
    int32_t *label;
} slot;

static void slot_new(tp_loader *L, const void *of, void *at)
{
    const state *S = of;
    slot *s = at;
    const int64_t B = S->o.batch;
    s->x = tp_loader_alloc(L, B * S->pixels, sizeof *s->x);
    s->label = tp_loader_alloc(L, B, sizeof *s->label);
    s->target = tp_loader_alloc(L, B * tp_image_set_classes(S->X), sizeof *s->target);
}

static void work_free(void *work)
{
    tp_augment_work_free(work);
}

/* Repeats each image, from the end, so that entries are read before they are overwritten. */
static void repeat(void *of, int64_t *order, int64_t n)
{
    const state *S = of;
    const int64_t r = S->o.repeats;
    for (int64_t i = (n - 1) / r; r > 1 && i >= 0; i--)
        for (int64_t k = r - 1; k >= 0; k--)
            if (i * r + k < n) order[i * r + k] = order[i];
}

static tp_example_state make(void *of, const tp_loader_example *e, void *at, void *work, char *why)
{
    const state *S = of;
    const slot *s = at;
    tp_augment_work *w = work;
    const tp_example drawn = { e->seed, (uint64_t)e->epoch, (uint64_t)e->place };
    s->label[e->at] = tp_image_set_label(S->X, e->number);
    if (tp_image_set_prepare(S->X, e->number, &S->augment, w, drawn, s->x + e->at * S->pixels))
        return TP_EXAMPLE_MADE;
    memcpy(why, w->why, TP_EXAMPLE_WHY);
    if (w->shortage == TP_E_MEMORY) return TP_EXAMPLE_NO_MEMORY;
    return w->shortage ? TP_EXAMPLE_FAILED : TP_EXAMPLE_BAD;
}

static void move(void *of, void *at, int64_t to, int64_t from)
{
    const state *S = of;
    const slot *s = at;
    memcpy(s->x + to * S->pixels, s->x + from * S->pixels, (size_t)S->pixels * sizeof *s->x);
    s->label[to] = s->label[from];
}

static void finish(tp_loader *L, void *of, const tp_loader_batch *b, void *at)
{
    const state *S = of;
    slot *s = at;
    const int64_t size = S->augment.size, classes = tp_image_set_classes(S->X);
    const tp_example drawn = { S->o.seed, (uint64_t)b->epoch, (uint64_t)b->step };
    tp_mixing d = { .lambda = 1.0 };
    (void)L;
    if (S->o.train && b->n % 2 == 0) d = tp_mix_draw(&S->augment.mix, drawn, size, size);
    tp_mix_apply(&d, s->x, b->n, size, size, 3);
    tp_mix_targets(&d, S->o.train ? S->augment.mix.smoothing : 0.0, s->label, b->n, classes,
                   s->target);
    s->b = (tp_image_batch){ b->n, b->epoch, b->step, s->x, s->label, s->target, b->index };
}

static void feed(void *of, const void *at, tp_tape *T, tp_tensor to[])
{
    const state *S = of;
    const tp_image_batch *b = &((const slot *)at)->b;
    const int64_t size = S->augment.size;
    tp_feed(T, &to[0], TP_F32, TP_SHAPE(b->n, size, size, 3), b->x);
    tp_feed(T, &to[1], TP_F32, TP_SHAPE(b->n, tp_image_set_classes(S->X)), b->target);
}

static const char *example_name(const void *of, int64_t number, char *buf, size_t size)
{
    const state *S = of;
    return tp_image_set_name(S->X, number, buf, size);
}

static const tp_loader_kind images = { .name = "images",
                                       .state = sizeof(state),
                                       .slot = sizeof(slot),
                                       .work = sizeof(tp_augment_work),
                                       .slot_new = slot_new,
                                       .work_free = work_free,
                                       .stream = "order",
                                       .arrange = repeat,
                                       .make = make,
                                       .move = move,
                                       .finish = finish,
                                       .feed = feed,
                                       .example_name = example_name };

static bool check(tp_loader *L, const state *S)
{
    const int64_t B = S->o.batch;
    if (!tp_image_set_ok(S->X)) return tp_loader_fail(L, TP_E_IO, "%s", tp_image_set_why(S->X));
    if (B < 1 || B > 1 << 20 || S->augment.size < 1 || S->augment.size > 1 << 14)
        return tp_loader_fail(L, TP_E_VALUE,
                              "images: batches of %lld images of size %lld are out of range",
                              (long long)B, (long long)S->augment.size);
    return true;
}

tp_loader *tp_image_loader_new(const tp_image_set *X, const tp_image_loader_opts *o)
{
    if (!X) return NULL;
    tp_loader *L = tp_loader_new(&images);
    state *S = tp_loader_state(L, &images);
    const int64_t count = tp_image_set_count(X);
    if (!S) return L;
    *S = (state){ .X = X, .o = *o, .augment = *o->augment };
    if (S->o.repeats < 1) S->o.repeats = 1;
    S->pixels = S->augment.size * S->augment.size * 3;
    const bool rounded = S->o.repeats > 1 && count >= ROUNDED;
    const tp_loader_examples examples = { .count = count,
                                          .length = rounded ? count / ROUNDED * ROUNDED : count,
                                          .tries = TRIES };
    if (check(L, S))
        tp_loader_open(L, &examples,
                       &(tp_loader_opts){ .batch = o->batch,
                                          .seed = o->seed,
                                          .train = o->train,
                                          .threads = o->threads < 1 ? DEFAULT_THREADS : o->threads,
                                          .ahead = o->ahead < 1 ? DEFAULT_AHEAD : o->ahead,
                                          .strict = o->strict,
                                          .bad = o->bad,
                                          .env = o->env,
                                          .sampler = o->sampler,
                                          .share = o->share });
    return L;
}

bool tp_image_loader_next(tp_loader *L, tp_image_batch *b)
{
    return tp_loader_take(L, &images, b, sizeof *b);
}
