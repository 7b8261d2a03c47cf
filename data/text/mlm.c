/* mlm.c - batches for masked language modelling.
 *
 * Sequence i of a part has its tokens i m to (i + 1) m - 1, m = length - 2. The order of an epoch is a permutation that
 * is computed, not stored, so an epoch of any length needs no memory: a Feistel network on the numbers below 4^h >= n,
 * repeated until the result is below n. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/random.h>

#include "corpus.h"
#include "epochs.h"
#include "kit.h"

enum { WHY = 1100, ROUNDS = 6 };

struct tp_mlm {
    const tp_corpus *C;
    tp_mlm_opts o;
    int64_t tokens, m; /* of the part; of a sequence  */
    int64_t sequences;
    tp_epochs at;
    int64_t most;  /* `padded`: rows of a sequence */
    int64_t keyed; /* the epoch whose order `key` gives, or -1 */
    uint64_t key[ROUNDS];
    int half; /* h */
    int64_t *index;
    int32_t *ids, *row, *target, *place; /* place: [m], positions that may be targets */
    uint16_t *stream;                    /* [m] */
    uint8_t *special;                    /* [vocabulary] */
    char why[WHY];
};

static tp_mlm no_memory = { .why = "mlm: out of memory" };

/* Fails L unless it has failed before; false. */
#define fail(L, ...) tp__first_reason((L)->why, WHY, __VA_ARGS__)

/* ---- creating ---- */

static bool check(tp_mlm *L)
{
    const tp_mlm_opts *o = &L->o;
    if (!tp_corpus_ok(L->C)) return fail(L, "%s", tp_corpus_why(L->C));
    if (o->length < 3 || o->batch < 1 || o->batch > INT32_MAX / o->length)
        return fail(L,
                    "mlm: %lld sequences of %lld ids are not at least 1 of at least 3, together "
                    "below 2^31",
                    (long long)o->batch, (long long)o->length);
    if (!(o->rate > 0 && o->rate < 1))
        return fail(L, "mlm: the rate of targets, %g, is not between 0 and 1", o->rate);
    return !o->padded || o->exact ||
           fail(L, "mlm: equal numbers of rows need exact numbers of targets; set exact");
}

/* Divides the part into sequences. */
static bool divide(tp_mlm *L)
{
    const tp_mlm_opts *o = &L->o;
    L->m = o->length - 2;
    L->tokens = tp_corpus_tokens(L->C, o->part);
    L->sequences = o->train ? L->tokens / L->m : (L->tokens + L->m - 1) / L->m;
    L->at.steps = o->train ? L->sequences / o->batch : (L->sequences + o->batch - 1) / o->batch;
    if (!o->train && L->sequences > 0 && L->sequences < o->batch) L->o.batch = L->sequences;
    L->most = (int64_t)ceil(o->rate * (double)L->m);
    while ((int64_t)1 << (2 * L->half) < L->sequences) L->half++;
    return L->at.steps > 0 ||
           fail(L,
                "mlm: the %s part has %lld tokens, too few for %lld sequence%s of %lld; give more "
                "text, or lower the batch or the length",
                o->part == TP_TRAIN ? "training" : "held-out", (long long)L->tokens,
                (long long)(o->train ? o->batch : 1), o->train && o->batch > 1 ? "s" : "",
                (long long)o->length);
}

static bool allocate(tp_mlm *L)
{
    const size_t ids = (size_t)(L->o.batch * L->o.length);
    L->index = malloc((size_t)L->o.batch * sizeof *L->index);
    L->ids = malloc(ids * sizeof *L->ids);
    L->row = malloc(ids * sizeof *L->row);
    L->target = malloc(ids * sizeof *L->target);
    L->place = malloc((size_t)L->m * sizeof *L->place);
    L->stream = malloc((size_t)L->m * sizeof *L->stream);
    L->special = calloc((size_t)L->C->size, 1);
    if (!L->index || !L->ids || !L->row || !L->target || !L->place || !L->stream || !L->special)
        return fail(L, "mlm: out of memory for batches of %zu ids", ids);
    for (int k = 0; k < TP_BPE_SPECIALS; k++)
        if (L->C->special[k] >= 0) L->special[L->C->special[k]] = 1;
    return true;
}

tp_mlm *tp_mlm_new(const tp_corpus *C, const tp_mlm_opts *o)
{
    if (!C) return NULL;
    tp_mlm *L = calloc(1, sizeof *L);
    if (!L) return &no_memory;
    L->C = C;
    L->o = *o;
    L->at.endless = o->train;
    L->keyed = -1;
    if (L->o.rate == 0) L->o.rate = 0.15;
    if (!check(L) || !divide(L) || !allocate(L)) L->at.steps = L->sequences = 0;
    return L;
}

void tp_mlm_free(tp_mlm *L)
{
    if (!L || L == &no_memory) return;
    free(L->index);
    free(L->ids);
    free(L->row);
    free(L->target);
    free(L->place);
    free(L->stream);
    free(L->special);
    free(L);
}

/* ---- the order of an epoch ---- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static void key_epoch(tp_mlm *L, int64_t epoch)
{
    tp_random r = tp_random_stream(L->o.seed, "mlm order", 0, (uint64_t)epoch);
    for (int k = 0; k < ROUNDS; k++) {
        const uint64_t high = tp_random_word(&r);
        L->key[k] = high << 32 | tp_random_word(&r);
    }
    L->keyed = epoch;
}

/* The sequence at place i of the epoch. */
static int64_t sequence_at(const tp_mlm *L, int64_t i)
{
    const uint64_t mask = ((uint64_t)1 << L->half) - 1;
    uint64_t x = (uint64_t)i;
    if (L->half == 0) return 0;
    do {
        uint64_t left = x >> L->half, right = x & mask;
        for (int k = 0; k < ROUNDS; k++) {
            const uint64_t next = left ^ (mix(right ^ L->key[k]) & mask);
            left = right;
            right = next;
        }
        x = left << L->half | right;
    } while (x >= (uint64_t)L->sequences);
    return (int64_t)x;
}

/* ---- masks ---- */

static int32_t ordinary_token(const tp_mlm *L, tp_random *r)
{
    for (;;) {
        const int32_t id = (int32_t)tp_random_below(r, L->C->size);
        if (!L->special[id]) return id;
    }
}

/* Makes position `at` of the batch a target. */
static void hide(tp_mlm *L, tp_mlm_batch *b, int32_t at, tp_random *r)
{
    const double u = tp_random_uniform(r);
    L->row[b->rows] = at;
    L->target[b->rows++] = L->ids[at];
    if (u < 0.8)
        L->ids[at] = L->C->special[TP_BPE_MASK];
    else if (u < 0.9)
        L->ids[at] = ordinary_token(L, r);
}

/* Leaves k random places of n, in order. */
static void choose(int32_t *place, int64_t n, int64_t k, tp_random *r)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < n && kept < k; i++)
        if (tp_random_below(r, n - i) < k - kept) place[kept++] = place[i];
}

/* Draws the targets of a sequence whose ids begin at `first`. */
static void mask(tp_mlm *L, tp_mlm_batch *b, int32_t first, tp_random r)
{
    int64_t n = 0;
    for (int64_t j = 1; j < L->o.length - 1; j++)
        if (!L->special[L->ids[first + j]]) L->place[n++] = first + (int32_t)j;
    if (L->o.exact) {
        const int64_t k = (int64_t)floor(L->o.rate * (double)n + tp_random_uniform(&r));
        const int64_t most = L->most < n ? L->most : n;
        const int64_t drawn = k < most ? k : most;
        choose(L->place, n, drawn, &r);
        for (int64_t i = 0; i < drawn; i++) hide(L, b, L->place[i], &r);
    } else {
        const double below = L->o.rate * 4294967296.0;
        for (int64_t i = 0; i < n; i++)
            if (tp_random_word(&r) < below) hide(L, b, L->place[i], &r);
    }
}

/* A batch without targets has no loss: one of its tokens becomes one. */
static bool need_target(tp_mlm *L, tp_mlm_batch *b)
{
    for (int64_t at = 0; at < b->n * b->length && b->rows == 0; at++) {
        tp_random r = tp_random_stream(L->o.seed, "mlm", (uint64_t)L->index[at / b->length],
                                       (uint64_t)b->epoch);
        if (!L->special[L->ids[at]]) hide(L, b, (int32_t)at, &r);
    }
    return b->rows > 0 ||
           fail(L,
                "mlm: batch %lld of epoch %lld has special tokens only; is the vocabulary that "
                "of the text?",
                (long long)b->step, (long long)b->epoch);
}

/* ---- batches ---- */

/* Reads sequence `index` to the ids from `first` on. */
static bool read(tp_mlm *L, int64_t index, int64_t first)
{
    char why[WHY];
    int32_t *ids = L->ids + first;
    const int64_t left = L->tokens - index * L->m, n = left < L->m ? left : L->m;
    if (!tp_corpus_read(L->C, L->o.part, index * L->m, n, L->stream, why, sizeof why))
        return fail(L, "%s", why);
    *ids++ = L->C->special[TP_BPE_BEGIN];
    for (int64_t j = 0; j < n; j++) *ids++ = L->stream[j];
    *ids++ = L->C->special[TP_BPE_END];
    for (int64_t j = n; j < L->m; j++) *ids++ = L->C->special[TP_BPE_PAD];
    return true;
}

static bool gather(tp_mlm *L, tp_mlm_batch *b)
{
    const int64_t first = L->at.step * L->o.batch, left = L->sequences - first;
    *b = (tp_mlm_batch){ .n = left < L->o.batch ? left : L->o.batch,
                         .length = L->o.length,
                         .epoch = L->at.epoch,
                         .step = L->at.step,
                         .index = L->index,
                         .ids = L->ids,
                         .row = L->row,
                         .target = L->target };
    for (int64_t i = 0; i < b->n; i++) {
        L->index[i] = L->o.train ? sequence_at(L, first + i) : first + i;
        if (!read(L, L->index[i], i * b->length)) return false;
        mask(L, b, (int32_t)(i * b->length),
             tp_random_stream(L->o.seed, "mlm", (uint64_t)L->index[i], (uint64_t)b->epoch));
    }
    if (b->rows == 0 && !need_target(L, b)) return false;
    b->targets = b->rows;
    while (L->o.padded && b->rows < L->o.batch * L->most) {
        L->row[b->rows] = 0;
        L->target[b->rows++] = -1;
    }
    return true;
}

bool tp_mlm_next(tp_mlm *L, tp_mlm_batch *b)
{
    if (!L) return false;
    if (L->why[0] || !tp__epochs_more(&L->at)) return false;
    if (L->o.train && L->keyed != L->at.epoch) key_epoch(L, L->at.epoch);
    if (!gather(L, b)) return false;
    L->at.step++;
    return true;
}

void tp_mlm_seek(tp_mlm *L, int64_t epoch, int64_t step)
{
    if (!L) return;
    if (!L->why[0]) tp__epochs_seek(&L->at, L->o.train ? epoch : 0, step);
}

int64_t tp_mlm_feed(tp_mlm *L, tp_tape *T, int64_t epoch, int64_t step,
                    tp_tensor slot[TP_MLM_SLOTS], int64_t *targets)
{
    if (!L) {
        tp_raise_here(T, TP_E_STATE, "mlm_feed: NULL was given in place of a loader");
        return 0;
    }
    tp_mlm_batch b;
    tp_mlm_seek(L, epoch, step);
    const bool got = tp_mlm_next(L, &b);
    if (L->why[0]) tp_raise(T, TP_E_VALUE, "%s", L->why);
    if (!got || !tp_ok(T)) return 0;
    tp_feed(T, &slot[0], TP_I32, TP_SHAPE(b.n, b.length), b.ids);
    tp_feed(T, &slot[1], TP_I32, TP_SHAPE(b.rows), b.row);
    tp_feed(T, &slot[2], TP_I32, TP_SHAPE(b.rows), b.target);
    if (targets) *targets = b.targets;
    return tp_ok(T) ? b.n : 0;
}

/* ---- queries ---- */

bool tp_mlm_ok(const tp_mlm *L)
{
    if (!L) return false;
    return !L->why[0];
}
const char *tp_mlm_why(const tp_mlm *L)
{
    if (!L) return "mlm: NULL was given in place of a reader";
    return L->why;
}
int64_t tp_mlm_steps(const tp_mlm *L)
{
    if (!L) return 0;
    return L->at.steps;
}
int64_t tp_mlm_sequences(const tp_mlm *L)
{
    if (!L) return 0;
    return L->sequences;
}
