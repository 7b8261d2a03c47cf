/* pool2d.c - max and average pooling of images, channels last.
 *
 *     y[b,o,c] = max or mean over k of x[b, o stride - pad + k, c]
 *
 * The pad is at most half of the kernel, so that each window has an input. Max pooling stores the
 * position of each maximum, 4 bytes per output. */
#include "autograd/ops/op_inner.h"
#include "tensor/geometry/pool.h"

#define MOST INT32_MAX /* the largest size, and the most positions of an image */

static tp_code pool_shape(tp_infer *q)
{
    const tp_pool_cfg *cfg = q->attr;
    const tp_view *x = &q->x[0];
    if (tp__expect_float(q) != TP_OK) return TP_E_DTYPE;
    if (x->ndim != 4) return tp_fail(q, TP_E_SHAPE, "x must be [B,H,W,C]");
    if (x->dim[1] > MOST || x->dim[2] > MOST || x->dim[1] * x->dim[2] > MOST)
        return tp_fail(q, TP_E_SHAPE, "an image has 2^31 positions or more");
    for (int i = 0; i < 2; i++) {
        const int64_t kernel = cfg->kernel[i], stride = cfg->stride[i], pad = cfg->pad[i];
        if (kernel < 1 || kernel > MOST)
            return tp_fail(q, TP_E_VALUE, "kernel cannot be %lld", (long long)kernel);
        if (stride < 1 || stride > MOST)
            return tp_fail(q, TP_E_VALUE, "stride cannot be %lld", (long long)stride);
        if (pad < 0 || pad > kernel / 2)
            return tp_fail(q, TP_E_VALUE, "pad cannot be %lld: it is at most half of the kernel",
                           (long long)pad);
        if (x->dim[1 + i] > 0 && kernel > x->dim[1 + i] + 2 * pad)
            return tp_fail(q, TP_E_SHAPE, "kernel spans %lld, axis %d with its pad only %lld",
                           (long long)kernel, 1 + i, (long long)(x->dim[1 + i] + 2 * pad));
    }
    const tp__pool g = tp__pool_of(cfg, x);
    q->y[0] = *x;
    q->y[0].dim[1] = g.axis[0].out;
    q->y[0].dim[2] = g.axis[1].out;
    return TP_OK;
}

static tp_code max_shape(tp_infer *q)
{
    const tp_code code = pool_shape(q);
    q->y[1] = q->y[0];
    q->y[1].dtype = TP_I32;
    return code;
}

#define X(...) .in = { { 4, { __VA_ARGS__ } } }
#define CFG(k, s, p)                                                                               \
    .attr = &(tp_pool_cfg)                                                                         \
    {                                                                                              \
        { k, k }, { s, s }, { p, p }, false                                                        \
    }
#define IGNORE(k, s, p)                                                                            \
    .attr = &(tp_pool_cfg)                                                                         \
    {                                                                                              \
        { k, k }, { s, s }, { p, p }, true                                                         \
    }
#define AXES                                                                                       \
    .attr = &(tp_pool_cfg)                                                                         \
    {                                                                                              \
        { 2, 3 }, { 3, 1 }, { 0, 1 }, true                                                         \
    }

static const tp_gradcase pool_cases[] = {
    { "plain", X(2, 4, 6, 3), CFG(2, 2, 0) },
    { "some left over", X(1, 5, 7, 2), CFG(2, 2, 0) },
    { "overlapping", X(1, 5, 6, 2), CFG(3, 2, 1) },
    { "overlapping, pad ignored", X(1, 5, 6, 2), IGNORE(3, 2, 1) },
    { "stride 1", X(1, 4, 3, 1), CFG(3, 1, 1) },
    { "stride skips", X(1, 7, 8, 2), CFG(2, 3, 1) },
    { "axes apart", X(1, 6, 4, 2), AXES },
    { "all of the image", X(2, 3, 3, 2), CFG(3, 3, 0) },
    { "one input a window", X(1, 3, 2, 3), CFG(1, 1, 0) },
    { "packs", X(1, 5, 4, 8), CFG(3, 2, 1) },
    { "two packs", X(1, 4, 3, 16), IGNORE(2, 1, 1) },
    { "no images", X(0, 4, 4, 2), CFG(2, 2, 0) },
    { "no rows", X(2, 0, 4, 2), CFG(2, 2, 1) },
    { "no channels", X(1, 4, 4, 0), CFG(2, 2, 0) },
    { 0 },
};

TP_KERNEL(max_pool2d_fwd);
TP_KERNEL(max_pool2d_bwd);
TP_KERNEL(avg_pool2d_fwd);
TP_KERNEL(avg_pool2d_bwd);

const tp_op tp_op_max_pool2d = {
    .name = "max_pool2d",
    .doc = "max pooling of x [B,H,W,C]; the first maximum gets the gradient",
    .nx = 1,
    .ny = 2, /* y, and the position of the maximum in its image */
    .attr_size = sizeof(tp_pool_cfg),
    .saves = TP_SAVE_Y(1),
    .shape = max_shape,
    .forward = TP_KERNELS(max_pool2d_fwd),
    .backward = TP_KERNELS(max_pool2d_bwd),
    .cases = pool_cases,
};

const tp_op tp_op_avg_pool2d = {
    .name = "avg_pool2d",
    .doc = "average pooling of x [B,H,W,C]",
    .nx = 1,
    .ny = 1,
    .attr_size = sizeof(tp_pool_cfg),
    .shape = pool_shape,
    .forward = TP_KERNELS(avg_pool2d_fwd),
    .backward = TP_KERNELS(avg_pool2d_bwd),
    .cases = pool_cases,
};

/* A stride of 0 means the kernel's size. */
static tp_pool_cfg with_strides(tp_pool_cfg cfg)
{
    for (int i = 0; i < 2; i++)
        if (cfg.stride[i] == 0) cfg.stride[i] = cfg.kernel[i];
    return cfg;
}

tp_tensor tp_max_pool2d(tp_tape *T, tp_tensor x, tp_pool_cfg cfg)
{
    const tp_pool_cfg at = with_strides(cfg);
    return tp_apply(T, &tp_op_max_pool2d, &at, x);
}

tp_tensor tp_avg_pool2d(tp_tape *T, tp_tensor x, tp_pool_cfg cfg)
{
    const tp_pool_cfg at = with_strides(cfg);
    return tp_apply(T, &tp_op_avg_pool2d, &at, x);
}
