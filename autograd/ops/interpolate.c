/* interpolate.c - resizes channels-last images: bilinear, bicubic, nearest.
 *
 *     y[b,o,p,c] = sum_i sum_j h[o,i] w[p,j] x[b,i,j,c]   1, 2 or 4 weights h, w per output
 *
 * Follows PyTorch without antialiasing (tensor/geometry/interpolate.h). */
#include "tensor/geometry/interpolate.h"
#include "autograd/ops/op_inner.h"

static tp_code interpolate_shape(tp_infer *q)
{
    const tp__interpolate_attr *at = q->attr;
    const tp_view *x = &q->x[0];
    if ((int)at->mode < 0 || at->mode > TP_INTERPOLATE_NEAREST_EXACT)
        return tp_fail(q, TP_E_VALUE, "unknown mode %d", (int)at->mode);
    if (at->align_corners && at->mode >= TP_INTERPOLATE_NEAREST)
        return tp_fail(q, TP_E_VALUE,
                       "corners cannot be aligned by nearest: align_corners must be false");
    if (x->ndim != 4) return tp_fail(q, TP_E_SHAPE, "x must be [B,H,W,C]");
    for (int i = 0; i < 2; i++) {
        if (at->size[i] < 1 || at->size[i] > INT32_MAX)
            return tp_fail(q, TP_E_VALUE, "size cannot be %lld", (long long)at->size[i]);
        if (x->dim[1 + i] < 1 || x->dim[1 + i] > INT32_MAX)
            return tp_fail(q, TP_E_SHAPE, "axis %d must have 1 or more positions, below 2^31",
                           1 + i);
    }
    q->y[0] = *x;
    q->y[0].dim[1] = at->size[0];
    q->y[0].dim[2] = at->size[1];
    return TP_OK;
}

#define SIZE(h, w, mode, align) .attr = TP_ATTR(tp__interpolate_attr, { h, w }, mode, align)

static const tp_gradcase interpolate_cases[] = {
    { "larger", .in = { TP_DIMS(2, 3, 4, 2) }, SIZE(5, 7, TP_INTERPOLATE_BILINEAR, false) },
    { "smaller", .in = { TP_DIMS(1, 7, 9, 2) }, SIZE(3, 4, TP_INTERPOLATE_BILINEAR, false) },
    { "much smaller", .in = { TP_DIMS(1, 11, 13, 1) }, SIZE(2, 1, TP_INTERPOLATE_BILINEAR, false) },
    { "corners", .in = { TP_DIMS(1, 3, 4, 3) }, SIZE(6, 7, TP_INTERPOLATE_BILINEAR, true) },
    { "corners, smaller", .in = { TP_DIMS(1, 6, 7, 1) },
      SIZE(3, 4, TP_INTERPOLATE_BILINEAR, true) },
    { "corners, to one", .in = { TP_DIMS(1, 3, 4, 2) }, SIZE(1, 1, TP_INTERPOLATE_BILINEAR, true) },
    { "same size", .in = { TP_DIMS(1, 3, 4, 2) }, SIZE(3, 4, TP_INTERPOLATE_BILINEAR, false) },
    { "one position", .in = { TP_DIMS(1, 1, 1, 2) }, SIZE(3, 2, TP_INTERPOLATE_BILINEAR, false) },
    { "a line", .in = { TP_DIMS(1, 1, 5, 3) }, SIZE(1, 9, TP_INTERPOLATE_BILINEAR, false) },
    { "cubic", .in = { TP_DIMS(2, 4, 5, 2) }, SIZE(7, 6, TP_INTERPOLATE_BICUBIC, false) },
    { "cubic, smaller", .in = { TP_DIMS(1, 9, 8, 1) }, SIZE(4, 3, TP_INTERPOLATE_BICUBIC, false) },
    { "cubic, corners", .in = { TP_DIMS(1, 4, 3, 2) }, SIZE(5, 8, TP_INTERPOLATE_BICUBIC, true) },
    { "cubic, two positions", .in = { TP_DIMS(1, 2, 1, 2) },
      SIZE(5, 3, TP_INTERPOLATE_BICUBIC, false) },
    { "cubic, a line", .in = { TP_DIMS(1, 1, 6, 3) }, SIZE(1, 4, TP_INTERPOLATE_BICUBIC, false) },
    { "packs", .in = { TP_DIMS(1, 3, 2, 8) }, SIZE(4, 5, TP_INTERPOLATE_BILINEAR, false) },
    { "packs, cubic", .in = { TP_DIMS(1, 3, 4, 16) }, SIZE(5, 3, TP_INTERPOLATE_BICUBIC, false) },
    { "nearest", .in = { TP_DIMS(2, 3, 4, 2) }, SIZE(5, 7, TP_INTERPOLATE_NEAREST, false) },
    { "nearest, smaller", .in = { TP_DIMS(1, 7, 9, 8) },
      SIZE(3, 4, TP_INTERPOLATE_NEAREST, false) },
    { "nearest, much larger", .in = { TP_DIMS(1, 2, 1, 2) },
      SIZE(9, 11, TP_INTERPOLATE_NEAREST, false) },
    { "nearest exact", .in = { TP_DIMS(2, 3, 4, 2) },
      SIZE(6, 9, TP_INTERPOLATE_NEAREST_EXACT, false) },
    { "nearest exact, smaller", .in = { TP_DIMS(1, 7, 9, 1) },
      SIZE(3, 2, TP_INTERPOLATE_NEAREST_EXACT, false) },
    { "no images", .in = { TP_DIMS(0, 3, 4, 2) }, SIZE(5, 7, TP_INTERPOLATE_BILINEAR, false) },
    { "no channels", .in = { TP_DIMS(1, 3, 4, 0) }, SIZE(5, 7, TP_INTERPOLATE_BICUBIC, false) },
    { 0 },
};

TP_KERNEL(interpolate_fwd);
TP_KERNEL(interpolate_bwd);
TP_WORK(interpolate_work);

const tp_op tp_op_interpolate = {
    .name = "interpolate",
    .doc = "x [B,H,W,C] resized, bilinear, bicubic or nearest, without antialiasing",
    .nx = 1,
    .ny = 1,
    .attr_size = sizeof(tp__interpolate_attr),
    .shape = interpolate_shape,
    .forward = TP_KERNELS(interpolate_fwd),
    .backward = TP_KERNELS(interpolate_bwd),
    .work = TP_WORKS(interpolate_work),
    .cases = interpolate_cases,
};

tp_tensor tp_interpolate(tp_tape *T, tp_tensor x, int64_t height, int64_t width,
                         tp_interpolation mode, bool align_corners)
{
    const tp__interpolate_attr at = { { height, width }, mode, align_corners };
    return tp_apply(T, &tp_op_interpolate, &at, x);
}
