/* test_remap.c - flips, pads of several axes and repeats against naive loops over indices, in every
 * dtype; parts of given sizes; named views; errors. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "support/loops.h"
#include "support/ops.h"
#include "support/values.h"

TestSuite(remap, .init = cpu_tape_open, .fini = cpu_tape_close);

/* ---- one axis at a time ---- */

#define VALUE 3.0

typedef enum kind { FLIP, CONSTANT, REFLECT, REPLICATE, CIRCULAR, REPEAT, INTERLEAVE } kind;

static const struct {
    const char *name;
    kind kind;
    tp_shape x;
    int axes;               /* of flips; the axis of interleaved repeats */
    int64_t a[4], b[4], at; /* before and after; counts of repeats       */
} cases[] = {
    { "flip a vector", FLIP, { 1, { 70001 } }, 0, { 0 }, { 0 }, 0 },
    { "flip rows of three", FLIP, { 3, { 4, 5, 3 } }, 1, { 0 }, { 0 }, 0 },
    { "flip rows of seven", FLIP, { 3, { 4, 5, 7 } }, 1, { 0 }, { 0 }, 0 },
    { "flip long rows", FLIP, { 2, { 3, 70000 } }, 0, { 0 }, { 0 }, 0 },
    { "flip axes apart", FLIP, { 4, { 3, 5, 4, 6 } }, TP_AXES(0, 2), { 0 }, { 0 }, 0 },
    { "flip neighbours", FLIP, { 4, { 3, 5, 4, 6 } }, TP_AXES(1, -2), { 0 }, { 0 }, 0 },
    { "flip everything", FLIP, { 3, { 3, 50, 40 } }, TP_ALL, { 0 }, { 0 }, 0 },
    { "flip, kept or not", FLIP, { 2, { 3, 5 } }, TP_KEEP(1), { 0 }, { 0 }, 0 },
    { "a constant", CONSTANT, { 3, { 3, 4, 5 } }, 0, { 1, 0, 2 }, { 0, 3, 1 }, 0 },
    { "a constant around long rows", CONSTANT, { 2, { 2, 40000 } }, 0, { 1 }, { 2 }, 0 },
    { "a constant around nothing", CONSTANT, { 2, { 3, 0 } }, 0, { 1, 1 }, { 0, 1 }, 0 },
    { "reflect an image", REFLECT, { 4, { 2, 9, 8, 3 } }, 0, { 0, 8, 1 }, { 0, 2, 7 }, 0 },
    { "reflect a sequence", REFLECT, { 2, { 3, 30000 } }, 0, { 0, 10000 }, { 0, 29999 }, 0 },
    { "reflect long rows", REFLECT, { 2, { 3, 40000 } }, 0, { 2 }, { 1 }, 0 },
    { "replicate an image", REPLICATE, { 4, { 2, 3, 4, 3 } }, 0, { 0, 5, 1 }, { 0, 2, 9 }, 0 },
    { "replicate one element", REPLICATE, { 2, { 1, 1 } }, 0, { 2, 300 }, { 3, 40 }, 0 },
    { "replicate every axis",
      REPLICATE,
      { 4, { 2, 3, 2, 3 } },
      0,
      { 1, 1, 2, 1 },
      { 2, 1, 1, 3 },
      0 },
    { "circular image", CIRCULAR, { 4, { 2, 5, 4, 3 } }, 0, { 0, 5, 1 }, { 0, 2, 4 }, 0 },
    { "circular sequence", CIRCULAR, { 2, { 2, 4000 } }, 0, { 0, 3999 }, { 0, 4000 }, 0 },
    { "pad by nothing", REFLECT, { 2, { 2, 3 } }, 0, { 0 }, { 0 }, 0 },
    { "repeat rows", REPEAT, { 2, { 30, 40 } }, 0, { 3, 1 }, { 0 }, 2 },
    { "repeat columns", REPEAT, { 2, { 30, 40 } }, 0, { 1, 5 }, { 0 }, 2 },
    { "repeat both", REPEAT, { 2, { 3, 4 } }, 0, { 2, 3 }, { 0 }, 2 },
    { "repeat four axes", REPEAT, { 4, { 3, 4, 2, 5 } }, 0, { 2, 3, 4, 2 }, { 0 }, 4 },
    { "repeat along new axes", REPEAT, { 1, { 5 } }, 0, { 2, 3, 2 }, { 0 }, 3 },
    { "repeat a scalar", REPEAT, { 0, { 0 } }, 0, { 4 }, { 0 }, 1 },
    { "repeat once", REPEAT, { 2, { 3, 4 } }, 0, { 1, 1 }, { 0 }, 2 },
    { "repeat no times", REPEAT, { 2, { 3, 4 } }, 0, { 2, 0 }, { 0 }, 2 },
    { "interleave rows", INTERLEAVE, { 2, { 7, 6 } }, 0, { 3 }, { 0 }, 0 },
    { "interleave between", INTERLEAVE, { 3, { 3, 4, 5 } }, -2, { 2 }, { 0 }, 0 },
    { "interleave elements", INTERLEAVE, { 2, { 3, 5 } }, 1, { 4 }, { 0 }, 0 },
    { "interleave no times", INTERLEAVE, { 2, { 3, 5 } }, 1, { 0 }, { 0 }, 0 },
};

static tp_tensor apply(size_t i, tp_tensor x)
{
    tp_pad_cfg pad = { .mode = (tp_pad_mode)(cases[i].kind - CONSTANT), .value = VALUE };
    tp_shape times = { .ndim = (int)cases[i].at };
    memcpy(pad.before, cases[i].a, sizeof cases[i].a);
    memcpy(pad.after, cases[i].b, sizeof cases[i].b);
    memcpy(times.dim, cases[i].a, sizeof cases[i].a);
    switch (cases[i].kind) {
    case FLIP: return tp_flip(T, x, cases[i].axes);
    case REPEAT: return tp_repeat(T, x, times);
    case INTERLEAVE: return tp_repeat_interleave(T, x, cases[i].axes, cases[i].a[0]);
    default: return tp_pad_nd(T, x, pad);
    }
}

static bool is_flipped(size_t i, int axis)
{
    const int axes = cases[i].axes, ndim = cases[i].x.ndim;
    if (axes == TP_ALL) return true;
    if (axes >= -8 && axes < 8) return axis == axes;
    return (axes & TP__AXES_BITS & (1 << axis | 1 << (axis - ndim + 16))) != 0;
}

/* The size of result axis k for size n, and the source in x of its index j, or -1. */
static int64_t size_of(size_t i, int k, int64_t n)
{
    const int last = cases[i].axes < 0 ? cases[i].axes + cases[i].x.ndim : cases[i].axes;
    switch (cases[i].kind) {
    case FLIP: return n;
    case REPEAT: return n * cases[i].a[k];
    case INTERLEAVE: return k == last ? n * cases[i].a[0] : n;
    default: return cases[i].a[k] + n + cases[i].b[k];
    }
}

static int64_t source(size_t i, int k, int64_t n, int64_t j)
{
    const int64_t x = j - cases[i].a[k];
    switch (cases[i].kind) {
    case FLIP: return is_flipped(i, k) ? n - 1 - j : j;
    case CONSTANT: return x >= 0 && x < n ? x : -1;
    case REFLECT: return x < 0 ? -x : x < n ? x : 2 * (n - 1) - x;
    case REPLICATE: return x < 0 ? 0 : x < n ? x : n - 1;
    case CIRCULAR: return (x + n) % n;
    case REPEAT: return j % n;
    default: return size_of(i, k, n) == n ? j : j / cases[i].a[0];
    }
}

/* Values exact in dtype, distinct as far as possible. */
static double value(tp_dtype dt, int64_t e)
{
    const int64_t limit = dt == TP_U8 || dt == TP_BF16 ? 256 : 1 << 20;
    return (double)(e % limit);
}

static void check(size_t i, tp_dtype dt)
{
    tp_shape sx = cases[i].x, from = sx, sy;
    for (; cases[i].kind == REPEAT && from.ndim < cases[i].at; from.ndim++) { /* new leading axes */
        memmove(from.dim + 1, from.dim, 7 * sizeof *from.dim);
        from.dim[0] = 1;
    }
    sy = from;
    for (int k = 0; k < sy.ndim; k++) sy.dim[k] = size_of(i, k, from.dim[k]);
    const int64_t nx = elements(sx), ny = elements(sy);
    const bool differentiable = dt == TP_F32 || dt == TP_F64;
    double *x = calloc((size_t)nx + 1, sizeof *x), *y = calloc((size_t)ny + 1, sizeof *y);
    double *w = calloc((size_t)ny + 1, sizeof *w), *want = calloc((size_t)nx + 1, sizeof *want);
    for (int64_t e = 0; e < nx; e++) x[e] = value(dt, e);
    for (int64_t e = 0; e < ny; e++) w[e] = (double)(e % 5 + 1);
    tp_reset(T);
    const tp_tensor tx = (differentiable ? values_input : values_constant)(T, dt, sx, x);
    const tp_tensor ty = apply(i, tx);
    const tp_shape got = tp_shape_of(ty);
    cr_assert(got.ndim == sy.ndim && memcmp(got.dim, sy.dim, (size_t)sy.ndim * sizeof *sy.dim) == 0,
              "%s: wrong shape: %s", cases[i].name, tp_why(T));
    values_read(T, ty, y);
    int wrong = 0;
    for (int64_t e = 0; e < ny; e++) {
        int64_t index[TP_MAX_DIMS] = { 0 };
        bool gap = false;
        index_of(sy, e, index);
        for (int k = 0; k < sy.ndim; k++) {
            index[k] = source(i, k, from.dim[k], index[k]);
            gap |= index[k] < 0;
        }
        const int64_t at = gap ? 0 : element_at(from, index);
        wrong += y[e] != (gap ? VALUE : x[at]);
        if (!gap) want[at] += w[e];
    }
    cr_expect_eq(wrong, 0, "%s in %s: %d wrong values", cases[i].name, tp_dtype_name(dt), wrong);
    if (differentiable) {
        tp_backward(T, tp_sum(T, tp_mul(T, ty, values_constant(T, dt, sy, w)), TP_ALL));
        values_read(T, tp_grad(T, tx), x);
        const double off = values_error(x, want, nx, 0.0);
        cr_expect_lt(off, 1e-6, "%s in %s: gradient off by %g", cases[i].name, tp_dtype_name(dt),
                     off);
    }
    free(x), free(y), free(w), free(want);
}

Test(remap, one_input)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (tp_dtype dt = 0; dt < TP_NDTYPES; dt++) check(i, dt);
}

/* Eight axes, each repeated: too many for one expansion. */
Test(remap, repeat_eight_axes)
{
    const double x[4] = { 1, 2, 3, 4 };
    double y[1024];
    const tp_tensor t = values_constant(T, TP_F32, TP_SHAPE(1, 1, 1, 2, 1, 1, 1, 2), x);
    values_read(T, tp_repeat(T, t, TP_SHAPE(2, 2, 2, 2, 2, 2, 2, 2)), y);
    for (int e = 0; e < 1024; e++) /* axes 3 and 7 have size 4 */
        cr_assert_eq(y[e], x[(e >> 5 & 1) * 2 + (e & 1)], "element %d", e);
}

/* ---- parts ---- */

static bool is_part(tp_tensor y, int64_t begin, int64_t n)
{
    double v[64];
    bool good = tp_ndim(y) == 2 && tp_dim(y, 0) == 2 && tp_dim(y, 1) == n;
    if (good) values_read(T, y, v);
    for (int64_t i = 0; good && i < 2 * n; i++) good = v[i] == (double)(i / n * 7 + begin + i % n);
    return good;
}

/* x [2,7] in chunks along its last axis. */
Test(remap, chunk)
{
    static const struct {
        int n, parts;
        int64_t size;
    } want[] = { { 1, 1, 7 }, { 2, 2, 4 }, { 3, 3, 3 }, { 4, 4, 2 },
                 { 5, 4, 2 }, { 6, 4, 2 }, { 7, 7, 1 }, { 9, 7, 1 } };
    double x[14];
    for (int i = 0; i < 14; i++) x[i] = i;
    const tp_tensor t = values_constant(T, TP_F64, TP_SHAPE(2, 7), x);
    for (size_t k = 0; k < sizeof want / sizeof *want; k++) {
        tp_tensor y[9];
        const int64_t size = want[k].size;
        cr_expect_eq(tp_chunk(T, t, -1, want[k].n, y), want[k].parts);
        for (int64_t i = 0; i < want[k].n; i++)
            if (i < want[k].parts)
                cr_expect(is_part(y[i], i * size, size < 7 - i * size ? size : 7 - i * size),
                          "part %d of %d", (int)i, want[k].n);
            else
                cr_expect(!y[i].node);
    }
    tp_tensor y[3];
    cr_expect_eq(tp_chunk(T, tp_full(T, TP_F32, TP_SHAPE(0, 2), 1), 0, 3, y), 3);
    for (int i = 0; i < 3; i++) cr_expect_eq(tp_dim(y[i], 0), 0);
}

/* Gradients come from the used parts. */
Test(remap, split_sizes)
{
    double x[14], g[14];
    tp_tensor y[3];
    for (int i = 0; i < 14; i++) x[i] = i;
    const tp_tensor t = values_input(T, TP_F64, TP_SHAPE(2, 7), x);
    tp_split_sizes(T, t, 1, 3, (const int64_t[]){ 2, 1, 4 }, y);
    cr_expect(is_part(y[0], 0, 2) && is_part(y[1], 2, 1) && is_part(y[2], 3, 4));
    tp_backward(T, tp_sum(T, tp_concat(T, 1, y[0], tp_scale(T, y[2], 3)), TP_ALL));
    values_read(T, tp_grad(T, t), g);
    for (int i = 0; i < 14; i++) cr_expect_eq(g[i], i % 7 < 2 ? 1 : i % 7 == 2 ? 0 : 3);
}

/* ---- named views ---- */

static bool has_shape(tp_tensor x, tp_shape s)
{
    const tp_shape got = tp_shape_of(x);
    return tp_ok(T) && got.ndim == s.ndim &&
           memcmp(got.dim, s.dim, (size_t)s.ndim * sizeof *s.dim) == 0;
}

Test(remap, named_views)
{
    const tp_tensor x = tp_full(T, TP_F32, TP_SHAPE(4, 1, 6, 1), 1),
                    one = tp_full(T, TP_F32, TP_SCALAR, 1);
    const size_t before = tp_device_stats(D).live_bytes;
    cr_expect(has_shape(tp_unsqueeze(T, x, 0), TP_SHAPE(1, 4, 1, 6, 1)));
    cr_expect(has_shape(tp_unsqueeze(T, x, 2), TP_SHAPE(4, 1, 1, 6, 1)));
    cr_expect(has_shape(tp_unsqueeze(T, x, -1), TP_SHAPE(4, 1, 6, 1, 1)));
    cr_expect(has_shape(tp_unsqueeze(T, x, -3), TP_SHAPE(4, 1, 1, 6, 1)));
    cr_expect(has_shape(tp_unsqueeze(T, one, 0), TP_SHAPE(1)));
    cr_expect(has_shape(tp_squeeze(T, x, 1), TP_SHAPE(4, 6, 1)));
    cr_expect(has_shape(tp_squeeze(T, x, TP_AXES(-1, 1)), TP_SHAPE(4, 6)));
    cr_expect(has_shape(tp_squeeze(T, x, TP_ALL), TP_SHAPE(4, 6)));
    cr_expect(has_shape(tp_squeeze(T, one, TP_ALL), TP_SCALAR));
    cr_expect(has_shape(tp_flatten(T, x, 0, -1), TP_SHAPE(24)));
    cr_expect(has_shape(tp_flatten(T, x, 1, 2), TP_SHAPE(4, 6, 1)));
    cr_expect(has_shape(tp_flatten(T, x, -2, -2), TP_SHAPE(4, 1, 6, 1)));
    cr_expect(has_shape(tp_flatten(T, one, 0, -1), TP_SHAPE(1)));
    cr_expect(has_shape(tp_transpose(T, x, 1, -1), TP_SHAPE(4, 1, 6, 1)));
    cr_expect_eq(tp_device_stats(D).live_bytes, before, "views take no memory");
    const double v[6] = { 1, 2, 3, 4, 5, 6 }, want[6] = { 1, 4, 2, 5, 3, 6 };
    double y[6];
    const tp_tensor t = tp_transpose(T, values_constant(T, TP_F32, TP_SHAPE(2, 3), v), 0, -1);
    cr_expect(has_shape(t, TP_SHAPE(3, 2)));
    values_read(T, t, y);
    cr_expect_arr_eq(y, want, sizeof want);
}

/* ---- errors ---- */

Test(remap, mistakes)
{
    const tp_tensor x = tp_full(T, TP_F32, TP_SHAPE(4, 6), 1),
                    i = tp_full(T, TP_I32, TP_SHAPE(4, 6), 1);
    tp_tensor y[4];
    tp_flip(T, x, 2);
    cr_expect(failed_with(T, "flip: axis 2 is out of range"));
    tp_pad_nd(T, x, (tp_pad_cfg){ { 0, -1 }, { 0, 2 }, TP_PAD_REFLECT, 0 });
    cr_expect(failed_with(T, "pad_nd: cannot pad axis 1 by -1 and 2; cut with tp_slice\n"));
    tp_pad_nd(T, x, (tp_pad_cfg){ { 0, 2 }, { 4 }, TP_PAD_REFLECT, 0 });
    cr_expect(failed_with(T, "pad_nd: cannot reflect 4 elements along axis 0 of size 4: "));
    tp_pad_nd(T, x, (tp_pad_cfg){ { 0, 7 }, { 4 }, TP_PAD_CIRCULAR, 0 });
    cr_expect(failed_with(T, "pad_nd: cannot continue axis 1 of size 6 by 7 elements: "));
    tp_pad_nd(T, tp_full(T, TP_F32, TP_SHAPE(0), 1),
              (tp_pad_cfg){ { 1 }, { 0 }, TP_PAD_REPLICATE, 0 });
    cr_expect(failed_with(T, "pad_nd: axis 0 is empty: there is nothing to replicate\n"));
    tp_pad_nd(T, x, (tp_pad_cfg){ { 0, 0, 1 }, { 0 }, TP_PAD_CONSTANT, 0 });
    cr_expect(failed_with(T, "pad_nd: axis 2 cannot be padded: x has 2 axes\n"));
    tp_pad_nd(T, i, (tp_pad_cfg){ { 1 }, { 0 }, TP_PAD_CONSTANT, 0.5 });
    cr_expect(failed_with(T, "pad_nd: i32 cannot hold the value 0.5\n"));
    tp_pad_nd(T, x, (tp_pad_cfg){ { INT64_MAX }, { 1 }, TP_PAD_CONSTANT, 0 });
    cr_expect(failed_with(T, "pad_nd: the padded axis is too long\n"));
    tp_pad_nd(T, x, (tp_pad_cfg){ .mode = (tp_pad_mode)4 });
    cr_expect(failed_with(T, "pad_nd: unknown mode 4\n"));
    tp_repeat(T, x, TP_SHAPE(2));
    cr_expect(failed_with(T, "repeat: 1 counts for 2 axes; at most 8 are possible\n"));
    tp_repeat(T, x, TP_SHAPE(2, -1));
    cr_expect(failed_with(T, "repeat: cannot repeat axis 1 -1 times\n"));
    tp_repeat(T, x, TP_SHAPE(1, INT64_MAX));
    cr_expect(failed_with(T, "repeat: the result is too large\n"));
    tp_repeat_interleave(T, x, 2, 2);
    cr_expect(failed_with(T, "repeat_interleave: axis 2 is out of range for 2 axes\n"));
    tp_repeat_interleave(T, x, 1, -2);
    cr_expect(failed_with(T, "repeat_interleave: cannot repeat elements -2 times\n"));
    tp_split_sizes(T, x, 1, 2, (const int64_t[]){ 2, 5 }, y);
    cr_expect(failed_with(T, "split_sizes: the first 2 sizes exceed the axis of size 6\n"));
    tp_split_sizes(T, x, 1, 2, (const int64_t[]){ 2, 1 }, y);
    cr_expect(failed_with(T, "split_sizes: the sizes leave 3 of an axis of size 6\n"));
    tp_split_sizes(T, x, 1, 2, (const int64_t[]){ 7, -1 }, y);
    cr_expect(failed_with(T, "split_sizes: the first 1 sizes exceed the axis of size 6\n"));
    tp_split_sizes(T, x, 1, 2, (const int64_t[]){ 6, -1 }, y);
    cr_expect(failed_with(T, "split_sizes: size 1 is -1\n"));
    tp_split_sizes(T, x, 1, 2, NULL, y);
    cr_expect(failed_with(T, "split_sizes: NULL was given in place of sizes\n"));
    cr_expect_eq(tp_chunk(T, x, 2, 2, y), 0);
    cr_expect(failed_with(T, "chunk: axis 2 is out of range for 2 axes\n"));
    cr_expect_eq(tp_chunk(T, x, 1, 0, y), 0);
    cr_expect(failed_with(T, "chunk: called with 1 inputs and 0 outputs\n"));
    tp_unsqueeze(T, x, 3);
    cr_expect(failed_with(T, "unsqueeze: axis 3 is out of range for 3 axes\n"));
    tp_squeeze(T, x, 1);
    cr_expect(failed_with(T, "squeeze: axis 1 has size 6: only axes of size 1 can be dropped\n"));
    tp_squeeze(T, x, TP_AXES(0, 2));
    cr_expect(failed_with(T, "squeeze: axis 2 is out of range"));
    tp_flatten(T, x, 1, 0);
    cr_expect(failed_with(T, "flatten: axis 1 comes after axis 0\n"));
    tp_transpose(T, x, 0, -3);
    cr_expect(failed_with(T, "transpose: axis -3 is out of range for 2 axes\n"));
    tp_transpose(T, TP_NONE, 0, 1);
    cr_expect(failed_with(T, "transpose: input 0"));
}
