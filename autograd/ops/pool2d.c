/* pool2d.c - max and average pooling of images, channels last, by window or to a given size.
 *
 *     y[b,o,c] = max or mean over k of x[b, o stride - pad + k, c]
 *
 * The pad is at most half the kernel, so each window has an input. Adaptive pooling uses the same
 * kernels with other windows (tensor/geometry/pool.h). Max pooling stores the position of each
 * maximum, 4 bytes per output. */
#include "autograd/ops/op_inner.h"
#include "tensor/geometry/pool.h"

#define MOST INT32_MAX /* the largest size, and the most positions of an image */

/* Fails unless x is [B,H,W,C] with positions that fit in I32. */
static tp_code check_images(tp_infer *q)
{
    const tp_view *x = &q->x[0];
    if (x->ndim != 4) return tp_fail(q, TP_E_SHAPE, "x must be [B,H,W,C]");
    if (x->dim[1] > MOST || x->dim[2] > MOST || x->dim[1] * x->dim[2] > MOST)
        return tp_fail(q, TP_E_SHAPE, "an image has 2^31 positions or more");
    return TP_OK;
}

static tp_code check_window(tp_infer *q, int axis)
{
    const tp_pool_cfg *cfg = &((const tp__pool_attr *)q->attr)->cfg;
    const int64_t kernel = cfg->kernel[axis], stride = cfg->stride[axis], pad = cfg->pad[axis];
    if (kernel < 1 || kernel > MOST)
        return tp_fail(q, TP_E_VALUE, "kernel cannot be %lld", (long long)kernel);
    if (stride < 1 || stride > MOST)
        return tp_fail(q, TP_E_VALUE, "stride cannot be %lld", (long long)stride);
    if (pad < 0 || pad > kernel / 2)
        return tp_fail(q, TP_E_VALUE, "pad cannot be %lld: it is at most half of the kernel",
                       (long long)pad);
    return TP_OK;
}

static tp_code result(tp_infer *q, const tp__pool *g)
{
    q->y[0] = q->x[0];
    q->y[0].dim[1] = g->axis[0].out;
    q->y[0].dim[2] = g->axis[1].out;
    return TP_OK;
}

static tp_code pool_shape(tp_infer *q)
{
    const tp_view *x = &q->x[0];
    const tp_code images = check_images(q);
    if (images != TP_OK) return images;
    for (int i = 0; i < 2; i++)
        if (check_window(q, i) != TP_OK) return TP_E_VALUE;
    const tp__pool g = tp__pool_of(q->attr, x);
    for (int i = 0; i < 2; i++)
        if (x->dim[1 + i] > 0 && g.axis[i].out < 1)
            return tp_fail(q, TP_E_SHAPE, "kernel spans %lld, axis %d with its pad only %lld",
                           (long long)g.axis[i].kernel, 1 + i,
                           (long long)(x->dim[1 + i] + 2 * g.axis[i].pad));
    return result(q, &g);
}

static tp_code adaptive_shape(tp_infer *q)
{
    const tp__pool_attr *at = q->attr;
    const tp_code images = check_images(q);
    if (images != TP_OK) return images;
    for (int i = 0; i < 2; i++) {
        if (at->size[i] < 1 || at->size[i] > MOST)
            return tp_fail(q, TP_E_VALUE, "size cannot be %lld", (long long)at->size[i]);
        if (q->x[0].dim[1 + i] < 1)
            return tp_fail(q, TP_E_SHAPE, "axis %d has no positions to pool", 1 + i);
    }
    const tp__pool g = tp__pool_of(at, &q->x[0]);
    return result(q, &g);
}

/* Adds the maxima's positions as y[1]. */
static tp_code with_positions(tp_infer *q, tp_code code)
{
    q->y[1] = q->y[0];
    q->y[1].dtype = TP_I32;
    return code;
}

static tp_code max_shape(tp_infer *q)
{
    return with_positions(q, pool_shape(q));
}

static tp_code adaptive_max_shape(tp_infer *q)
{
    return with_positions(q, adaptive_shape(q));
}

#define POOL(...)       .attr = TP_ATTR(tp__pool_attr, .cfg = { __VA_ARGS__ })
#define CFG(k, s, p)    POOL(.kernel = { k, k }, .stride = { s, s }, .pad = { p, p })
#define IGNORE(k, s, p) POOL({ k, k }, { s, s }, { p, p }, .ignore_pad = true)
#define CEIL(k, s, p)   POOL({ k, k }, { s, s }, { p, p }, .ceil = true)
#define AXES            POOL({ 2, 3 }, { 3, 1 }, { 0, 1 }, .ignore_pad = true)
#define SIZE(h, w)      .attr = TP_ATTR(tp__pool_attr, .size = { h, w })

static const tp_gradcase pool_cases[] = {
    { "plain", .in = { TP_DIMS(2, 4, 6, 3) }, CFG(2, 2, 0) },
    { "some left over", .in = { TP_DIMS(1, 5, 7, 2) }, CFG(2, 2, 0) },
    { "overlapping", .in = { TP_DIMS(1, 5, 6, 2) }, CFG(3, 2, 1) },
    { "overlapping, pad ignored", .in = { TP_DIMS(1, 5, 6, 2) }, IGNORE(3, 2, 1) },
    { "stride 1", .in = { TP_DIMS(1, 4, 3, 1) }, CFG(3, 1, 1) },
    { "stride skips", .in = { TP_DIMS(1, 7, 8, 2) }, CFG(2, 3, 1) },
    { "axes apart", .in = { TP_DIMS(1, 6, 4, 2) }, AXES },
    { "all of the image", .in = { TP_DIMS(2, 3, 3, 2) }, CFG(3, 3, 0) },
    { "one input a window", .in = { TP_DIMS(1, 3, 2, 3) }, CFG(1, 1, 0) },
    { "packs", .in = { TP_DIMS(1, 5, 4, 8) }, CFG(3, 2, 1) },
    { "two packs", .in = { TP_DIMS(1, 4, 3, 16) }, IGNORE(2, 1, 1) },
    { "rounded up", .in = { TP_DIMS(1, 5, 7, 2) }, CEIL(2, 2, 0) },
    { "rounded up, padded", .in = { TP_DIMS(1, 6, 8, 3) }, CEIL(3, 2, 1) },
    { "rounded up, pad ignored", .in = { TP_DIMS(1, 6, 5, 8) },
      POOL({ 4, 3 }, { 3, 2 }, { 2, 1 }, true, true) },
    { "rounded up, window in the pad", .in = { TP_DIMS(1, 2, 4, 2) }, CEIL(2, 3, 1) },
    { "rounded up, kernel beyond the image", .in = { TP_DIMS(2, 3, 2, 2) }, CEIL(4, 3, 0) },
    { "no images", .in = { TP_DIMS(0, 4, 4, 2) }, CFG(2, 2, 0) },
    { "no rows", .in = { TP_DIMS(2, 0, 4, 2) }, CFG(2, 2, 1) },
    { "no channels", .in = { TP_DIMS(1, 4, 4, 0) }, CFG(2, 2, 0) },
    { 0 },
};

static const tp_gradcase adaptive_cases[] = {
    { "windows overlap", .in = { TP_DIMS(2, 5, 7, 3) }, SIZE(3, 4) },
    { "sizes divide", .in = { TP_DIMS(1, 6, 4, 2) }, SIZE(3, 2) },
    { "to one", .in = { TP_DIMS(2, 3, 5, 2) }, SIZE(1, 1) },
    { "same size", .in = { TP_DIMS(1, 3, 2, 2) }, SIZE(3, 2) },
    { "larger", .in = { TP_DIMS(1, 3, 2, 2) }, SIZE(7, 5) },
    { "a line", .in = { TP_DIMS(2, 1, 9, 3) }, SIZE(1, 4) },
    { "packs", .in = { TP_DIMS(1, 5, 4, 8) }, SIZE(3, 3) },
    { "two packs", .in = { TP_DIMS(1, 7, 3, 16) }, SIZE(2, 5) },
    { "no images", .in = { TP_DIMS(0, 4, 4, 2) }, SIZE(3, 3) },
    { "no channels", .in = { TP_DIMS(1, 4, 4, 0) }, SIZE(3, 3) },
    { 0 },
};

TP_KERNEL(max_pool2d_fwd);
TP_KERNEL(max_pool2d_bwd);
TP_KERNEL(avg_pool2d_fwd);
TP_KERNEL(avg_pool2d_bwd);

#define MAX_POOLING                                                                                \
    .nx = 1, .ny = 2, /* y, and the position of the maximum in its image */                        \
        .attr_size = sizeof(tp__pool_attr), .saves = TP_SAVE_Y(1),                                 \
    .forward = TP_KERNELS(max_pool2d_fwd), .backward = TP_KERNELS(max_pool2d_bwd)
#define AVG_POOLING                                                                                \
    .nx = 1, .ny = 1, .attr_size = sizeof(tp__pool_attr), .forward = TP_KERNELS(avg_pool2d_fwd),   \
    .backward = TP_KERNELS(avg_pool2d_bwd)

const tp_op tp_op_max_pool2d = {
    .name = "max_pool2d",
    .doc = "max pooling of x [B,H,W,C]; the first maximum gets the gradient",
    .shape = max_shape,
    MAX_POOLING,
    .cases = pool_cases,
};

const tp_op tp_op_avg_pool2d = {
    .name = "avg_pool2d",
    .doc = "average pooling of x [B,H,W,C]",
    .shape = pool_shape,
    AVG_POOLING,
    .cases = pool_cases,
};

const tp_op tp_op_adaptive_max_pool2d = {
    .name = "adaptive_max_pool2d",
    .doc = "max pooling of x [B,H,W,C] to a given size",
    .shape = adaptive_max_shape,
    MAX_POOLING,
    .cases = adaptive_cases,
};

const tp_op tp_op_adaptive_avg_pool2d = {
    .name = "adaptive_avg_pool2d",
    .doc = "average pooling of x [B,H,W,C] to a given size",
    .shape = adaptive_shape,
    AVG_POOLING,
    .cases = adaptive_cases,
};

/* A stride of 0 means the kernel's size. */
static tp__pool_attr with_strides(tp_pool_cfg cfg)
{
    for (int i = 0; i < 2; i++)
        if (cfg.stride[i] == 0) cfg.stride[i] = cfg.kernel[i];
    return (tp__pool_attr){ .cfg = cfg };
}

tp_tensor tp_max_pool2d(tp_tape *T, tp_tensor x, tp_pool_cfg cfg)
{
    const tp__pool_attr at = with_strides(cfg);
    return tp_apply(T, &tp_op_max_pool2d, &at, x);
}

tp_tensor tp_avg_pool2d(tp_tape *T, tp_tensor x, tp_pool_cfg cfg)
{
    const tp__pool_attr at = with_strides(cfg);
    return tp_apply(T, &tp_op_avg_pool2d, &at, x);
}

tp_tensor tp_adaptive_max_pool2d(tp_tape *T, tp_tensor x, int64_t height, int64_t width)
{
    const tp__pool_attr at = { .size = { height, width } };
    return tp_apply(T, &tp_op_adaptive_max_pool2d, &at, x);
}

tp_tensor tp_adaptive_avg_pool2d(tp_tape *T, tp_tensor x, int64_t height, int64_t width)
{
    const tp__pool_attr at = { .size = { height, width } };
    return tp_apply(T, &tp_op_adaptive_avg_pool2d, &at, x);
}
