/* lsh_attention.c - Reformer's attention among tokens hashed to the same or adjacent buckets.
 *
 *     y[i] = sum_e P[i,e] v[e]   P = dropout(softmax_e(x[i] key(x[e])))
 *
 * key(x) = x / sqrt(mean x^2 + 1e-6) / sqrt(D). The sum runs over the entries e that i sees in all
 * rounds: weighting rounds by the softmax of their log-sum-exp is one softmax over all rounds'
 * keys. Saves the sorted order of entries and, per query, the maximum of its logits and the
 * logarithm of the sum of e^(s - maximum): their sum would lose precision where a token sees only
 * itself, at -1e5. */
#include "tensor/geometry/lsh.h"

#include "autograd/ops/op_inner.h"

TP_KERNEL(lsh_attention_fwd);
TP_KERNEL(lsh_attention_bwd);
TP_WORK(lsh_attention_work);

static const int64_t most_buckets = INT64_C(1) << 20;

/* The largest integer whose square is at most n. */
static int64_t root(int64_t n)
{
    int64_t r = 0;
    for (int64_t bit = INT64_C(1) << 31; bit > 0; bit /= 2)
        if ((r + bit) * (r + bit) <= n) r += bit;
    return r;
}

void tp_lsh_buckets(int64_t n, int64_t n_max, int64_t chunk, int64_t buckets[2])
{
    int64_t power = 0;
    if (!buckets) return;
    buckets[0] = buckets[1] = 0;
    if (chunk < 1 || n <= chunk) return;
    while (n / chunk >> power > 0) power++; /* bits of 2 (n / chunk), minus 1 */
    const int64_t side = n_max > 0 ? root(n_max / chunk) : 0;
    const int64_t most = 2 * (side > chunk ? side : chunk), half = power / 2;
    const bool two = power < 62 && INT64_C(1) << power > most;
    buckets[0] = INT64_C(1) << (two ? half : power);
    if (two) buckets[1] = INT64_C(1) << (power - half);
}

static tp_code check_cfg(tp_infer *q)
{
    const tp_lsh_attn_cfg *cfg = q->attr;
    const int64_t *f = cfg->buckets;
    if (cfg->heads < 1) return tp_fail(q, TP_E_VALUE, "heads must be positive, not %d", cfg->heads);
    if (q->x[LSH_QK].dim[2] % cfg->heads)
        return tp_fail(q, TP_E_SHAPE, "a width of %lld does not divide into %d heads",
                       (long long)q->x[LSH_QK].dim[2], cfg->heads);
    if (cfg->chunk < 0 || cfg->chunk > INT32_MAX || cfg->longest < 0)
        return tp_fail(q, TP_E_VALUE,
                       "chunk must be from 0 to 2^31 - 1, longest not negative: %lld, %lld",
                       (long long)cfg->chunk, (long long)cfg->longest);
    if (!(cfg->dropout >= 0.0 && cfg->dropout < 1.0))
        return tp_fail(q, TP_E_VALUE, "dropout must be in [0, 1), not %g", cfg->dropout);
    if (cfg->rounds < 0 || cfg->rounds > 1024)
        return tp_fail(q, TP_E_VALUE, "rounds must be from 0 to 1024, not %d", cfg->rounds);
    for (int i = 0; i < 2; i++)
        if (f[i] < 0 || f[i] % 2 || f[i] > most_buckets)
            return tp_fail(q, TP_E_VALUE,
                           "factors of buckets must be even and at most 2^20, not %lld",
                           (long long)f[i]);
    if ((!f[0] && f[1]) || (f[1] && f[0] * f[1] > most_buckets))
        return tp_fail(q, TP_E_VALUE,
                       "buckets must be { n, 0 } or { n, m } with n m <= 2^20, not { %lld, %lld }",
                       (long long)f[0], (long long)f[1]);
    return TP_OK;
}

static tp_code check_sizes(tp_infer *q, const tp_lsh *g)
{
    if (g->entries >= INT32_MAX)
        return tp_fail(q, TP_E_SHAPE, "%lld tokens in %lld rounds are more than 2^31 - 2 entries",
                       (long long)g->tokens, (long long)g->rounds);
    if (g->chunks * g->chunk != g->tokens)
        return tp_fail(q, TP_E_SHAPE,
                       "%lld tokens are not a multiple of chunk = %lld: pad them, with a mask",
                       (long long)g->tokens, (long long)g->chunk);
    if (g->buckets > most_buckets)
        return tp_fail(q, TP_E_VALUE,
                       "%lld buckets are more than 2^20: set buckets or a larger chunk",
                       (long long)g->buckets);
    return TP_OK;
}

static tp_code check_rest(tp_infer *q, const tp_lsh *g)
{
    const tp_view *rot = &q->x[LSH_ROTATIONS], *mask = &q->x[LSH_MASK];
    const int64_t want[4] = { g->heads, g->dim, g->rounds, g->columns };
    bool fits = rot->ndim == 4;
    for (int i = 0; fits && i < 4; i++) fits = rot->dim[i] == want[i];
    if (!tp_absent(rot) && g->chunks > 1 && !fits)
        return tp_fail(q, TP_E_SHAPE,
                       "rotations must be [H,D,rounds,sum of buckets / 2] = [%lld,%lld,%lld,%lld]",
                       (long long)want[0], (long long)want[1], (long long)want[2],
                       (long long)want[3]);
    if (!tp_absent(mask) &&
        (mask->ndim != 2 || mask->dim[0] != g->batch || mask->dim[1] != g->tokens))
        return tp_fail(q, TP_E_SHAPE, "mask must be [B,N] = [%lld,%lld]", (long long)g->batch,
                       (long long)g->tokens);
    return TP_OK;
}

static tp_code lsh_shape(tp_infer *q)
{
    const tp_view *qk = &q->x[LSH_QK], *v = &q->x[LSH_V];
    if (qk->ndim != 3 || !tp__same_shape(qk, v))
        return tp_fail(q, TP_E_SHAPE, "qk and v must both be [B,N,H*D]");
    tp_code code = check_cfg(q);
    if (code != TP_OK) return code;
    if (qk->dim[1] >= INT32_MAX || qk->dim[2] >= INT32_MAX)
        return tp_fail(q, TP_E_SHAPE, "there may be at most 2^31 - 2 tokens and channels");
    const tp_lsh g = tp__lsh(q->x, q->attr);
    code = check_sizes(q, &g);
    if (code == TP_OK) code = check_rest(q, &g);
    q->y[LSH_Y] = *qk;
    q->y[LSH_ORDER] =
        (tp_view){ .dtype = TP_I32, .ndim = 3, .dim = { g.batch, g.heads, g.entries } };
    q->y[LSH_STATS] = (tp_view){ .dtype = tp__sum_dtype(qk->dtype),
                                 .ndim = 4,
                                 .dim = { g.batch, g.heads, g.tokens, 2 } };
    return code;
}

/* q k^T, P v and products with the rotations. */
static double lsh_macs(const tp_infer *q)
{
    const tp_lsh g = tp__lsh(q->x, q->attr);
    const double each = (double)(g.rounds * (2 * g.keys + g.columns));
    return q->x[LSH_QK].numel ? each * (double)q->x[LSH_QK].numel : 0.0;
}

/* Masks every third token, and the last two thirds of the batch's second row. */
static void fill_mask(int i, tp_view *x)
{
    if (i != LSH_MASK) return;
    const int64_t n = x->dim[1];
    for (int64_t e = 0; e < x->numel; e++) tp_st(x, e, e / n == 1 ? e % n < n / 3 : e % 3 != 1);
}

#define IN(B, N, C) TP_DIMS(B, N, C), TP_DIMS(B, N, C)
#define CFG(...)    TP_ATTR(tp_lsh_attn_cfg, .heads = __VA_ARGS__)
static const tp_gradcase lsh_cases[] = {
    { "two rounds", .in = { IN(2, 12, 6), TP_DIMS(2, 3, 2, 4) },
      .attr = CFG(2, .chunk = 4, .buckets = { 8 }) },
    { "one round, two chunks", .in = { IN(1, 8, 4), TP_DIMS(1, 4, 1, 1) },
      .attr = CFG(1, .chunk = 4, .rounds = 1, .buckets = { 2 }) },
    { "two factors, three rounds", .in = { IN(1, 12, 8), TP_DIMS(2, 4, 3, 3) },
      .attr = CFG(2, .chunk = 2, .rounds = 3, .buckets = { 2, 4 }) },
    { "mask", .in = { IN(2, 12, 6), TP_DIMS(2, 3, 2, 2), TP_DIMS(2, 12) },
      .attr = CFG(2, .chunk = 3, .buckets = { 4 }), .masks = 1 << LSH_MASK, .fill = fill_mask },
    { "own rotations and buckets", .in = { IN(2, 15, 4), { 0 }, TP_DIMS(2, 15) },
      .attr = CFG(1, .chunk = 3, .longest = 30), .masks = 1 << LSH_MASK, .fill = fill_mask },
    { "chunks of one", .in = { IN(1, 5, 2) }, .attr = CFG(1, .chunk = 1) },
    { "one chunk", .in = { IN(2, 7, 6), { 0 }, TP_DIMS(2, 7) }, .attr = CFG(2),
      .masks = 1 << LSH_MASK, .fill = fill_mask },
    { "one token", .in = { IN(2, 1, 3) }, .attr = CFG(1) },
    { "several tiles", .in = { IN(1, 140, 4) }, .attr = CFG(2, .chunk = 70, .rounds = 2) },
    { "a chunk of several tiles", .in = { IN(1, 70, 3) }, .attr = CFG(1, .chunk = 100) },
    { "wide heads", .in = { IN(1, 8, 70) }, .attr = CFG(1, .chunk = 4, .rounds = 1) },
    { "many chunks", .in = { IN(1, 270, 4) },
      .attr = CFG(2, .chunk = 10, .rounds = 4, .buckets = { 16, 8 }) },
    { "dropout", .in = { IN(2, 12, 6), TP_DIMS(2, 3, 2, 4) },
      .attr = CFG(2, .chunk = 4, .buckets = { 8 }, .dropout = 0.4) },
    { "dropout, mask, own rotations", .in = { IN(2, 15, 4), { 0 }, TP_DIMS(2, 15) },
      .attr = CFG(2, .chunk = 3, .rounds = 3, .dropout = 0.3), .masks = 1 << LSH_MASK,
      .fill = fill_mask },
    { "dropout, one chunk of several tiles", .in = { IN(2, 70, 3) },
      .attr = CFG(1, .chunk = 100, .dropout = 0.2) },
    { "dropout, several tiles", .in = { IN(1, 140, 4) },
      .attr = CFG(2, .chunk = 70, .dropout = 0.5) },
    { "no batch", .in = { IN(0, 8, 4) }, .attr = CFG(1, .chunk = 4) },
    { "no tokens", .in = { IN(2, 0, 4) }, .attr = CFG(1, .chunk = 4) },
    { 0 },
};
#undef IN
#undef CFG

const tp_op tp_op_lsh_attention = {
    .name = "lsh_attention",
    .doc = "attention among tokens in neighbouring hash buckets, queries as keys; dropout; tiled",
    .nx = LSH_NX,
    .inputs = "qk, v, rotations, mask",
    .takes = { [LSH_MASK] = TP_MASKS },
    .ny = LSH_NY, /* y; entry order and softmax sums for backward */
    .attr_size = sizeof(tp_lsh_attn_cfg),
    .saves = TP_SAVE_X(LSH_QK) | TP_SAVE_X(LSH_V) | TP_SAVE_X(LSH_MASK) | TP_SAVE_Y(LSH_Y) |
             TP_SAVE_Y(LSH_ORDER) | TP_SAVE_Y(LSH_STATS),
    .optional = 1u << LSH_ROTATIONS | 1u << LSH_MASK,
    .constant = 1u << LSH_ROTATIONS | 1u << LSH_MASK,
    .exact = 1u << LSH_ROTATIONS,
    .flags = TP_RANDOM | TP_COMPUTES,
    .shape = lsh_shape,
    .macs = lsh_macs,
    .forward = TP_KERNELS(lsh_attention_fwd),
    .backward = TP_KERNELS(lsh_attention_bwd),
    .work = TP_WORKS(lsh_attention_work),
    .cases = lsh_cases,
};

tp_tensor tp_lsh_attention(tp_tape *T, tp_tensor qk, tp_tensor v, tp_tensor rotations,
                           tp_tensor mask, tp_lsh_attn_cfg cfg)
{
    return tp_apply(T, &tp_op_lsh_attention, &cfg, qk, v, rotations, mask);
}
