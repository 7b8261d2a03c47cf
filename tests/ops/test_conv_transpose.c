/* test_conv_transpose.c - transposed convolutions against naive loops in f64, on every instruction
 * set: values and gradients, bf16, equal bits on any number of threads, messages. */
#include <criterion/criterion.h>

#include "support/trial.h"
#include "support/values.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

typedef struct layer {
    const char *name;
    tp_shape x, w, b; /* [B,H,W,Ci], [Ci,Co/groups,KH,KW], [Co] or absent; or without H and KH */
    tp_conv_transpose_cfg cfg;
} layer;

static tp_tensor convolve(tp_tape *T, const tp_tensor *x, const void *env)
{
    const layer *l = env;
    return (l->x.ndim == 3 ? tp_conv_transpose1d : tp_conv_transpose2d)(T, x[0], x[1], x[2],
                                                                        l->cfg);
}

/* clang-format off */
#define X TRIAL_MAP
#define L(...) { 3, { __VA_ARGS__ } }
#define V TRIAL_VECTOR
#define O(s, p, d, g, e) { { s, s }, { p, p }, { d, d }, g, { e, e } }

static const layer layers[] = {
    { "plain", X(2, 5, 6, 3), X(3, 5, 3, 3), V(5), { .groups = 1 } },
    { "same size", X(2, 15, 14, 32), X(32, 24, 3, 3), V(24), O(1, 1, 1, 1, 0) },
    { "1x1", X(2, 9, 11, 33), X(33, 17, 1, 1), V(17), { .groups = 1 } },
    { "1x1, no bias", X(2, 9, 11, 33), X(33, 17, 1, 1), { 0 }, { .groups = 1 } },
    { "1x1, stride", X(2, 5, 6, 8), X(8, 7, 1, 1), V(7), O(2, 0, 1, 1, 1) },
    { "patches", X(2, 7, 9, 24), X(24, 16, 2, 2), V(16), { .stride = { 2, 2 } } },
    { "large patches", X(1, 3, 4, 20), X(20, 3, 8, 8), V(3), { .stride = { 8, 8 } } },
    { "overlapping", X(2, 9, 7, 20), X(20, 24, 4, 4), V(24), O(2, 1, 1, 1, 0) },
    { "output_pad", X(2, 9, 7, 20), X(20, 24, 3, 3), V(24), O(2, 1, 1, 1, 1) },
    { "gaps", X(1, 6, 5, 4), X(4, 5, 2, 3), V(5), { .stride = { 5, 4 } } },
    { "dilation", X(1, 9, 10, 8), X(8, 9, 3, 3), V(9), O(1, 2, 4, 1, 3) },
    { "axes apart", X(1, 6, 5, 6), X(6, 7, 3, 2), V(7),
      { { 3, 1 }, { 0, 2 }, { 2, 3 }, 0, { 2, 1 } } },
    { "groups", X(2, 5, 6, 12), X(12, 6, 3, 3), V(18), O(2, 1, 1, 3, 1) },
    { "depthwise", X(2, 5, 6, 12), X(12, 1, 4, 4), V(12), O(2, 1, 1, 12, 0) },
    { "many channels", X(1, 4, 5, 130), X(130, 140, 3, 3), { 0 }, O(1, 1, 1, 1, 0) },
    { "long rows", X(1, 2, 400, 3), X(3, 4, 3, 3), V(4), O(2, 1, 1, 1, 0) },
    { "many images", X(40, 3, 2, 4), X(4, 6, 2, 2), V(6), { .groups = 1 } },
    { "a line", L(2, 31, 12), L(12, 9, 4), V(9), { { 2 }, { 1 }, { 1 }, 0, { 1 } } },
    { "a line, groups", L(2, 31, 12), L(12, 3, 3), V(9), { .groups = 3 } },
    { "a line, one tap", L(2, 31, 12), L(12, 9, 1), V(9), { .groups = 1 } },
    { "no images", X(0, 3, 3, 2), X(2, 4, 3, 3), V(4), { .groups = 1 } },
    { "no inputs", X(1, 3, 3, 0), X(0, 4, 3, 3), V(4), { .groups = 1 } },
    { "no rows", X(1, 0, 3, 2), X(2, 4, 3, 3), V(4), { .groups = 1 } },
};
/* clang-format on */

/* One axis of a layer. */
typedef struct span {
    int64_t in, out, taps, stride, pad, dilation;
} span;

static span span_of(const layer *l, const trial_result *r, int axis)
{
    if (axis < 0) return (span){ 1, 1, 1, 1, 0, 1 };
    const tp_conv_transpose_cfg *o = &l->cfg;
    return (span){ l->x.dim[1 + axis], r->shape.dim[1 + axis],
                   l->w.dim[2 + axis], o->stride[axis] ? o->stride[axis] : 1,
                   o->pad[axis],       o->dilation[axis] ? o->dilation[axis] : 1 };
}

/* Adds the contributions of input channel c at one position and tap to y, dx, dw. */
static void naive_tap(const layer *l, const trial_result *r, int64_t from, int64_t c, int64_t tap,
                      int64_t taps, int64_t to, double *y, double *dx[3])
{
    const int64_t groups = l->cfg.groups ? l->cfg.groups : 1, Ci = l->w.dim[0], n = l->w.dim[1];
    for (int64_t j = 0; j < n; j++) {
        const int64_t v = (c * n + j) * taps + tap, at = to + c / (Ci / groups) * n + j;
        y[at] += r->x[0][from + c] * r->x[1][v];
        dx[0][from + c] += r->dy[at] * r->x[1][v];
        dx[1][v] += r->dy[at] * r->x[0][from + c];
    }
}

static void naive(const void *env, const trial_result *r, double *y, double *dx[3])
{
    const layer *l = env;
    const int flat = l->x.ndim == 3;
    const span h = span_of(l, r, flat ? -1 : 0), w = span_of(l, r, flat ? 0 : 1);
    const int64_t Ci = l->w.dim[0], Co = r->shape.dim[r->shape.ndim - 1], taps = h.taps * w.taps;
    for (int64_t i = 0; r->x[2] && i < r->ny; i++) {
        y[i] += r->x[2][i % Co];
        dx[2][i % Co] += r->dy[i];
    }
    for (int64_t p = 0; p < l->x.dim[0] * h.in * w.in; p++)
        for (int64_t k = 0; k < taps; k++) {
            const int64_t row = p / w.in % h.in * h.stride - h.pad + k / w.taps * h.dilation;
            const int64_t col = p % w.in * w.stride - w.pad + k % w.taps * w.dilation;
            if (row < 0 || row >= h.out || col < 0 || col >= w.out) continue;
            const int64_t to = ((p / w.in / h.in * h.out + row) * w.out + col) * Co;
            for (int64_t c = 0; c < Ci; c++) naive_tap(l, r, p * Ci, c, k, taps, to, y, dx);
        }
}

static void check(const layer *l, tp_dtype dt, tp_dtype compute, tp_isa isa, double tol)
{
    const trial t = { convolve,           l,         .in = { l->x, l->w, l->b }, .dtype = dt,
                      .compute = compute, .isa = isa };
    trial_compare(&t, naive, l->name, tol);
}

Test(conv_transpose, values_and_gradients)
{
    for (tp_isa isa = TP_ISA_BASE; isa <= TP_ISA_AVX512; isa++)
        for (size_t i = 0; i < COUNT(layers); i++) {
            if (trial_can(TP_F32, isa)) check(&layers[i], TP_F32, TP_F32, isa, 5e-6);
            if (trial_can(TP_F64, isa)) check(&layers[i], TP_F64, TP_F64, isa, 1e-13);
        }
}

/* Large enough for bf16 products: the mask head's patches, passes that skip positions, and a
 * product. */
static const layer large[] = {
    { "patches", X(2, 9, 8, 64), X(64, 49, 2, 2), V(49), { .stride = { 2, 2 } } },
    { "overlapping", X(2, 12, 9, 51), X(51, 70, 3, 3), V(70), O(2, 1, 1, 1, 1) },
    { "same size", X(1, 12, 9, 50), X(50, 65, 3, 3), { 0 }, O(1, 1, 1, 1, 0) },
    { "1x1", X(2, 9, 11, 65), X(65, 49, 1, 1), V(49), { .groups = 1 } },
};

Test(conv_transpose, bf16)
{
    for (size_t i = 0; i < COUNT(layers); i++)
        check(&layers[i], TP_F32, TP_BF16, TP_ISA_AUTO, 2e-2);
    for (tp_isa isa = TP_ISA_BASE; isa <= TP_ISA_AVX512; isa++)
        for (size_t i = 0; i < COUNT(large) && trial_can(TP_F32, isa); i++)
            check(&large[i], TP_F32, TP_BF16, isa, 2e-2);
}

static void check_threads(const layer *l, tp_dtype compute)
{
    const trial t = { convolve, l, .in = { l->x, l->w, l->b }, .compute = compute };
    cr_expect(trial_same_on_threads(&t), "%s", l->name);
}

Test(conv_transpose, threads_do_not_change_bits)
{
    for (size_t i = 0; i < COUNT(layers); i++) check_threads(&layers[i], TP_F32);
    for (size_t i = 0; i < COUNT(large); i++) check_threads(&large[i], TP_BF16);
}

Test(conv_transpose, messages)
{
    static const struct {
        layer l;
        const char *text;
    } cases[] = {
        { { "", X(2, 9, 9, 3), X(4, 3, 3, 3), { 0 }, { .groups = 0 } },
          "conv_transpose2d: w must be [3,Co/groups,KH,KW]\n  inputs f32[2,9,9,3], f32[4,3,3,3], "
          "none\n" },
        { { "", X(2, 3, 9, 9), X(3, 4, 3, 3), { 0 }, { .groups = 0 } },
          "conv_transpose2d: x must be [B,H,W,3], channels last; it looks like channels first: "
          "tp_permute it by 0, 2, 3, 1\n" },
        { { "", L(2, 9, 3), X(3, 4, 3, 3), { 0 }, { .groups = 0 } },
          "conv_transpose1d: w must be [Ci,Co/groups,K]\n" },
        { { "", X(2, 9, 9, 3), X(3, 4, 3, 3), V(3), { .groups = 0 } },
          "conv_transpose2d: b must be [4]\n" },
        { { "", X(2, 9, 9, 3), X(3, 4, 3, 3), { 0 }, { .groups = 2 } },
          "conv_transpose2d: 3 inputs are not a multiple of 2 groups\n" },
        { { "", X(2, 9, 9, 3), X(3, 4, 3, 3), { 0 }, { .groups = -1 } },
          "conv_transpose2d: groups cannot be -1\n" },
        { { "", X(2, 9, 9, 3), X(3, 4, 3, 3), { 0 }, { .stride = { 2, -1 } } },
          "conv_transpose2d: stride cannot be -1\n" },
        { { "", X(2, 9, 9, 3), X(3, 4, 0, 3), { 0 }, { .groups = 0 } },
          "conv_transpose2d: kernel sizes must be 1 or more\n" },
        { { "",
            X(2, 9, 9, 3),
            X(3, 4, 3, 3),
            { 0 },
            { .stride = { 2, 2 }, .output_pad = { 0, 2 } } },
          "conv_transpose2d: output_pad cannot be 2: it is less than the stride or the "
          "dilation\n" },
        { { "", X(2, 9, 9, 3), X(3, 4, 3, 3), { 0 }, { .output_pad = { INT64_MAX, 0 } } },
          "conv_transpose2d: output_pad cannot be 9223372036854775807: it is less than the "
          "stride or the dilation\n" },
        { { "", X(2, 1, 9, 3), X(3, 4, 3, 3), { 0 }, { .pad = { 2, 0 } } },
          "conv_transpose2d: axis 1 of the result would have -1 positions\n" },
        { { "", L(2, 9, 3), L(3, 4, 3), { 0 }, { .output_pad = { 0, 1 } } },
          "conv_transpose1d: output_pad[1] must be 0, not 1: there is one axis\n" },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const layer *l = &cases[i].l;
        const trial t = { convolve, l, .in = { l->x, l->w, l->b } };
        cr_expect(trial_fails(&t, cases[i].text), "case %zu", i);
    }
}
