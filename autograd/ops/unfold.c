/* unfold.c - windows of maps (im2col) and their sums (col2im), channels last.
 *
 *     unfold   y[b,o,p,(i,j,c)] = x[b, o stride - pad + i dilation, p stride - pad + j dilation, c]
 *     fold     the sum of all elements that unfold would take from a position
 *
 * unfold reads 0 outside. Each is the other's gradient. */
#include "tensor/geometry/unfold.h"
#include "autograd/ops/conv.h"

static tp_code check_cfg(tp_infer *q)
{
    static const char *const name[] = { "kernel", "stride", "pad", "dilation" };
    const tp_unfold_cfg *cfg = q->attr;
    const int64_t *const value[] = { cfg->kernel, cfg->stride, cfg->pad, cfg->dilation };
    return tp__expect_steps(q, 4, name, value, 2);
}

/* Fails unless windows fit into each non-empty axis of the map. */
static tp_code check_room(tp_infer *q, const tp__unfold *g)
{
    for (int i = 0; i < 2; i++)
        if (tp__expect_room(q, &g->axis[i], 1 + i) != TP_OK) return TP_E_SHAPE;
    return TP_OK;
}

static tp_code unfold_shape(tp_infer *q)
{
    const tp_view *x = &q->x[0];
    if (check_cfg(q) != TP_OK) return TP_E_VALUE;
    if (x->ndim != 4) return tp_fail(q, TP_E_SHAPE, "x must be [B,H,W,C]");
    if (x->dim[1] > MOST || x->dim[2] > MOST)
        return tp_fail(q, TP_E_SHAPE, "sizes must be below 2^31");
    const tp__unfold g = tp__unfold_of(q->attr, x);
    if (check_room(q, &g) != TP_OK) return TP_E_SHAPE;
    q->y[0] = *x;
    for (int i = 0; i < 2; i++) q->y[0].dim[1 + i] = g.axis[i].out;
    if (__builtin_mul_overflow(g.axis[0].taps * g.axis[1].taps, x->dim[3], &q->y[0].dim[3]))
        return tp_fail(q, TP_E_SHAPE, "the result is too large");
    return TP_OK;
}

static tp_code fold_shape(tp_infer *q)
{
    const tp__fold_attr *at = q->attr;
    const tp_view *x = &q->x[0];
    tp_view *y = &q->y[0];
    if (check_cfg(q) != TP_OK) return TP_E_VALUE;
    for (int i = 0; i < 2; i++)
        if (at->size[i] < 1 || at->size[i] > MOST)
            return tp_fail(q, TP_E_VALUE, "size cannot be %lld", (long long)at->size[i]);
    if (x->ndim != 4) return tp_fail(q, TP_E_SHAPE, "x must be [B,Ho,Wo,KH*KW*C]");
    const int64_t taps = at->cfg.kernel[0] * at->cfg.kernel[1];
    if (x->dim[3] % taps != 0)
        return tp_fail(q, TP_E_SHAPE, "axis 3 is not a multiple of the kernel's %lld taps",
                       (long long)taps);
    *y = *x;
    for (int i = 0; i < 2; i++) y->dim[1 + i] = at->size[i];
    y->dim[3] = x->dim[3] / taps;
    const tp__unfold g = tp__unfold_of(&at->cfg, y);
    if (check_room(q, &g) != TP_OK) return TP_E_SHAPE;
    for (int i = 0; i < 2; i++)
        if (x->dim[1 + i] != g.axis[i].out)
            return tp_fail(q, TP_E_SHAPE, "axis %d must be %lld, the windows of %lld positions",
                           1 + i, (long long)g.axis[i].out, (long long)at->size[i]);
    return TP_OK;
}

#define CFG(kh, kw, sh, sw, ph, pw, dh, dw) TP_LIST({ kh, kw }, { sh, sw }, { ph, pw }, { dh, dw })

#define UNFOLD(...)     .attr = &(tp_unfold_cfg)CFG(__VA_ARGS__)
#define FOLD(h, w, ...) .attr = TP_ATTR(tp__fold_attr, CFG(__VA_ARGS__), { h, w })

static const tp_gradcase unfold_cases[] = {
    { "plain", .in = { TP_DIMS(2, 4, 5, 3) }, UNFOLD(2, 3, 1, 1, 0, 0, 1, 1) },
    { "padded", .in = { TP_DIMS(1, 4, 3, 2) }, UNFOLD(3, 3, 1, 1, 1, 2, 1, 1) },
    { "patches", .in = { TP_DIMS(2, 4, 6, 3) }, UNFOLD(2, 2, 2, 2, 0, 0, 1, 1) },
    { "some left over", .in = { TP_DIMS(1, 5, 8, 2) }, UNFOLD(2, 3, 2, 3, 0, 0, 1, 1) },
    { "stride skips", .in = { TP_DIMS(1, 7, 8, 1) }, UNFOLD(2, 1, 3, 4, 1, 0, 1, 1) },
    { "dilated", .in = { TP_DIMS(1, 6, 7, 2) }, UNFOLD(2, 3, 1, 2, 1, 2, 3, 2) },
    { "dilation beyond the stride", .in = { TP_DIMS(1, 9, 8, 1) }, UNFOLD(3, 2, 4, 2, 3, 3, 2, 4) },
    { "windows of pad alone", .in = { TP_DIMS(1, 2, 1, 2) }, UNFOLD(2, 2, 1, 1, 3, 4, 1, 1) },
    { "a line", .in = { TP_DIMS(2, 1, 9, 1) }, UNFOLD(1, 3, 1, 2, 0, 0, 1, 1) },
    { "packs", .in = { TP_DIMS(1, 4, 3, 8) }, UNFOLD(3, 2, 2, 1, 1, 1, 1, 1) },
    { "several blocks", .in = { TP_DIMS(1, 20, 19, 5) }, UNFOLD(3, 3, 1, 1, 1, 1, 1, 1) },
    { "no images", .in = { TP_DIMS(0, 4, 4, 2) }, UNFOLD(2, 2, 1, 1, 0, 0, 1, 1) },
    { "no rows", .in = { TP_DIMS(2, 0, 3, 2) }, UNFOLD(3, 3, 1, 1, 1, 1, 1, 1) },
    { "rows of pad alone", .in = { TP_DIMS(1, 0, 3, 2) }, UNFOLD(2, 2, 1, 1, 1, 1, 1, 1) },
    { "no channels", .in = { TP_DIMS(1, 4, 4, 0) }, UNFOLD(2, 2, 1, 1, 0, 0, 1, 1) },
    { 0 },
};

static const tp_gradcase fold_cases[] = {
    { "plain", .in = { TP_DIMS(2, 3, 3, 18) }, FOLD(4, 5, 2, 3, 1, 1, 0, 0, 1, 1) },
    { "padded", .in = { TP_DIMS(1, 4, 5, 18) }, FOLD(4, 3, 3, 3, 1, 1, 1, 2, 1, 1) },
    { "patches", .in = { TP_DIMS(2, 2, 3, 12) }, FOLD(4, 6, 2, 2, 2, 2, 0, 0, 1, 1) },
    { "positions without windows", .in = { TP_DIMS(1, 2, 2, 12) },
      FOLD(5, 8, 2, 3, 2, 4, 0, 0, 1, 1) },
    { "dilated", .in = { TP_DIMS(1, 5, 4, 6) }, FOLD(6, 7, 2, 3, 1, 2, 1, 2, 3, 2) },
    { "windows of pad alone", .in = { TP_DIMS(1, 7, 8, 8) }, FOLD(2, 1, 2, 2, 1, 1, 3, 4, 1, 1) },
    { "packs", .in = { TP_DIMS(1, 2, 4, 48) }, FOLD(4, 3, 3, 2, 2, 1, 1, 1, 1, 1) },
    { "several blocks", .in = { TP_DIMS(1, 10, 9, 20) }, FOLD(20, 19, 2, 2, 2, 2, 0, 0, 1, 1) },
    { "no images", .in = { TP_DIMS(0, 3, 3, 8) }, FOLD(4, 4, 2, 2, 1, 1, 0, 0, 1, 1) },
    { "no channels", .in = { TP_DIMS(1, 3, 3, 0) }, FOLD(4, 4, 2, 2, 1, 1, 0, 0, 1, 1) },
    { 0 },
};

TP_KERNEL(unfold_fwd);
TP_KERNEL(unfold_bwd);
TP_KERNEL(fold_fwd);
TP_KERNEL(fold_bwd);

const tp_op tp_op_unfold = {
    .name = "unfold",
    .doc = "windows of x [B,H,W,C] (im2col): [B,Ho,Wo,KH*KW*C]",
    .nx = 1,
    .ny = 1,
    .takes = { TP_ANY },
    .attr_size = sizeof(tp_unfold_cfg),
    .shape = unfold_shape,
    .forward = TP_KERNELS(unfold_fwd),
    .backward = TP_KERNELS(unfold_bwd),
    .cases = unfold_cases,
};

const tp_op tp_op_fold = {
    .name = "fold",
    .doc = "sums of windows (col2im): x [B,Ho,Wo,KH*KW*C] to [B,H,W,C]",
    .nx = 1,
    .ny = 1,
    .attr_size = sizeof(tp__fold_attr),
    .shape = fold_shape,
    .forward = TP_KERNELS(fold_fwd),
    .backward = TP_KERNELS(fold_bwd),
    .cases = fold_cases,
};

/* Strides and dilations of 0 mean 1. */
static tp_unfold_cfg with_defaults(tp_unfold_cfg cfg)
{
    for (int i = 0; i < 2; i++) {
        if (cfg.stride[i] == 0) cfg.stride[i] = 1;
        if (cfg.dilation[i] == 0) cfg.dilation[i] = 1;
    }
    return cfg;
}

tp_tensor tp_unfold(tp_tape *T, tp_tensor x, tp_unfold_cfg cfg)
{
    const tp_unfold_cfg at = with_defaults(cfg);
    return tp_apply(T, &tp_op_unfold, &at, x);
}

tp_tensor tp_fold(tp_tape *T, tp_tensor x, int64_t height, int64_t width, tp_unfold_cfg cfg)
{
    const tp__fold_attr at = { with_defaults(cfg), { height, width } };
    return tp_apply(T, &tp_op_fold, &at, x);
}
