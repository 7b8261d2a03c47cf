/* test_conv.c - depthwise convolutions against naive loops in f64, on every instruction set: values
 * and gradients for strides, pads, dilations and channel counts around the kernels' blocks; empty
 * sizes, bf16, equal bits on any number of threads, messages. */
#include <criterion/criterion.h>
#include <string.h>

#include "support/trial.h"
#include "support/values.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

typedef struct layer {
    const char *name;
    tp_shape x, w, b; /* [B,N,C], [C,1,K] or [B,H,W,C], [C,1,KH,KW] */
    tp_conv_cfg cfg;
} layer;

static tp_tensor convolve(tp_tape *T, const tp_tensor *x, const void *env)
{
    const layer *l = env;
    return (l->x.ndim == 3 ? tp_depthwise_conv1d : tp_depthwise_conv2d)(T, x[0], x[1], x[2],
                                                                        l->cfg);
}

/* stride, pad and dilation of one axis or both */
#define ONE(s, p, d)                                                                               \
    {                                                                                              \
        .stride = { s }, .pad = { p }, .dilation = { d }                                           \
    }
#define TWO(s, p, d)                                                                               \
    {                                                                                              \
        .stride = { s, s }, .pad = { p, p }, .dilation = { d, d }                                  \
    }

static const layer layers[] = {
    { "plain", { 3, { 2, 9, 3 } }, { 3, { 3, 1, 3 } }, { 1, { 3 } }, ONE(0, 0, 0) },
    { "same size", { 3, { 1, 40, 64 } }, { 3, { 64, 1, 5 } }, { 1, { 64 } }, ONE(1, 2, 1) },
    { "no bias", { 3, { 2, 12, 33 } }, { 3, { 33, 1, 4 } }, { 0 }, ONE(1, 1, 1) },
    { "stride", { 3, { 2, 31, 97 } }, { 3, { 97, 1, 3 } }, { 1, { 97 } }, ONE(2, 1, 1) },
    { "stride skips", { 3, { 1, 20, 5 } }, { 3, { 5, 1, 2 } }, { 1, { 5 } }, ONE(4, 0, 1) },
    { "dilation", { 3, { 1, 30, 130 } }, { 3, { 130, 1, 3 } }, { 1, { 130 } }, ONE(1, 4, 4) },
    { "pad over the edge", { 3, { 1, 3, 2 } }, { 3, { 2, 1, 3 } }, { 1, { 2 } }, ONE(1, 5, 1) },
    { "many pieces", { 3, { 3, 2500, 6 } }, { 3, { 6, 1, 7 } }, { 1, { 6 } }, ONE(1, 3, 1) },
    { "3x3", { 4, { 2, 7, 9, 32 } }, { 4, { 32, 1, 3, 3 } }, { 1, { 32 } }, TWO(1, 1, 1) },
    { "3x3, stride", { 4, { 2, 9, 8, 96 } }, { 4, { 96, 1, 3, 3 } }, { 1, { 96 } }, TWO(2, 1, 1) },
    { "2x5", { 4, { 1, 6, 11, 3 } }, { 4, { 3, 1, 2, 5 } }, { 0 }, TWO(1, 2, 1) },
    { "all", { 4, { 1, 14, 13, 17 } }, { 4, { 17, 1, 3, 2 } }, { 1, { 17 } }, TWO(3, 2, 2) },
    { "axes apart",
      { 4, { 2, 9, 10, 17 } },
      { 4, { 17, 1, 3, 2 } },
      { 1, { 17 } },
      { .stride = { 3, 1 }, .pad = { 0, 2 }, .dilation = { 2, 3 } } },
    { "3x3, axes apart",
      { 4, { 2, 9, 12, 32 } },
      { 4, { 32, 1, 3, 3 } },
      { 1, { 32 } },
      { .stride = { 1, 2 }, .pad = { 2, 1 } } },
    { "half a vector",
      { 4, { 2, 9, 13, 24 } },
      { 4, { 24, 1, 5, 5 } },
      { 1, { 24 } },
      TWO(1, 2, 1) },
    { "vectors, half and rest",
      { 4, { 1, 7, 9, 63 } },
      { 4, { 63, 1, 7, 7 } },
      { 1, { 63 } },
      TWO(1, 3, 1) },
    { "few vectors, stride", { 4, { 1, 9, 9, 44 } }, { 4, { 44, 1, 3, 3 } }, { 0 }, TWO(2, 1, 1) },
    { "blocks of channels",
      { 4, { 1, 5, 9, 300 } },
      { 4, { 300, 1, 3, 3 } },
      { 1, { 300 } },
      TWO(1, 1, 1) },
    { "many channels", { 4, { 1, 3, 3, 5000 } }, { 4, { 5000, 1, 3, 3 } }, { 0 }, TWO(1, 1, 1) },
    { "no images", { 4, { 0, 3, 3, 2 } }, { 4, { 2, 1, 3, 3 } }, { 1, { 2 } }, TWO(1, 1, 1) },
    { "no tokens", { 3, { 2, 0, 3 } }, { 3, { 3, 1, 3 } }, { 1, { 3 } }, ONE(1, 0, 1) },
    { "no channels", { 3, { 2, 5, 0 } }, { 3, { 0, 1, 3 } }, { 1, { 0 } }, ONE(1, 1, 1) },
};

/* Adds the contributions of one output element to y, dx, dw, db. */
static void naive_output(const layer *l, const trial_result *r, int64_t b, int64_t oh, int64_t ow,
                         int64_t at, double *y, double *dx[3])
{
    const bool flat = l->x.ndim == 3;
    const tp_conv_cfg *o = &l->cfg;
    const int last = flat ? 0 : 1;
    const int64_t sh = o->stride[0] ? o->stride[0] : 1, sw = o->stride[last] ? o->stride[last] : 1;
    const int64_t dh = o->dilation[0] ? o->dilation[0] : 1;
    const int64_t dw = o->dilation[last] ? o->dilation[last] : 1;
    const int64_t C = l->w.dim[0], KW = l->w.dim[l->w.ndim - 1], KH = flat ? 1 : l->w.dim[2];
    const int64_t W = l->x.dim[l->x.ndim - 2], H = flat ? 1 : l->x.dim[1];
    for (int64_t c = 0; c < C; c++) {
        const double dy = r->dy[at + c];
        if (r->x[2]) {
            y[at + c] += r->x[2][c];
            dx[2][c] += dy;
        }
        for (int64_t k = 0; k < KH * KW; k++) {
            const int64_t ih = flat ? 0 : oh * sh - o->pad[0] + k / KW * dh;
            const int64_t iw = ow * sw - o->pad[last] + k % KW * dw;
            if (ih < 0 || ih >= H || iw < 0 || iw >= W) continue;
            const int64_t i = ((b * H + ih) * W + iw) * C + c, v = c * KH * KW + k;
            y[at + c] += r->x[0][i] * r->x[1][v];
            dx[0][i] += dy * r->x[1][v];
            dx[1][v] += dy * r->x[0][i];
        }
    }
}

static void naive(const void *env, const trial_result *r, double *y, double *dx[3])
{
    const layer *l = env;
    const tp_shape *s = &r->shape;
    const int64_t C = l->w.dim[0], OW = s->dim[s->ndim - 2], OH = s->ndim == 3 ? 1 : s->dim[1];
    for (int64_t o = 0; C > 0 && o < r->ny / C; o++)
        naive_output(l, r, o / OW / OH, o / OW % OH, o % OW, o * C, y, dx);
}

static void check(const layer *l, tp_dtype dt, tp_dtype compute, tp_isa isa, double tol)
{
    const trial t = { convolve,           l,         .in = { l->x, l->w, l->b }, .dtype = dt,
                      .compute = compute, .isa = isa };
    trial_compare(&t, naive, l->name, tol);
}

Test(conv, values_and_gradients)
{
    for (tp_isa isa = TP_ISA_BASE; isa <= TP_ISA_AVX512; isa++)
        for (size_t i = 0; i < COUNT(layers); i++) {
            if (trial_can(TP_F32, isa)) check(&layers[i], TP_F32, TP_F32, isa, 2e-6);
            if (trial_can(TP_F64, isa)) check(&layers[i], TP_F64, TP_F64, isa, 1e-13);
        }
}

Test(conv, bf16)
{
    check(&layers[1], TP_F32, TP_BF16, TP_ISA_AUTO, 2e-2);
    check(&layers[9], TP_F32, TP_BF16, TP_ISA_AUTO, 2e-2);
}

Test(conv, output_sizes)
{
    static const struct {
        layer l;
        tp_shape y;
    } cases[] = {
        { { "", { 3, { 2, 9, 3 } }, { 3, { 3, 1, 3 } }, { 0 }, ONE(0, 0, 0) }, { 3, { 2, 7, 3 } } },
        { { "", { 3, { 2, 9, 3 } }, { 3, { 3, 1, 3 } }, { 0 }, ONE(2, 1, 2) }, { 3, { 2, 4, 3 } } },
        { { "", { 3, { 2, 0, 3 } }, { 3, { 3, 1, 3 } }, { 0 }, ONE(1, 0, 1) }, { 3, { 2, 0, 3 } } },
        { { "", { 3, { 2, 0, 3 } }, { 3, { 3, 1, 3 } }, { 0 }, ONE(1, 2, 1) }, { 3, { 2, 2, 3 } } },
        { { "", { 4, { 1, 8, 9, 2 } }, { 4, { 2, 1, 3, 5 } }, { 0 }, TWO(2, 1, 1) },
          { 4, { 1, 4, 4, 2 } } },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const layer *l = &cases[i].l;
        const trial t = { convolve, l, .in = { l->x, l->w } };
        trial_result r = trial_run(&t);
        cr_expect_eq(r.shape.ndim, cases[i].y.ndim, "case %zu", i);
        for (int k = 0; k < r.shape.ndim; k++)
            cr_expect_eq(r.shape.dim[k], cases[i].y.dim[k], "case %zu, axis %d", i, k);
        trial_free(&r);
    }
}

Test(conv, threads_do_not_change_bits)
{
    for (size_t i = 0; i < COUNT(layers); i++) {
        const trial t = { convolve, &layers[i], .in = { layers[i].x, layers[i].w, layers[i].b } };
        cr_expect(trial_same_on_threads(&t), "%s", layers[i].name);
    }
}

Test(conv, messages)
{
    static const struct {
        layer l;
        const char *text;
    } cases[] = {
        { { "", { 3, { 2, 9, 3 } }, { 3, { 4, 1, 3 } }, { 0 }, ONE(0, 0, 0) },
          "depthwise_conv1d: w must be [3,1,K]\n  inputs f32[2,9,3], f32[4,1,3], none\n" },
        { { "", { 4, { 2, 9, 9, 3 } }, { 4, { 3, 2, 3, 3 } }, { 0 }, TWO(0, 0, 0) },
          "depthwise_conv2d: w must be [3,1,KH,KW]\n" },
        { { "", { 3, { 2, 4, 9 } }, { 3, { 4, 1, 3 } }, { 0 }, ONE(0, 0, 0) },
          "depthwise_conv1d: x must be [B,N,4], channels last; it looks like channels first: "
          "tp_permute it by 0, 2, 1\n" },
        { { "", { 4, { 2, 9, 9, 3 } }, { 3, { 3, 1, 3 } }, { 0 }, TWO(0, 0, 0) },
          "depthwise_conv2d: w must be [C,1,KH,KW]\n" },
        { { "", { 2, { 9, 3 } }, { 4, { 3, 1, 3, 3 } }, { 0 }, ONE(0, 0, 0) },
          "depthwise_conv2d: x must be [B,H,W,C]\n" },
        { { "", { 3, { 2, 9, 3 } }, { 3, { 3, 1, 3 } }, { 1, { 2 } }, ONE(0, 0, 0) },
          "depthwise_conv1d: b must be [3]\n" },
        { { "", { 3, { 2, 9, 3 } }, { 3, { 3, 1, 3 } }, { 0 }, ONE(-1, 0, 0) },
          "depthwise_conv1d: stride cannot be -1\n" },
        { { "", { 3, { 2, 9, 3 } }, { 3, { 3, 1, 3 } }, { 0 }, ONE(1, -2, 0) },
          "depthwise_conv1d: pad cannot be -2\n" },
        { { "", { 3, { 2, 9, 3 } }, { 3, { 3, 1, 3 } }, { 0 }, ONE(1, 0, -3) },
          "depthwise_conv1d: dilation cannot be -3\n" },
        { { "", { 3, { 2, 9, 3 } }, { 3, { 3, 1, 3 } }, { 0 }, { .pad = { 1, 1 } } },
          "depthwise_conv1d: pad[1] must be 0, not 1: there is one axis\n" },
        { { "", { 4, { 2, 9, 9, 3 } }, { 4, { 3, 1, 3, 3 } }, { 0 }, { .groups = 3 } },
          "depthwise_conv2d: groups must be 0, not 3: each channel has its own kernel\n" },
        { { "", { 3, { 2, 9, 3 } }, { 3, { 3, 1, 0 } }, { 0 }, ONE(0, 0, 0) },
          "depthwise_conv1d: kernel sizes must be 1 or more\n" },
        { { "", { 4, { 2, 9, 4, 3 } }, { 4, { 3, 1, 3, 3 } }, { 0 }, TWO(1, 1, 4) },
          "depthwise_conv2d: kernel spans 9, axis 2 with its pad only 6\n" },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const layer *l = &cases[i].l;
        const trial t = { convolve, l, .in = { l->x, l->w, l->b } };
        cr_expect(trial_fails(&t, cases[i].text), "case %zu", i);
    }
}
