/* clm.c - batches for causal language modelling: windows of a corpus and their next tokens. */
#include <tapegrad/clm.h>

#include <string.h>

#include "corpus.h"
#include "epoch_order.h"

enum { WHY = 1100 };

typedef struct state {
    const tp_corpus *C;
    tp_clm_loader_opts o;
    int64_t tokens, windows; /* of the part */
    int64_t rows;            /* windows of a batch: `batch`, or all if there are fewer */
    tp_epoch_order order;
    int32_t *stream; /* scratch of finish, [length + 1]: the loader has no workers */
} state;

typedef struct slot {
    tp_clm_batch b;
    int32_t *ids, *target; /* [rows,length] */
} slot;

static int64_t window_at(void *of, int64_t epoch, int64_t place)
{
    state *S = of;
    return S->o.train ? tp__epoch_order_at(&S->order, epoch, place) : place;
}

/* Reads window `index` to ids and targets. Returns the number of targets that count, or -1. */
static int64_t read(tp_loader *L, const state *S, int64_t index, int32_t *ids, int32_t *target)
{
    char why[WHY];
    const int64_t n = S->o.length, left = S->tokens - index * n, some = left <= n ? left : n + 1;
    if (!tp_corpus_read(S->C, S->o.part, index * n, some, S->stream, why, sizeof why)) {
        tp_loader_fail(L, TP_E_IO, "%s", why);
        return -1;
    }
    const int64_t counted = some - 1;
    memcpy(ids, S->stream, (size_t)counted * sizeof *ids);
    memcpy(target, S->stream + 1, (size_t)counted * sizeof *target);
    for (int64_t i = counted; i < n; i++) {
        ids[i] = 0;
        target[i] = -1;
    }
    return counted;
}

static void finish(tp_loader *L, void *of, const tp_loader_batch *head, void *at)
{
    const state *S = of;
    slot *s = at;
    s->b = (tp_clm_batch){ .n = head->n,
                           .length = S->o.length,
                           .epoch = head->epoch,
                           .step = head->step,
                           .index = head->index,
                           .ids = s->ids,
                           .target = s->target };
    for (int64_t i = 0; i < head->n; i++) {
        const int64_t from = i * S->o.length;
        const int64_t counted = read(L, S, head->index[i], s->ids + from, s->target + from);
        if (counted < 0) return;
        s->b.targets += counted;
    }
}

static void feed(void *of, const void *at, tp_tape *T, tp_tensor to[])
{
    const tp_clm_batch *b = &((const slot *)at)->b;
    const tp_shape shape = TP_SHAPE(b->n, b->length);
    (void)of;
    tp_feed(T, &to[0], TP_I32, shape, b->ids);
    tp_feed(T, &to[1], TP_I32, shape, b->target);
}

static void slot_new(tp_loader *L, const void *of, void *at)
{
    const state *S = of;
    slot *s = at;
    s->ids = tp_loader_alloc(L, S->rows * S->o.length, sizeof *s->ids);
    s->target = tp_loader_alloc(L, S->rows * S->o.length, sizeof *s->target);
}

static const tp_loader_kind causal = { .name = "windows",
                                       .state = sizeof(state),
                                       .slot = sizeof(slot),
                                       .slot_new = slot_new,
                                       .number = window_at,
                                       .finish = finish,
                                       .feed = feed };

static bool check(tp_loader *L, const state *S)
{
    const tp_clm_loader_opts *o = &S->o;
    if (!tp_corpus_ok(S->C)) return tp_loader_fail(L, TP_E_IO, "%s", tp_corpus_why(S->C));
    return (o->length >= 1 && o->batch >= 1 && o->batch <= INT32_MAX / o->length) ||
           tp_loader_fail(L, TP_E_VALUE,
                          "clm: %lld windows of %lld tokens are not at least 1 of at least 1, "
                          "together below 2^31",
                          (long long)o->batch, (long long)o->length);
}

/* Divides the part into windows. */
static bool divide(tp_loader *L, state *S)
{
    const tp_clm_loader_opts *o = &S->o;
    const int64_t least = o->train ? o->batch * tp_share_parts(o->share) : 1;
    S->tokens = tp_corpus_tokens(S->C, o->part);
    const int64_t targets = S->tokens > 0 ? S->tokens - 1 : 0;
    S->windows = targets / o->length + (!o->train && targets % o->length > 0);
    S->rows = S->windows < o->batch ? S->windows : o->batch;
    S->order = tp__epoch_order_of(S->windows, o->seed, "clm order");
    return S->windows >= least ||
           tp_loader_fail(L, TP_E_VALUE,
                          "clm: the %s part has %lld tokens, too few for %lld window%s of %lld and "
                          "the token after them; give more text, or lower the batch or the length",
                          o->part == TP_TRAIN ? "training" : "held-out", (long long)S->tokens,
                          (long long)least, least > 1 ? "s" : "", (long long)o->length);
}

tp_loader *tp_clm_loader_new(const tp_corpus *C, const tp_clm_loader_opts *o)
{
    if (!C || !o) return NULL;
    tp_loader *L = tp_loader_new(&causal);
    state *S = tp_loader_state(L, &causal);
    if (!S) return L;
    *S = (state){ .C = C, .o = *o };
    if (check(L, S) && divide(L, S)) S->stream = tp_loader_alloc(L, o->length + 1, sizeof(int32_t));
    if (S->stream)
        tp_loader_open(
            L, &(tp_loader_examples){ .count = S->windows },
            &(tp_loader_opts){
                .batch = o->batch, .seed = o->seed, .train = o->train, .share = o->share });
    if (!tp_loader_ok(L)) S->windows = 0;
    return L;
}

bool tp_clm_loader_next(tp_loader *L, tp_clm_batch *b)
{
    return tp_loader_take(L, &causal, b, sizeof *b);
}

int64_t tp_clm_loader_windows(const tp_loader *L)
{
    const state *S = tp_loader_state(L, &causal);
    return S ? S->windows : 0;
}
