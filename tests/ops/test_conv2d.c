/* test_conv2d.c - tp_conv2d, and tp_conv1d as its one-row case, against naive loops in f64, on
 * every instruction set: values and gradients for kernels, strides, pads, dilations, groups and
 * sizes around the tiles of the kernels; bf16, equal bits on any number of threads, sizes,
 * defaults, messages. */
#include <criterion/criterion.h>
#include <string.h>

#include "support/trial.h"
#include "support/values.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

typedef struct layer {
    const char *name;
    tp_shape x, w, b; /* [B,H,W,Ci], [Co,Ci/groups,KH,KW], [Co] or absent */
    tp_conv_cfg cfg;
} layer;

static tp_tensor convolve(tp_tape *T, const tp_tensor *x, const void *env)
{
    const layer *l = env;
    return tp_conv2d(T, x[0], x[1], x[2], l->cfg);
}

#define X TRIAL_MAP
#define V TRIAL_VECTOR

#define O(sh, sw, ph, pw, dh, dw, groups)                                                          \
    {                                                                                              \
        { sh, sw }, { ph, pw }, { dh, dw }, groups                                                 \
    }

static const layer layers[] = {
    { "plain", X(2, 7, 9, 3), X(5, 3, 3, 3), V(5), { .groups = 1 } },
    { "3x3", X(2, 20, 20, 32), X(24, 32, 3, 3), V(24), { .pad = { 1, 1 } } },
    { "3x3, few positions", X(3, 5, 5, 40), X(70, 40, 3, 3), V(70), { .pad = { 1, 1 } } },
    { "3x3, many channels", X(1, 4, 5, 130), X(140, 130, 3, 3), { 0 }, { .pad = { 1, 1 } } },
    { "3x3, stride 2", X(2, 15, 17, 20), X(24, 20, 3, 3), V(24), O(2, 2, 1, 1, 1, 1, 0) },
    { "1x1", X(2, 9, 11, 33), X(17, 33, 1, 1), V(17), { .groups = 1 } },
    { "1x1, stride 2", X(2, 9, 10, 33), X(17, 33, 1, 1), V(17), { .stride = { 2, 2 } } },
    { "stem", X(2, 35, 33, 3), X(16, 3, 7, 7), V(16), O(4, 4, 2, 2, 1, 1, 0) },
    { "patches", X(2, 32, 48, 3), X(24, 3, 16, 16), V(24), { .stride = { 16, 16 } } },
    { "small patches", X(2, 14, 14, 24), X(48, 24, 2, 2), V(48), { .stride = { 2, 2 } } },
    { "patches, some left over", X(1, 11, 14, 5), X(6, 5, 4, 4), V(6), { .stride = { 4, 4 } } },
    { "axes apart", X(1, 14, 13, 6), X(7, 6, 3, 2), V(7), O(3, 1, 0, 2, 2, 3, 0) },
    { "dilation", X(1, 23, 30, 8), X(9, 8, 3, 3), V(9), O(1, 1, 4, 4, 4, 4, 0) },
    { "strided dilation", X(1, 23, 30, 8), X(9, 8, 3, 3), V(9), O(4, 6, 3, 3, 2, 4, 0) },
    { "stride skips", X(1, 20, 19, 4), X(5, 4, 2, 3), V(5), { .stride = { 5, 4 } } },
    { "pad over the edge", X(1, 3, 2, 4), X(5, 4, 2, 2), V(5), { .pad = { 5, 6 } } },
    { "groups", X(2, 9, 10, 12), X(18, 4, 3, 3), V(18), O(1, 1, 1, 1, 1, 1, 3) },
    { "groups, stride", X(1, 9, 10, 32), X(32, 8, 3, 3), V(32), O(2, 2, 1, 1, 1, 1, 4) },
    { "depthwise, two a group", X(1, 6, 7, 5), X(10, 1, 3, 3), V(10), O(1, 1, 1, 1, 1, 1, 5) },
    { "depthwise, axes apart", X(1, 6, 7, 5), X(5, 1, 3, 3), V(5), O(1, 2, 1, 1, 1, 1, 5) },
    { "depthwise", X(1, 6, 7, 5), X(5, 1, 3, 3), V(5), O(2, 2, 1, 1, 1, 1, 5) },
    { "long rows", X(1, 3, 700, 3), X(4, 3, 3, 3), V(4), { .pad = { 1, 1 } } },
    { "wide rows", X(1, 3, 300, 8), X(8, 8, 3, 3), V(8), { .pad = { 1, 1 } } },
    { "many small images", X(70, 3, 2, 4), X(6, 4, 2, 2), V(6), { .groups = 1 } },
    { "many tiles", X(9, 40, 30, 3), X(4, 3, 3, 3), V(4), { .pad = { 1, 1 } } },
    { "no images", X(0, 3, 3, 2), X(4, 2, 3, 3), V(4), { .pad = { 1, 1 } } },
    { "no inputs", X(1, 3, 3, 0), X(4, 0, 3, 3), V(4), { .pad = { 1, 1 } } },
    { "no outputs", X(1, 3, 3, 2), X(0, 2, 3, 3), V(0), { .pad = { 1, 1 } } },
    { "no rows", X(1, 0, 3, 2), X(4, 2, 1, 3), V(4), { .pad = { 1, 1 } } },
};

/* Adds the contributions of the outputs at one position to y, dx, dw, db. */
static void naive_position(const layer *l, const trial_result *r, int64_t b, int64_t oh, int64_t ow,
                           int64_t at, double *y, double *dx[3])
{
    const tp_conv_cfg *o = &l->cfg;
    const int64_t sh = o->stride[0] ? o->stride[0] : 1, sw = o->stride[1] ? o->stride[1] : 1;
    const int64_t dh = o->dilation[0] ? o->dilation[0] : 1;
    const int64_t dw = o->dilation[1] ? o->dilation[1] : 1, groups = o->groups ? o->groups : 1;
    const int64_t H = l->x.dim[1], W = l->x.dim[2], Ci = l->x.dim[3], n = l->w.dim[1];
    const int64_t KH = l->w.dim[2], KW = l->w.dim[3], Co = l->w.dim[0];
    for (int64_t c = 0; c < Co; c++) {
        const double dy = r->dy[at + c];
        const int64_t group = c / (Co / groups);
        if (r->x[2]) {
            y[at + c] += r->x[2][c];
            dx[2][c] += dy;
        }
        for (int64_t k = 0; k < KH * KW; k++) {
            const int64_t ih = oh * sh - o->pad[0] + k / KW * dh;
            const int64_t iw = ow * sw - o->pad[1] + k % KW * dw;
            if (ih < 0 || ih >= H || iw < 0 || iw >= W) continue;
            for (int64_t j = 0; j < n; j++) {
                const int64_t i = ((b * H + ih) * W + iw) * Ci + group * n + j;
                const int64_t v = (c * n + j) * KH * KW + k;
                y[at + c] += r->x[0][i] * r->x[1][v];
                dx[0][i] += dy * r->x[1][v];
                dx[1][v] += dy * r->x[0][i];
            }
        }
    }
}

static void naive(const void *env, const trial_result *r, double *y, double *dx[3])
{
    const layer *l = env;
    const int64_t C = r->shape.dim[3], OW = r->shape.dim[2], OH = r->shape.dim[1];
    for (int64_t o = 0; C > 0 && o < r->ny / C; o++)
        naive_position(l, r, o / OW / OH, o / OW % OH, o % OW, o * C, y, dx);
}

static void check(const layer *l, tp_dtype dt, tp_dtype compute, tp_isa isa, double tol)
{
    const trial t = { convolve,           l,         .in = { l->x, l->w, l->b }, .dtype = dt,
                      .compute = compute, .isa = isa };
    trial_compare(&t, naive, l->name, tol);
}

Test(conv2d, values_and_gradients)
{
    for (tp_isa isa = TP_ISA_BASE; isa <= TP_ISA_AVX512; isa++)
        for (size_t i = 0; i < COUNT(layers); i++) {
            if (trial_can(TP_F32, isa)) check(&layers[i], TP_F32, TP_F32, isa, 5e-6);
            if (trial_can(TP_F64, isa)) check(&layers[i], TP_F64, TP_F64, isa, 1e-13);
        }
}

/* Sizes around the blocks of products in bf16: odd and even sums, channels beyond whole vectors,
 * more than one block of columns and of terms, positions read in place and gathered. */
static const layer large[] = {
    { "3x3, in place", X(2, 9, 11, 64), X(64, 64, 3, 3), V(64), { .pad = { 1, 1 } } },
    { "3x3, odd sums", X(1, 13, 7, 49), X(51, 49, 3, 3), V(51), { .pad = { 1, 1 } } },
    { "3x3, blocks of terms", X(1, 8, 9, 150), X(70, 150, 3, 3), V(70), { .pad = { 1, 1 } } },
    { "3x3, blocks of columns", X(1, 8, 8, 52), X(300, 52, 3, 3), { 0 }, { .pad = { 1, 1 } } },
    { "3x3, stride 2", X(2, 17, 15, 53), X(67, 53, 3, 3), V(67), O(2, 2, 1, 1, 1, 1, 0) },
    { "many tiles", X(3, 40, 30, 50), X(48, 50, 3, 3), V(48), { .pad = { 1, 1 } } },
    { "1x1", X(2, 9, 11, 65), X(81, 65, 1, 1), V(81), { .groups = 1 } },
    { "1x1, stride 2", X(2, 15, 16, 65), X(49, 65, 1, 1), V(49), { .stride = { 2, 2 } } },
    { "stem", X(2, 35, 33, 3), X(64, 3, 7, 7), V(64), O(2, 2, 3, 3, 1, 1, 0) },
    { "dilation", X(1, 14, 15, 56), X(57, 56, 3, 3), V(57), O(1, 1, 2, 2, 2, 2, 0) },
    { "groups", X(1, 12, 13, 100), X(98, 50, 3, 3), V(98), O(1, 1, 1, 1, 1, 1, 2) },
};

Test(conv2d, bf16)
{
    for (tp_isa isa = TP_ISA_BASE; isa <= TP_ISA_AMX; isa++) {
        if (!trial_can(TP_F32, isa)) continue;
        check(&layers[1], TP_F32, TP_BF16, isa, 2e-2);
        check(&layers[4], TP_F32, TP_BF16, isa, 2e-2);
        for (size_t i = 0; i < COUNT(large); i++) check(&large[i], TP_F32, TP_BF16, isa, 2e-2);
    }
}

static void check_threads(const layer *l, tp_dtype compute)
{
    const trial t = { convolve, l, .in = { l->x, l->w, l->b }, .compute = compute };
    cr_expect(trial_same_on_threads(&t), "%s", l->name);
}

Test(conv2d, threads_do_not_change_bits)
{
    for (size_t i = 0; i < COUNT(layers); i++) check_threads(&layers[i], TP_F32);
    for (size_t i = 0; i < COUNT(large); i++) check_threads(&large[i], TP_BF16);
}

static tp_tensor defaults(tp_tape *T, const tp_tensor *x, const void *env)
{
    (void)env;
    return tp_conv2d(T, x[0], x[1], TP_NONE, (tp_conv_cfg){ 0 });
}

Test(conv2d, without_options)
{
    const trial t = { defaults, NULL, .in = { X(2, 7, 8, 3), X(4, 3, 3, 2) } };
    trial_result r = trial_run(&t);
    cr_expect_str_empty(r.why);
    cr_expect(r.shape.dim[1] == 5 && r.shape.dim[2] == 7 && r.shape.dim[3] == 4);
    trial_free(&r);
}

Test(conv2d, messages)
{
    static const struct {
        layer l;
        const char *text;
    } cases[] = {
        { { "", X(2, 9, 9, 3), X(4, 2, 3, 3), { 0 }, { .groups = 1 } },
          "conv2d: w must be [Co,3,KH,KW]\n  inputs f32[2,9,9,3], f32[4,2,3,3], none\n" },
        { { "", X(2, 3, 9, 8), X(4, 3, 3, 3), { 0 }, { .groups = 1 } },
          "conv2d: x must be [B,H,W,3], channels last; it looks like channels first: tp_permute it "
          "by 0, 2, 3, 1\n" },
        { { "", X(2, 6, 9, 9), X(4, 3, 3, 3), { 0 }, { .groups = 2 } },
          "conv2d: x must be [B,H,W,6], channels last" },
        { { "", X(2, 9, 9, 3), { 3, { 4, 3, 3 } }, { 0 }, { .groups = 1 } },
          "conv2d: w must be [Co,Ci/groups,KH,KW]\n" },
        { { "", { 3, { 9, 9, 3 } }, X(4, 3, 3, 3), { 0 }, { .groups = 1 } },
          "conv2d: x must be [B,H,W,C]\n" },
        { { "", X(2, 9, 9, 3), X(4, 3, 3, 3), V(3), { .groups = 1 } }, "conv2d: b must be [4]\n" },
        { { "", X(2, 9, 9, 3), X(4, 3, 3, 3), V(4), { .groups = 2 } },
          "conv2d: 3 inputs and 4 outputs are not multiples of 2 groups\n" },
        { { "", X(2, 9, 9, 3), X(4, 3, 3, 3), V(4), { .groups = -1 } },
          "conv2d: groups cannot be -1\n" },
        { { "", X(2, 9, 9, 3), X(4, 3, 3, 3), V(4), { .stride = { 1, -1 } } },
          "conv2d: stride cannot be -1\n" },
        { { "", X(2, 9, 9, 3), X(4, 3, 3, 3), V(4), { .pad = { -2, 0 } } },
          "conv2d: pad cannot be -2\n" },
        { { "", X(2, 9, 9, 3), X(4, 3, 3, 3), V(4), { .dilation = { -3, 0 } } },
          "conv2d: dilation cannot be -3\n" },
        { { "", X(2, 9, 9, 3), X(4, 3, 3, 0), V(4), { .groups = 1 } },
          "conv2d: kernel sizes must be 1 or more\n" },
        { { "", X(2, 9, 4, 3), X(4, 3, 3, 3), V(4), { .pad = { 0, 1 }, .dilation = { 1, 4 } } },
          "conv2d: kernel spans 9, axis 2 with its pad only 6\n" },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const layer *l = &cases[i].l;
        const trial t = { convolve, l, .in = { l->x, l->w, l->b } };
        cr_expect(trial_fails(&t, cases[i].text), "case %zu", i);
    }
}

/* ---- sequences: images of one row ---- */

static tp_tensor convolve_line(tp_tape *T, const tp_tensor *x, const void *env)
{
    const layer *l = env;
    return tp_conv1d(T, x[0], x[1], x[2], l->cfg);
}

static void naive_line(const void *env, const trial_result *r, double *y, double *dx[3])
{
    const layer *l = env;
    const tp_conv_cfg *o = &l->cfg;
    const layer flat = {
        "",
        X(l->x.dim[0], 1, l->x.dim[1], l->x.dim[2]),
        X(l->w.dim[0], l->w.dim[1], 1, l->w.dim[2]),
        l->b,
        { { 1, o->stride[0] }, { 0, o->pad[0] }, { 1, o->dilation[0] }, o->groups },
    };
    trial_result map = *r;
    map.shape = TP_SHAPE(r->shape.dim[0], 1, r->shape.dim[1], r->shape.dim[2]);
    naive(&flat, &map, y, dx);
}

#define L(n, c, k)                                                                                 \
    {                                                                                              \
        3,                                                                                         \
        {                                                                                          \
            n, c, k                                                                                \
        }                                                                                          \
    }

static const layer lines[] = {
    { "plain", L(2, 9, 3), L(5, 3, 3), V(5), { .groups = 1 } },
    { "same size", L(3, 70, 32), L(24, 32, 3), V(24), { .pad = { 1 } } },
    { "one tap", L(2, 90, 33), L(17, 33, 1), { 0 }, { .groups = 1 } },
    { "all three", L(2, 61, 8), L(9, 8, 4), V(9), { { 3 }, { 4 }, { 2 }, 0 } },
    { "groups", L(2, 31, 12), L(18, 4, 3), V(18), { .pad = { 1 }, .groups = 3 } },
    { "depthwise", L(2, 31, 12), L(12, 1, 3), V(12), { .pad = { 1 }, .groups = 12 } },
    { "a long line", L(1, 1500, 4), L(5, 4, 5), V(5), { .pad = { 2 } } },
    { "no tokens", L(2, 0, 4), L(5, 4, 3), V(5), { .pad = { 1 } } },
};

Test(conv2d, sequences)
{
    for (tp_isa isa = TP_ISA_BASE; isa <= TP_ISA_AVX512; isa++)
        for (size_t i = 0; i < COUNT(lines); i++)
            for (int k = 0; k < 2; k++) {
                const tp_dtype dt = k ? TP_F64 : TP_F32;
                const trial t = {
                    convolve_line, &lines[i],     .in = { lines[i].x, lines[i].w, lines[i].b },
                    .dtype = dt,   .compute = dt, .isa = isa
                };
                if (trial_can(dt, isa))
                    trial_compare(&t, naive_line, lines[i].name, k ? 1e-13 : 5e-6);
            }
}

Test(conv2d, messages_of_sequences)
{
    static const struct {
        layer l;
        const char *text;
    } cases[] = {
        { { "", L(2, 9, 3), L(4, 2, 3), { 0 }, { .groups = 0 } },
          "conv1d: w must be [Co,3,K]\n  inputs f32[2,9,3], f32[4,2,3], none\n" },
        { { "", L(2, 3, 9), L(4, 3, 3), { 0 }, { .groups = 0 } },
          "conv1d: x must be [B,N,3], channels last; it looks like channels first: "
          "tp_permute it by 0, 2, 1\n" },
        { { "", X(2, 9, 9, 3), L(4, 3, 3), { 0 }, { .groups = 0 } },
          "conv1d: x must be [B,N,C]\n" },
        { { "", L(2, 9, 3), X(4, 3, 3, 3), { 0 }, { .groups = 0 } },
          "conv1d: w must be [Co,Ci/groups,K]\n" },
        { { "", L(2, 9, 3), L(4, 3, 3), { 0 }, { .stride = { 1, 1 } } },
          "conv1d: stride[1] must be 0, not 1: there is one axis\n" },
        { { "", L(2, 2, 3), L(4, 3, 3), { 0 }, { .groups = 0 } },
          "conv1d: kernel spans 3, axis 1 with its pad only 2\n" },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const layer *l = &cases[i].l;
        const trial t = { convolve_line, l, .in = { l->x, l->w, l->b } };
        cr_expect(trial_fails(&t, cases[i].text), "case %zu", i);
    }
}
