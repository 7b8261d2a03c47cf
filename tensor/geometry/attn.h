/* attn.h - the geometry of attention: what a query sees, tiles, stripes, and the scratch of a
 * thread. Shared by the op files, which ask for memory, and the CPU kernels, which use it.
 *
 * Tiles of 64 queries by 512 keys stay in a 1 MB second-level cache, two of them in backward, and
 * are large enough for matrix products at nearly full rate; more queries would waste more of the
 * product with relative positions. Scratch does not grow with the number of queries or keys.
 *
 * Backward is cut into stripes of queries and of keys, equally long, laid out so that the causal
 * diagonal runs through their corners: keys are shifted by `pad`, query i stands at i + S - N +
 * pad, and S - N + pad is a multiple of the stripe. The pairs (query stripe I, key stripe J) with I
 * + J equal to c modulo `phases` form phase c: no two of them share a query or a key, so that they
 * run in parallel and write dq, dk and dv without partial sums. With relative positions the phases
 * do not wrap around: then the I - J of a phase differ by two or more, and no two pairs share a
 * distance either. The cut follows from the shapes alone, so results do not depend on the number
 * of threads. */
#ifndef TP_ATTN_H
#define TP_ATTN_H

#include <tapegrad/op.h>
#include <tapegrad/ops.h>

enum { TP_ATTN_QUERIES = 64, TP_ATTN_KEYS = 512, TP_ATTN_STRIPE = 256, TP_ATTN_TASKS = 16 };

/* Where the pieces of a thread's scratch begin, in elements. m, n: queries and keys of a tile. */
typedef struct tp_attn_scratch {
    int64_t ld;           /* of score tiles: an odd multiple of 16, kind to caches           */
    int64_t scores;       /* [m][ld]: logits, probabilities; backward: their gradients       */
    int64_t other;        /* [m][ld]: backward: gradients of the probabilities               */
    int64_t q, q_pos;     /* [m][D]: scaled queries, with r_w and r_r if there are positions */
    int64_t out, out_pos; /* [m][D]: result; backward: query gradient by keys, by positions  */
    int64_t dout;         /* [m][D]: backward: gradient of the result                        */
    int64_t row;          /* [2][m]: running maximum and sum; backward: lse, rowsum(dO * O)  */
    int64_t keep;         /* [n]: dropout factors of a row                                   */
    int64_t pos, dpos;    /* [n + m][D]: positions by decreasing distance, their gradients   */
    int64_t total;
} tp_attn_scratch;

typedef struct tp_attn_cut {
    int64_t stripe, pad;    /* rows of a stripe; shift of the keys */
    int64_t nq, nk, phases; /* stripes of queries and keys         */
} tp_attn_cut;

typedef struct tp_attn {
    int64_t batch, heads, queries, keys, dim, width; /* B, H, N, S, D, H * D              */
    int64_t ahead, span; /* S - N; 0 or the largest number of keys a query sees          */
    bool causal, positions;
    bool shared; /* a bias [H,N,S] or positions: their gradients sum over the batch */
    int64_t tile_m, tile_n;
    tp_attn_scratch at;
    tp_attn_cut cut; /* backward only */
} tp_attn;

/* Query i sees keys first <= j < end, but for the mask. */
static inline int64_t tp__first_key(const tp_attn *a, int64_t i)
{
    const int64_t first = i + a->ahead + 1 - a->span;
    return a->span && first > 0 ? first : 0;
}

static inline int64_t tp__end_key(const tp_attn *a, int64_t i)
{
    const int64_t end = i + a->ahead + 1;
    return !a->causal || end > a->keys ? a->keys : end > 0 ? end : 0;
}

static inline int64_t tp__attn_take(tp_attn_scratch *w, int64_t n)
{
    const int64_t at = w->total;
    w->total += (n + 15) / 16 * 16;
    return at;
}

static inline tp_attn_scratch tp__attn_scratch(const tp_attn *a, bool backward)
{
    const int64_t m = a->tile_m, n = a->tile_n, d = a->dim;
    tp_attn_scratch w = { .ld = (n + (a->positions ? m : 0) + 15) / 16 * 16 };
    if (w.ld / 16 % 2 == 0) w.ld += 16;
    w.scores = tp__attn_take(&w, m * w.ld);
    w.q = tp__attn_take(&w, m * d);
    w.out = tp__attn_take(&w, m * d);
    w.row = tp__attn_take(&w, 2 * m);
    w.keep = tp__attn_take(&w, n);
    if (a->positions) {
        w.q_pos = tp__attn_take(&w, m * d);
        w.pos = tp__attn_take(&w, (n + m) * d);
    }
    if (backward) {
        w.other = tp__attn_take(&w, m * w.ld);
        w.dout = tp__attn_take(&w, m * d);
    }
    if (backward && a->positions) {
        w.out_pos = tp__attn_take(&w, m * d);
        w.dpos = tp__attn_take(&w, (n + m) * d);
    }
    return w;
}

/* Stripes so that a phase has about TP_ATTN_TASKS pairs, as far as there are TP_ATTN_STRIPE keys
 * for each.
 */
static inline tp_attn_cut tp__attn_cut(const tp_attn *a)
{
    const int64_t groups = a->heads * (a->shared ? 1 : a->batch);
    const int64_t most = a->queries > a->keys ? a->queries : a->keys;
    const int64_t parts = groups > 0 && groups < TP_ATTN_TASKS ? TP_ATTN_TASKS / groups : 1;
    const int64_t part = TP_ATTN_STRIPE * parts;
    tp_attn_cut c = { .stripe = TP_ATTN_STRIPE * (most > 0 ? (most + part - 1) / part : 1) };
    c.pad = (c.stripe - a->ahead % c.stripe) % c.stripe;
    c.nq = (a->queries + c.stripe - 1) / c.stripe;
    c.nk = (a->keys + c.pad + c.stripe - 1) / c.stripe;
    c.phases = a->positions ? c.nq + c.nk - 1 : c.nq > c.nk ? c.nq : c.nk;
    return c;
}

/* x: inputs of tp_attention (q, k, v, mask, bias) or tp_rel_attention (q, k, v, pos, r_w, r_r). */
static inline tp_attn tp__attn(const tp_view *x, const tp_attn_cfg *cfg, bool positions,
                               bool backward)
{
    const tp_view *q = &x[0], *k = &x[1];
    tp_attn a = {
        .batch = q->dim[0],
        .heads = cfg->heads,
        .queries = q->dim[1],
        .keys = k->dim[1],
        .dim = q->dim[2] / cfg->heads,
        .width = q->dim[2],
        .ahead = k->dim[1] - q->dim[1],
        .span = positions ? cfg->max_span : 0,
        .causal = positions || cfg->causal,
        .positions = positions,
        .shared = positions || x[4].ndim == 3,
        .tile_m = q->dim[1] < TP_ATTN_QUERIES ? q->dim[1] : TP_ATTN_QUERIES,
        .tile_n = k->dim[1] < TP_ATTN_KEYS ? k->dim[1] : TP_ATTN_KEYS,
    };
    a.at = tp__attn_scratch(&a, backward);
    if (backward) a.cut = tp__attn_cut(&a);
    return a;
}

/* Elements of scratch: each thread's, then (positions) parts [H][nq][2][D] of the gradients of r_w
 * and r_r, one for each query stripe. */
static inline int64_t tp__attn_elements(const tp_attn *a, int threads)
{
    return threads * a->at.total + (a->positions ? a->heads * a->cut.nq * 2 * a->dim : 0);
}

#endif
