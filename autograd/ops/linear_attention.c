/* linear_attention.c - attention as sums of features.
 *
 *     y[i] = phi(q[i]) sum_j phi(k[j]) v[j]^T / (phi(q[i]) sum_j phi(k[j]))
 *
 * Two hidden outputs hold the sums and a few numbers per row, so backward recomputes features but
 * no sums. */
#include "tensor/geometry/linear_attention.h"

#include "autograd/ops/op_inner.h"

TP_KERNEL(linear_attention_fwd);
TP_KERNEL(linear_attention_bwd);
TP_WORK(linear_attention_work);

static tp_code check_cfg(tp_infer *q)
{
    const tp_linear_attn_cfg *cfg = q->attr;
    if (cfg->heads < 1) return tp_fail(q, TP_E_VALUE, "heads must be positive, not %d", cfg->heads);
    if (q->x[LIN_Q].dim[2] % cfg->heads)
        return tp_fail(q, TP_E_SHAPE, "a width of %lld does not divide into %d heads",
                       (long long)q->x[LIN_Q].dim[2], cfg->heads);
    if ((unsigned)cfg->features > TP_FEATURES_RELU)
        return tp_fail(q, TP_E_VALUE, "unknown features %d", (int)cfg->features);
    if (!isfinite(cfg->scale)) return tp_fail(q, TP_E_VALUE, "scale must be finite");
    if (!(cfg->eps >= 0.0 && cfg->eps < 1.0))
        return tp_fail(q, TP_E_VALUE, "eps must be at least 0 and less than 1, not %g", cfg->eps);
    return TP_OK;
}

static tp_code check_projection(tp_infer *q)
{
    const tp_linear_attn_cfg *cfg = q->attr;
    const tp_view *w = &q->x[LIN_PROJECTION];
    const int64_t D = q->x[LIN_Q].dim[2] / cfg->heads;
    if (cfg->features == TP_FEATURES_ELU)
        return tp_absent(w) ? TP_OK : tp_fail(q, TP_E_VALUE, "TP_FEATURES_ELU takes no projection");
    if (tp_absent(w) || w->ndim != 2 || w->dim[1] != D || w->dim[0] < 1)
        return tp_fail(q, TP_E_SHAPE, "projection must be [M,D] = [M,%lld]", (long long)D);
    return TP_OK;
}

static tp_code check_inputs(tp_infer *q)
{
    const tp_view *x = q->x, *mask = &q->x[LIN_MASK];
    for (int i = LIN_Q; i <= LIN_V; i++) {
        if (x[i].ndim != 3 || x[i].dim[0] != x[LIN_Q].dim[0] || x[i].dim[2] != x[LIN_Q].dim[2])
            return tp_fail(q, TP_E_SHAPE, "q must be [B,N,H*D], k and v [B,S,H*D]");
        if (x[i].dim[1] >= INT32_MAX || x[i].dim[2] >= INT32_MAX)
            return tp_fail(q, TP_E_SHAPE, "there may be at most 2^31 - 2 tokens and channels");
    }
    if (x[LIN_K].dim[1] != x[LIN_V].dim[1])
        return tp_fail(q, TP_E_SHAPE, "k and v must be of one shape");
    if (tp_absent(mask)) return TP_OK;
    if (mask->ndim != 2 || mask->dim[0] != x[LIN_K].dim[0] || mask->dim[1] != x[LIN_K].dim[1])
        return tp_fail(q, TP_E_SHAPE, "mask must be [B,S] = [%lld,%lld]",
                       (long long)x[LIN_K].dim[0], (long long)x[LIN_K].dim[1]);
    return TP_OK;
}

static tp_code linear_attention_shape(tp_infer *q)
{
    tp_code code = check_inputs(q);
    if (code == TP_OK) code = check_cfg(q);
    if (code == TP_OK) code = check_projection(q);
    if (code != TP_OK) return code;
    const tp_lin g = tp__lin(q->x, q->attr);
    const tp_dtype dt = tp__sum_dtype(q->x[LIN_Q].dtype);
    q->y[LIN_Y] = q->x[LIN_Q];
    q->y[LIN_SUMS] =
        (tp_view){ .dtype = dt, .ndim = 4, .dim = { g.batch, g.heads, g.features, g.columns } };
    q->y[LIN_ROWS] =
        (tp_view){ .dtype = dt, .ndim = 3, .dim = { g.batch, g.heads, 2 * g.queries + g.keys } };
    return TP_OK;
}

/* Features, sums and results. */
static double linear_attention_macs(const tp_infer *q)
{
    const tp_linear_attn_cfg *cfg = q->attr;
    const tp_lin g = tp__lin(q->x, cfg);
    const double each = (double)(g.dim + (cfg->features == TP_FEATURES_ELU ? 0 : g.dim));
    if (q->x[LIN_Q].dim[0] == 0 || q->x[LIN_Q].dim[2] == 0) return 0.0;
    return (double)g.batch * (double)g.heads * (double)(g.queries + g.keys) * each *
           (double)g.features;
}

/* Masks every third token and the batch's whole second row. */
static void fill_mask(int i, tp_view *x)
{
    if (i != LIN_MASK) return;
    for (int64_t e = 0; e < x->numel; e++) tp_st(x, e, e / x->dim[1] != 1 && e % 3 != 1);
}

#define IN(B, N, S, C) TP_DIMS(B, N, C), TP_DIMS(B, S, C), TP_DIMS(B, S, C)
#define CFG(...)       TP_ATTR(tp_linear_attn_cfg, .heads = __VA_ARGS__)
/* With eps 0 nothing would depend on the maxima, which get no gradient. */
#define POSITIVE .features = TP_FEATURES_POSITIVE, .eps = 1e-13
static const tp_gradcase linear_attention_cases[] = {
    { "elu", .in = { IN(2, 5, 5, 6) }, .attr = CFG(2) },
    { "elu, mask", .in = { IN(2, 4, 7, 6), { 0 }, TP_DIMS(2, 7) }, .attr = CFG(2),
      .masks = 1 << LIN_MASK, .fill = fill_mask },
    { "elu, normalised, mask", .in = { IN(2, 4, 7, 6), { 0 }, TP_DIMS(2, 7) },
      .attr = CFG(2, .normalise = true), .masks = 1 << LIN_MASK, .fill = fill_mask },
    { "elu, a scale, several tiles", .in = { IN(1, 70, 300, 3) }, .attr = CFG(1, .scale = 0.3) },
    { "elu, wide heads", .in = { IN(1, 3, 4, 70) }, .attr = CFG(1, .normalise = true) },
    { "positive", .in = { IN(2, 5, 6, 8), TP_DIMS(7, 4) }, .attr = CFG(2, POSITIVE) },
    { "positive, mask, a scale", .in = { IN(2, 5, 6, 8), TP_DIMS(7, 4), TP_DIMS(2, 6) },
      .attr = CFG(2, POSITIVE, .scale = 0.4), .masks = 1 << LIN_MASK, .fill = fill_mask },
    { "positive, several tiles", .in = { IN(1, 70, 300, 8), TP_DIMS(70, 4) },
      .attr = CFG(2, POSITIVE) },
    { "positive, wide heads", .in = { IN(1, 3, 4, 70), TP_DIMS(5, 70) }, .attr = CFG(1, POSITIVE) },
    { "relu", .in = { IN(2, 5, 6, 8), TP_DIMS(7, 4), TP_DIMS(2, 6) },
      .attr = CFG(2, .features = TP_FEATURES_RELU), .masks = 1 << LIN_MASK, .fill = fill_mask },
    { "relu, several tiles", .in = { IN(1, 65, 66, 4), TP_DIMS(65, 4) },
      .attr = CFG(1, .features = TP_FEATURES_RELU, .eps = 0.1) },
    { "no keys", .in = { IN(2, 3, 0, 4) }, .attr = CFG(2, .normalise = true) },
    { "no queries", .in = { IN(2, 0, 3, 4), TP_DIMS(3, 2) }, .attr = CFG(2, POSITIVE) },
    { "no batch", .in = { IN(0, 3, 3, 4) }, .attr = CFG(2) },
    { 0 },
};
#undef IN
#undef CFG
#undef POSITIVE

const tp_op tp_op_linear_attention = {
    .name = "linear_attention",
    .doc =
        "phi(q) sum phi(k) v^T, phi: elu + 1, positive or ReLU features, normalised or not; tiled",
    .nx = LIN_NX,
    .inputs = "q, k, v, projection, mask",
    .takes = { [LIN_MASK] = TP_MASKS },
    .ny = LIN_NY, /* y; sums and row numbers for backward */
    .attr_size = sizeof(tp_linear_attn_cfg),
    .saves = ((1u << LIN_NX) - 1) | TP_SAVE_Y(LIN_Y) | TP_SAVE_Y(LIN_SUMS) | TP_SAVE_Y(LIN_ROWS),
    .optional = 1u << LIN_PROJECTION | 1u << LIN_MASK,
    .constant = 1u << LIN_PROJECTION | 1u << LIN_MASK,
    .exact = 1u << LIN_PROJECTION,
    .flags = TP_COMPUTES,
    .shape = linear_attention_shape,
    .macs = linear_attention_macs,
    .forward = TP_KERNELS(linear_attention_fwd),
    .backward = TP_KERNELS(linear_attention_bwd),
    .work = TP_WORKS(linear_attention_work),
    .cases = linear_attention_cases,
};

tp_tensor tp_linear_attention(tp_tape *T, tp_tensor q, tp_tensor k, tp_tensor v,
                              tp_tensor projection, tp_tensor mask, tp_linear_attn_cfg cfg)
{
    return tp_apply(T, &tp_op_linear_attention, &cfg, q, k, v, projection, mask);
}
