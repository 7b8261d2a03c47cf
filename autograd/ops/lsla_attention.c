/* lsla_attention.c - light self-limited attention in windows of a map.
 *
 *     y = (dropout(softmax(E (q k^T) + inner + mask)) + outer) v       E elementwise, or a number
 *
 * Backward recomputes the scores, and the probabilities from the log-sum-exp (a second, hidden
 * output [B,H,N]), and computes all gradients in one pass over each window. If k and v are also the
 * input of q's projection, the tape adds up the three terms. */
#include <math.h>

#include "autograd/ops/op_inner.h"
#include "tensor/geometry/lsla.h"

TP_KERNEL(lsla_attention_fwd);
TP_KERNEL(lsla_attention_bwd);
TP_WORK(lsla_attention_work);

static tp_code check_cfg(tp_infer *q, const tp_lsla_attn_cfg *c)
{
    if (c->heads < 1 || c->window < 1 || c->height < 0 || c->width < 0)
        return tp_fail(q, TP_E_VALUE,
                       "heads and window must be positive, height and width not negative: "
                       "%d, %lld, %lld, %lld",
                       c->heads, (long long)c->window, (long long)c->height, (long long)c->width);
    if (c->heads > 1 << 16 || c->window > 1 << 10 || c->height > 1 << 30 || c->width > 1 << 30)
        return tp_fail(q, TP_E_VALUE,
                       "heads must be at most 2^16, window 2^10, height and width 2^30: %d, %lld, "
                       "%lld, %lld",
                       c->heads, (long long)c->window, (long long)c->height, (long long)c->width);
    if (c->height % c->window != 0 || c->width % c->window != 0)
        return tp_fail(q, TP_E_SHAPE, "a map of %lld x %lld does not divide into windows of %lld",
                       (long long)c->height, (long long)c->width, (long long)c->window);
    if (c->shift < 0 || c->shift >= c->window)
        return tp_fail(q, TP_E_VALUE, "shift must be between 0 and the window, %lld, not %lld",
                       (long long)c->window, (long long)c->shift);
    if (!isfinite(c->scale)) return tp_fail(q, TP_E_VALUE, "scale must be finite");
    if (!(c->dropout >= 0.0 && c->dropout < 1.0))
        return tp_fail(q, TP_E_VALUE, "dropout must be in [0, 1), not %g", c->dropout);
    return TP_OK;
}

static tp_code check_shape(tp_infer *q, int i, const char *name, int64_t rows, int64_t cols)
{
    const tp_view *x = &q->x[i];
    if (tp_absent(x) || (x->ndim == 2 && x->dim[0] == rows && x->dim[1] == cols)) return TP_OK;
    return tp_fail(q, TP_E_SHAPE, "%s must be [%lld,%lld]", name, (long long)rows, (long long)cols);
}

static tp_code lsla_shape(tp_infer *q)
{
    const tp_lsla_attn_cfg *c = q->attr;
    const tp_view *x = &q->x[LSLA_Q];
    tp_code code = check_cfg(q, c);
    if (code != TP_OK) return code;
    if (x->ndim != 3 || x->dim[1] != c->height * c->width || !tp__same_shape(x, &q->x[LSLA_K]) ||
        !tp__same_shape(x, &q->x[LSLA_V]))
        return tp_fail(q, TP_E_SHAPE, "q, k and v must be [B,N,H*D] with N = %lld x %lld",
                       (long long)c->height, (long long)c->width);
    if (x->dim[2] % c->heads != 0)
        return tp_fail(q, TP_E_SHAPE, "a width of %lld does not divide into %d heads",
                       (long long)x->dim[2], c->heads);
    const tp_lsla g = tp__lsla(q->x, c);
    code = check_shape(q, LSLA_SCALE, "scale", g.n, g.n);
    if (code == TP_OK) code = check_shape(q, LSLA_INNER, "inner", g.table, g.heads);
    if (code == TP_OK) code = check_shape(q, LSLA_OUTER, "outer", g.table, g.heads);
    q->draws = c->dropout > 0.0;
    q->y[0] = *x;
    q->y[1] = (tp_view){ .dtype = tp__sum_dtype(x->dtype),
                         .ndim = 3,
                         .dim = { x->dim[0], c->heads, x->dim[1] } };
    return code;
}

/* Two products: q k^T, and one with v for both parts of y. */
static double lsla_macs(const tp_infer *q)
{
    const tp_lsla g = tp__lsla(q->x, q->attr);
    return 2.0 * (double)q->x[LSLA_Q].numel * (double)g.n;
}

/* q, k, v [B,N,C]; scale and tables of window w and h heads if s, i, o are 1. */
#define IN(B, N, C, w, h, s, i, o)                                                                 \
    TP_LIST(TP_DIMS(B, N, C), TP_DIMS(B, N, C), TP_DIMS(B, N, C),                                  \
            { (s) ? 2 : 0, { (w) * (w), (w) * (w) } },                                             \
            { (i) ? 2 : 0, { (2 * (w)-1) * (2 * (w)-1), h } },                                     \
            { (o) ? 2 : 0, { (2 * (w)-1) * (2 * (w)-1), h } })
#define CFG(...) TP_ATTR(const tp_lsla_attn_cfg, .heads = __VA_ARGS__)

static const tp_gradcase lsla_cases[] = {
    { "all", .in = IN(2, 24, 4, 2, 2, 1, 1, 1),
      .attr = CFG(2, .height = 4, .width = 6, .window = 2) },
    { "shifted", .in = IN(1, 36, 2, 3, 1, 1, 1, 1),
      .attr = CFG(1, .height = 6, .width = 6, .window = 3, .shift = 1) },
    { "shifted, outer bias masked", .in = IN(1, 24, 4, 2, 2, 1, 1, 1),
      .attr = CFG(2, .height = 6, .width = 4, .window = 2, .shift = 1, .mask_outer = true) },
    { "fixed scale", .in = IN(1, 8, 6, 2, 2, 0, 1, 1),
      .attr = CFG(2, .height = 2, .width = 4, .window = 2) },
    { "a scale, inner only", .in = IN(1, 9, 2, 3, 1, 0, 1, 0),
      .attr = CFG(1, .height = 3, .width = 3, .window = 3, .scale = 0.6) },
    { "outer only", .in = IN(1, 9, 2, 3, 1, 1, 0, 1),
      .attr = CFG(1, .height = 3, .width = 3, .window = 3) },
    { "no bias", .in = IN(2, 4, 3, 2, 1, 1, 0, 0),
      .attr = CFG(1, .height = 2, .width = 2, .window = 2) },
    { "windows of one", .in = IN(2, 6, 4, 1, 2, 1, 1, 1),
      .attr = CFG(2, .height = 2, .width = 3, .window = 1) },
    { "more rows of windows than slices", .in = IN(3, 28, 2, 2, 1, 1, 1, 1),
      .attr = CFG(1, .height = 14, .width = 2, .window = 2, .shift = 1) },
    { "heads of 8", .in = IN(1, 32, 16, 4, 2, 1, 1, 1),
      .attr = CFG(2, .height = 8, .width = 4, .window = 4, .shift = 1, .mask_outer = true) },
    { "whole heads, a row of keys left over", .in = IN(1, 18, 16, 3, 2, 1, 1, 1),
      .attr = CFG(2, .height = 6, .width = 3, .window = 3, .shift = 1) },
    { "dropout", .in = IN(2, 24, 4, 2, 2, 1, 1, 1),
      .attr = CFG(2, .height = 4, .width = 6, .window = 2, .dropout = 0.3) },
    { "dropout, shifted, outer bias masked", .in = IN(1, 36, 16, 3, 2, 0, 1, 1),
      .attr = CFG(2, .height = 6, .width = 6, .window = 3, .shift = 1, .mask_outer = true,
                  .dropout = 0.5) },
    { "dropout, no bias", .in = IN(2, 32, 6, 4, 1, 1, 0, 0),
      .attr = CFG(1, .height = 8, .width = 4, .window = 4, .dropout = 0.1) },
    { "no batch", .in = IN(0, 4, 2, 2, 1, 1, 1, 1),
      .attr = CFG(1, .height = 2, .width = 2, .window = 2) },
    { "no batch, heads of 8", .in = IN(0, 4, 8, 2, 1, 1, 1, 1),
      .attr = CFG(1, .height = 2, .width = 2, .window = 2) },
    { "no map", .in = IN(2, 0, 2, 2, 1, 1, 1, 1),
      .attr = CFG(1, .height = 2, .width = 0, .window = 2) },
    { 0 },
};

const tp_op tp_op_lsla_attention = {
    .name = "lsla_attention",
    .doc = "window attention with a learned scale and a bias before and after the softmax; dropout",
    .nx = LSLA_NX,
    .inputs = "q, k, v, scale, inner, outer",
    .ny = 2, /* y, and the log-sum-exp for backward */
    .attr_size = sizeof(tp_lsla_attn_cfg),
    .saves = ((1u << LSLA_NX) - 1) | TP_SAVE_Y(1),
    .optional = 1u << LSLA_SCALE | 1u << LSLA_INNER | 1u << LSLA_OUTER,
    .flags = TP_COMPUTES,
    .shape = lsla_shape,
    .macs = lsla_macs,
    .forward = TP_KERNELS(lsla_attention_fwd),
    .backward = TP_KERNELS(lsla_attention_bwd),
    .work = TP_WORKS(lsla_attention_work),
    .cases = lsla_cases,
};

tp_tensor tp_lsla_attention(tp_tape *T, tp_tensor q, tp_tensor k, tp_tensor v, tp_tensor scale,
                            tp_tensor inner, tp_tensor outer, tp_lsla_attn_cfg cfg)
{
    return tp_apply(T, &tp_op_lsla_attention, &cfg, q, k, v, scale, inner, outer);
}
