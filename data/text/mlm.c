/* mlm.c - batches for masked language modelling.
 *
 * Sequence i of a part has tokens i m to (i + 1) m - 1, m = length - 2. */
#include <math.h>
#include <tapegrad/mlm.h>
#include <tapegrad/random.h>

#include "corpus.h"
#include "epoch_order.h"

enum { WHY = 1100 };

typedef struct state {
    const tp_corpus *C;
    tp_mlm_loader_opts o;
    int64_t tokens, m; /* of the part; of a sequence */
    int64_t sequences;
    int64_t rows; /* sequences of a batch: `batch`, or all if there are fewer */
    int64_t most; /* `padded`: rows of a sequence */
    tp_epoch_order order;
    /* Scratch of finish: the loader has no workers. */
    int32_t *place;   /* [m]: positions that may be targets */
    int32_t *stream;  /* [m] */
    uint8_t *special; /* [vocabulary] */
    int64_t targets;  /* of the last fed batch */
} state;

typedef struct slot {
    tp_mlm_batch b;
    int32_t *ids, *row, *target; /* [batch,length] */
} slot;

/* The sequence at a position of an epoch. */
static int64_t sequence_at(void *of, int64_t epoch, int64_t place)
{
    state *S = of;
    return S->o.train ? tp__epoch_order_at(&S->order, epoch, place) : place;
}

/* ---- masks ---- */

static int32_t ordinary_token(const state *S, tp_random *r)
{
    for (;;) {
        const int32_t id = (int32_t)tp_random_below(r, S->C->size);
        if (!S->special[id]) return id;
    }
}

/* Makes position `at` of the batch a target. */
static void hide(const state *S, slot *s, int32_t at, tp_random *r)
{
    const double u = tp_random_uniform(r);
    s->row[s->b.rows] = at;
    s->target[s->b.rows++] = s->ids[at];
    if (u < 0.8)
        s->ids[at] = S->C->special[TP_BPE_MASK];
    else if (u < 0.9)
        s->ids[at] = ordinary_token(S, r);
}

/* Keeps k random positions of n, in order. */
static void choose(int32_t *place, int64_t n, int64_t k, tp_random *r)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < n && kept < k; i++)
        if (tp_random_below(r, n - i) < k - kept) place[kept++] = place[i];
}

/* Draws the targets of a sequence whose ids begin at `first`. */
static void mask(const state *S, slot *s, int32_t first, tp_random r)
{
    int64_t n = 0;
    for (int64_t j = 1; j < S->o.length - 1; j++)
        if (!S->special[s->ids[first + j]]) S->place[n++] = first + (int32_t)j;
    if (S->o.exact) {
        const int64_t k = (int64_t)floor(S->o.rate * (double)n + tp_random_uniform(&r));
        const int64_t most = S->most < n ? S->most : n;
        const int64_t drawn = k < most ? k : most;
        choose(S->place, n, drawn, &r);
        for (int64_t i = 0; i < drawn; i++) hide(S, s, S->place[i], &r);
    } else {
        const double below = S->o.rate * 4294967296.0;
        for (int64_t i = 0; i < n; i++)
            if (tp_random_word(&r) < below) hide(S, s, S->place[i], &r);
    }
}

/* ---- a batch ---- */

static tp_random masks_of(const state *S, const tp_mlm_batch *b, int64_t i)
{
    return tp_random_stream(S->o.seed, "mlm", (uint64_t)b->index[i], (uint64_t)b->epoch);
}

/* Ensures that a batch has a target; without one it has no loss. */
static bool need_target(tp_loader *L, const state *S, slot *s)
{
    const tp_mlm_batch *b = &s->b;
    for (int64_t at = 0; at < b->n * b->length && b->rows == 0; at++) {
        tp_random r = masks_of(S, b, at / b->length);
        if (!S->special[s->ids[at]]) hide(S, s, (int32_t)at, &r);
    }
    return b->rows > 0 ||
           tp_loader_fail(
               L, TP_E_VALUE,
               "mlm: batch %lld of epoch %lld has special tokens only; is the vocabulary that "
               "of the text?",
               (long long)b->step, (long long)b->epoch);
}

/* Reads sequence `index` to ids. */
static bool read(tp_loader *L, const state *S, int64_t index, int32_t *ids)
{
    char why[WHY];
    const int64_t left = S->tokens - index * S->m, n = left < S->m ? left : S->m;
    if (!tp_corpus_read(S->C, S->o.part, index * S->m, n, S->stream, why, sizeof why))
        return tp_loader_fail(L, TP_E_IO, "%s", why);
    *ids++ = S->C->special[TP_BPE_BEGIN];
    for (int64_t j = 0; j < n; j++) *ids++ = S->stream[j];
    *ids++ = S->C->special[TP_BPE_END];
    for (int64_t j = n; j < S->m; j++) *ids++ = S->C->special[TP_BPE_PAD];
    return true;
}

/* Outside training, the masks are those of epoch 0. */
static void finish(tp_loader *L, void *of, const tp_loader_batch *head, void *at)
{
    const state *S = of;
    slot *s = at;
    tp_mlm_batch *b = &s->b;
    *b = (tp_mlm_batch){ .n = head->n,
                         .length = S->o.length,
                         .epoch = S->o.train ? head->epoch : 0,
                         .step = head->step,
                         .index = head->index,
                         .ids = s->ids,
                         .row = s->row,
                         .target = s->target };
    for (int64_t i = 0; i < b->n; i++) {
        if (!read(L, S, b->index[i], s->ids + i * b->length)) return;
        mask(S, s, (int32_t)(i * b->length), masks_of(S, b, i));
    }
    if (b->rows == 0 && !need_target(L, S, s)) return;
    b->targets = b->rows;
    while (S->o.padded && b->rows < S->rows * S->most) {
        s->row[b->rows] = 0;
        s->target[b->rows++] = -1;
    }
}

static void feed(void *of, const void *at, tp_tape *T, tp_tensor to[])
{
    state *S = of;
    const tp_mlm_batch *b = &((const slot *)at)->b;
    tp_feed(T, &to[0], TP_I32, TP_SHAPE(b->n, b->length), b->ids);
    tp_feed(T, &to[1], TP_I32, TP_SHAPE(b->rows), b->row);
    tp_feed(T, &to[2], TP_I32, TP_SHAPE(b->rows), b->target);
    S->targets = b->targets;
}

static void slot_new(tp_loader *L, const void *of, void *at)
{
    const state *S = of;
    slot *s = at;
    const int64_t ids = S->rows * S->o.length;
    s->ids = tp_loader_alloc(L, ids, sizeof *s->ids);
    s->row = tp_loader_alloc(L, ids, sizeof *s->row);
    s->target = tp_loader_alloc(L, ids, sizeof *s->target);
}

static const tp_loader_kind masked = { .name = "sequences",
                                       .state = sizeof(state),
                                       .slot = sizeof(slot),
                                       .slot_new = slot_new,
                                       .number = sequence_at,
                                       .finish = finish,
                                       .feed = feed };

/* ---- creating ---- */

static bool check(tp_loader *L, const state *S)
{
    const tp_mlm_loader_opts *o = &S->o;
    if (!tp_corpus_ok(S->C)) return tp_loader_fail(L, TP_E_IO, "%s", tp_corpus_why(S->C));
    if (S->C->end != S->C->special[TP_BPE_END] || tp__corpus_lacks(S->C))
        return tp_loader_fail(
            L, TP_E_VALUE,
            "mlm: the corpus was opened with a separator of its own; open it "
            "without one, with a vocabulary that has <s>, <pad>, </s> and <mask>");
    if (o->length < 3 || o->batch < 1 || o->batch > INT32_MAX / o->length)
        return tp_loader_fail(
            L, TP_E_VALUE,
            "mlm: %lld sequences of %lld ids are not at least 1 of at least 3, together "
            "below 2^31",
            (long long)o->batch, (long long)o->length);
    if (!(o->rate > 0 && o->rate < 1))
        return tp_loader_fail(L, TP_E_VALUE, "mlm: the rate of targets, %g, is not between 0 and 1",
                              o->rate);
    return !o->padded || o->exact ||
           tp_loader_fail(L, TP_E_VALUE,
                          "mlm: equal numbers of rows need exact numbers of targets; set exact");
}

/* Divides the part into sequences. */
static bool divide(tp_loader *L, state *S)
{
    const tp_mlm_loader_opts *o = &S->o;
    const int64_t least = o->train ? o->batch * tp_share_parts(o->share) : 1;
    S->m = o->length - 2;
    S->tokens = tp_corpus_tokens(S->C, o->part);
    S->sequences = o->train ? S->tokens / S->m : (S->tokens + S->m - 1) / S->m;
    S->rows = S->sequences < o->batch ? S->sequences : o->batch;
    S->most = (int64_t)ceil(o->rate * (double)S->m);
    S->order = tp__epoch_order_of(S->sequences, o->seed, "mlm order");
    return S->sequences >= least ||
           tp_loader_fail(
               L, TP_E_VALUE,
               "mlm: the %s part has %lld tokens, too few for %lld sequence%s of %lld; give more "
               "text, or lower the batch or the length",
               o->part == TP_TRAIN ? "training" : "held-out", (long long)S->tokens,
               (long long)least, least > 1 ? "s" : "", (long long)o->length);
}

static bool allocate(tp_loader *L, state *S)
{
    S->place = tp_loader_alloc(L, S->m, sizeof *S->place);
    S->stream = tp_loader_alloc(L, S->m, sizeof *S->stream);
    S->special = tp_loader_alloc(L, S->C->size, 1);
    for (int k = 0; S->special && k < TP_BPE_SPECIALS; k++)
        if (S->C->special[k] >= 0) S->special[S->C->special[k]] = 1;
    return S->special != NULL;
}

tp_loader *tp_mlm_loader_new(const tp_corpus *C, const tp_mlm_loader_opts *o)
{
    if (!C) return NULL;
    tp_loader *L = tp_loader_new(&masked);
    state *S = tp_loader_state(L, &masked);
    if (!S) return L;
    *S = (state){ .C = C, .o = *o };
    if (S->o.rate == 0) S->o.rate = 0.15;
    if (check(L, S) && divide(L, S) && allocate(L, S))
        tp_loader_open(
            L, &(tp_loader_examples){ .count = S->sequences },
            &(tp_loader_opts){
                .batch = o->batch, .seed = o->seed, .train = o->train, .share = o->share });
    if (!tp_loader_ok(L)) S->sequences = 0;
    return L;
}

bool tp_mlm_loader_next(tp_loader *L, tp_mlm_batch *b)
{
    return tp_loader_take(L, &masked, b, sizeof *b);
}

int64_t tp_mlm_loader_sequences(const tp_loader *L)
{
    const state *S = tp_loader_state(L, &masked);
    return S ? S->sequences : 0;
}

int64_t tp_mlm_loader_targets(const tp_loader *L)
{
    const state *S = tp_loader_state(L, &masked);
    return S ? S->targets : 0;
}
