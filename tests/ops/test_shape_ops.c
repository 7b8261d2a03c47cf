/* test_shape_ops.c - shape ops against naive loops over indices, in every dtype: values, gradients,
 * views, errors, empty tensors. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "support/loops.h"
#include "support/ops.h"
#include "support/values.h"

TestSuite(shape_ops, .init = cpu_tape_open, .fini = cpu_tape_close);

/* ---- ops of one input, described by the source of each element of y ---- */

typedef struct args {
    tp_shape s; /* the order of permute, the shape of expand */
    int axis;   /* counted from the front */
    int64_t a, b;
} args;

/* Maps the index of an element of y to its source in x. False if the element is padding. */
typedef bool (*source)(const args *g, tp_shape x, int64_t *index);
typedef tp_tensor (*apply)(const args *g, tp_tensor x);

#define PADDING 7.0

static tp_tensor permute(const args *g, tp_tensor x)
{
    return tp_permute(T, x, g->s);
}
static bool permuted(const args *g, tp_shape x, int64_t *index)
{
    int64_t y[TP_MAX_DIMS];
    memcpy(y, index, sizeof y);
    for (int i = 0; i < x.ndim; i++) index[(g->s.dim[i] + x.ndim) % x.ndim] = y[i];
    return true;
}

static tp_tensor slice(const args *g, tp_tensor x)
{
    return tp_slice(T, x, g->axis, g->a, g->b);
}
static bool sliced(const args *g, tp_shape x, int64_t *index)
{
    (void)x;
    index[g->axis] += g->a;
    return true;
}

static tp_tensor expand(const args *g, tp_tensor x)
{
    return tp_expand(T, x, g->s);
}
static bool expanded(const args *g, tp_shape x, int64_t *index)
{
    for (int i = 0; i < x.ndim; i++) index[i] = x.dim[i] == 1 ? 0 : index[i + g->s.ndim - x.ndim];
    return true;
}

static tp_tensor pad(const args *g, tp_tensor x)
{
    return tp_pad(T, x, g->axis - tp_ndim(x), g->a, g->b, PADDING);
}
static bool padded(const args *g, tp_shape x, int64_t *index)
{
    index[g->axis] -= g->a;
    return index[g->axis] >= 0 && index[g->axis] < x.dim[g->axis];
}

static tp_tensor roll(const args *g, tp_tensor x)
{
    return tp_roll(T, x, g->axis, g->a);
}
static bool rolled(const args *g, tp_shape x, int64_t *index)
{
    const int64_t n = x.dim[g->axis];
    index[g->axis] = ((index[g->axis] - g->a) % n + n) % n;
    return true;
}

static const struct {
    const char *name;
    apply op;
    source from;
    tp_shape x, y;
    args g;
} cases[] = {
    { "transpose", permute, permuted, { 2, { 5, 7 } }, { 2, { 7, 5 } }, { .s = { 2, { 1, 0 } } } },
    { "large transpose",
      permute,
      permuted,
      { 2, { 261, 131 } },
      { 2, { 131, 261 } },
      { .s = { 2, { -1, -2 } } } },
    { "heads",
      permute,
      permuted,
      { 4, { 3, 50, 4, 33 } },
      { 4, { 3, 4, 50, 33 } },
      { .s = { 4, { 0, 2, 1, 3 } } } },
    { "keys",
      permute,
      permuted,
      { 4, { 3, 50, 4, 33 } },
      { 4, { 3, 4, 33, 50 } },
      { .s = { 4, { 0, 2, 3, 1 } } } },
    { "batches of matrices",
      permute,
      permuted,
      { 3, { 5, 40, 70 } },
      { 3, { 5, 70, 40 } },
      { .s = { 3, { 0, 2, 1 } } } },
    { "all reversed",
      permute,
      permuted,
      { 4, { 3, 5, 7, 9 } },
      { 4, { 9, 7, 5, 3 } },
      { .s = { 4, { 3, 2, 1, 0 } } } },
    { "eight axes",
      permute,
      permuted,
      { 8, { 2, 3, 2, 1, 3, 2, 2, 3 } },
      { 8, { 3, 2, 3, 2, 2, 2, 3, 1 } },
      { .s = { 8, { 7, 5, 1, 0, 6, 2, 4, 3 } } } },
    { "nothing moves",
      permute,
      permuted,
      { 2, { 5, 7 } },
      { 2, { 5, 7 } },
      { .s = { 2, { 0, 1 } } } },
    { "an axis of 1 moves",
      permute,
      permuted,
      { 3, { 5, 1, 7 } },
      { 3, { 1, 5, 7 } },
      { .s = { 3, { 1, 0, 2 } } } },
    { "a scalar", permute, permuted, { 0, { 0 } }, { 0, { 0 } }, { .s = { 0, { 0 } } } },
    { "slice, leading",
      slice,
      sliced,
      { 2, { 9, 5 } },
      { 2, { 4, 5 } },
      { .axis = 0, .a = 3, .b = 4 } },
    { "slice, middle",
      slice,
      sliced,
      { 3, { 9, 70, 65 } },
      { 3, { 9, 33, 65 } },
      { .axis = 1, .a = 36, .b = 33 } },
    { "slice, last",
      slice,
      sliced,
      { 2, { 9, 5 } },
      { 2, { 9, 2 } },
      { .axis = 1, .a = 1, .b = 2 } },
    { "slice after 1",
      slice,
      sliced,
      { 3, { 1, 9, 5 } },
      { 3, { 1, 2, 5 } },
      { .axis = 1, .a = 7, .b = 2 } },
    { "slice, everything", slice, sliced, { 2, { 9, 5 } }, { 2, { 9, 5 } }, { .axis = 1, .b = 5 } },
    { "slice, nothing", slice, sliced, { 2, { 9, 5 } }, { 2, { 9, 0 } }, { .axis = 1, .a = 5 } },
    { "expand, leading",
      expand,
      expanded,
      { 1, { 5 } },
      { 2, { 33, 5 } },
      { .s = { 2, { 33, 5 } } } },
    { "expand, last",
      expand,
      expanded,
      { 2, { 40, 1 } },
      { 2, { 40, 511 } },
      { .s = { 2, { 40, 511 } } } },
    { "expand, around",
      expand,
      expanded,
      { 3, { 1, 5, 1 } },
      { 4, { 2, 3, 5, 7 } },
      { .s = { 4, { 2, 3, 5, 7 } } } },
    { "expand a scalar",
      expand,
      expanded,
      { 0, { 0 } },
      { 2, { 3, 5 } },
      { .s = { 2, { 3, 5 } } } },
    { "expand to nothing",
      expand,
      expanded,
      { 2, { 1, 5 } },
      { 2, { 0, 5 } },
      { .s = { 2, { 0, 5 } } } },
    { "pad, leading",
      pad,
      padded,
      { 2, { 3, 5 } },
      { 2, { 6, 5 } },
      { .axis = 0, .a = 2, .b = 1 } },
    { "pad, middle",
      pad,
      padded,
      { 3, { 30, 5, 70 } },
      { 3, { 30, 16, 70 } },
      { .axis = 1, .a = 11 } },
    { "pad, last", pad, padded, { 2, { 3, 5 } }, { 2, { 3, 8 } }, { .axis = 1, .b = 3 } },
    { "pad nothing", pad, padded, { 2, { 3, 0 } }, { 2, { 3, 2 } }, { .axis = 1, .a = 1, .b = 1 } },
    { "roll", roll, rolled, { 2, { 300, 101 } }, { 2, { 300, 101 } }, { .axis = 1, .a = 30 } },
    { "roll back", roll, rolled, { 3, { 3, 7, 2 } }, { 3, { 3, 7, 2 } }, { .axis = 1, .a = -2 } },
    { "roll far", roll, rolled, { 2, { 7, 3 } }, { 2, { 7, 3 } }, { .axis = 0, .a = 1000 } },
    { "roll by nothing", roll, rolled, { 2, { 7, 3 } }, { 2, { 7, 3 } }, { .axis = 0, .a = 14 } },
};

/* Values exact in dtype, distinct as far as possible. */
static double value(tp_dtype dt, int64_t e)
{
    const int64_t limit = dt == TP_U8 || dt == TP_BF16 ? 256 : 1 << 20;
    return (double)(e % limit);
}

/* Checks values in dt and, if it is floating, the gradient of sum w y with w = 1, 2, 3, ... */
static void check_case(size_t i, tp_dtype dt)
{
    const tp_shape sx = cases[i].x, sy = cases[i].y;
    const int64_t nx = elements(sx), ny = elements(sy);
    double *x = malloc((size_t)nx * sizeof *x + 1), *y = malloc((size_t)ny * sizeof *y + 1);
    double *w = malloc((size_t)ny * sizeof *w + 1), *g = malloc((size_t)nx * sizeof *g + 1);
    double *want = calloc((size_t)nx + 1, sizeof *want);
    for (int64_t e = 0; e < nx; e++) x[e] = value(dt, e);
    for (int64_t e = 0; e < ny; e++) w[e] = (double)(e % 5 + 1);
    tp_reset(T);
    const bool differentiable = dt == TP_F32 || dt == TP_F64;
    const tp_tensor tx = (differentiable ? values_input : values_constant)(T, dt, sx, x);
    const tp_tensor ty = cases[i].op(&cases[i].g, tx);
    const tp_shape got = tp_shape_of(ty);
    cr_assert(got.ndim == sy.ndim && memcmp(got.dim, sy.dim, (size_t)sy.ndim * sizeof *sy.dim) == 0,
              "%s: wrong shape: %s", cases[i].name, tp_why(T));
    values_read(T, ty, y);
    int wrong = 0;
    for (int64_t e = 0; e < ny; e++) {
        int64_t index[TP_MAX_DIMS] = { 0 };
        index_of(sy, e, index);
        const bool taken = cases[i].from(&cases[i].g, sx, index);
        const int64_t k = taken ? element_at(sx, index) : -1;
        wrong += y[e] != (taken ? x[k] : PADDING);
        if (taken) want[k] += w[e];
    }
    cr_expect_eq(wrong, 0, "%s in %s: %d wrong values", cases[i].name, tp_dtype_name(dt), wrong);
    if (differentiable) {
        tp_backward(T, tp_sum(T, tp_mul(T, ty, values_constant(T, dt, sy, w)), TP_ALL));
        values_read(T, tp_grad(T, tx), g);
        const double off = values_error(g, want, nx, 0.0);
        cr_expect_lt(off, 1e-6, "%s in %s: gradient off by %g", cases[i].name, tp_dtype_name(dt),
                     off);
    }
    free(x), free(y), free(w), free(g), free(want);
}

Test(shape_ops, one_input)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (tp_dtype dt = 0; dt < TP_NDTYPES; dt++) check_case(i, dt);
}

/* ---- concat, stack, split ---- */

static const struct {
    const char *name;
    int axis, n;
    tp_shape part[4];
} joins[] = {
    { "leading", 0, 3, { { 2, { 2, 3 } }, { 2, { 1, 3 } }, { 2, { 4, 3 } } } },
    { "middle", 1, 2, { { 3, { 50, 3, 70 } }, { 3, { 50, 4, 70 } } } },
    { "last, one empty",
      -1,
      4,
      { { 2, { 5, 2 } }, { 2, { 5, 0 } }, { 2, { 5, 1 } }, { 2, { 5, 3 } } } },
    { "vectors", 0, 2, { { 1, { 3 } }, { 1, { 2 } } } },
    { "one", 1, 1, { { 2, { 5, 2 } } } },
};

/* Slicing the concatenation returns each part, and each part gets its gradient. */
Test(shape_ops, concat)
{
    for (size_t i = 0; i < sizeof joins / sizeof *joins; i++)
        for (tp_dtype dt = 0; dt < TP_NDTYPES; dt++) {
            static double v[20000], back[20000], g[20000];
            const bool differentiable = dt == TP_F32 || dt == TP_F64;
            tp_tensor part[4] = { TP_NONE };
            tp_reset(T);
            for (int k = 0; k < joins[i].n; k++) {
                const int64_t n = elements(joins[i].part[k]);
                for (int64_t e = 0; e < n; e++) v[e] = value(dt, 1000 * k + e);
                part[k] =
                    (differentiable ? values_input : values_constant)(T, dt, joins[i].part[k], v);
            }
            const tp_tensor whole = tp_concat_n(T, joins[i].axis, joins[i].n, part);
            const int axis = (joins[i].axis + tp_ndim(whole)) % tp_ndim(whole);
            int64_t at = 0;
            tp_tensor loss = TP_NONE;
            for (int k = 0; k < joins[i].n; k++) {
                const int64_t n = elements(joins[i].part[k]), rows = joins[i].part[k].dim[axis];
                const tp_tensor again = tp_slice(T, whole, axis, at, rows);
                at += rows;
                cr_assert_eq(tp_numel(again), n, "%s", tp_why(T));
                values_read(T, again, back);
                for (int64_t e = 0; e < n; e++) v[e] = value(dt, 1000 * k + e);
                cr_expect_arr_eq(v, back, (size_t)n * sizeof *v, "%s in %s, part %d", joins[i].name,
                                 tp_dtype_name(dt), k);
                if (!differentiable) continue;
                const tp_tensor term = tp_sum(T, tp_scale(T, again, k + 1), TP_ALL);
                loss = k == 0 ? term : tp_add(T, loss, term);
            }
            cr_expect_eq(tp_dim(whole, axis), at);
            if (!differentiable) continue;
            tp_backward(T, loss);
            for (int k = 0; k < joins[i].n; k++) {
                const int64_t n = elements(joins[i].part[k]);
                values_read(T, tp_grad(T, part[k]), g);
                for (int64_t e = 0; e < n; e++) cr_expect_eq(g[e], k + 1.0, "%s", joins[i].name);
            }
        }
}

Test(shape_ops, stack_and_split)
{
    for (int axis = -3; axis < 3; axis++) {
        const int at = (axis + 3) % 3;
        double v[3][8], whole[24], back[8];
        tp_tensor x[3], y[3];
        tp_reset(T);
        for (int k = 0; k < 3; k++) {
            for (int e = 0; e < 8; e++) v[k][e] = 10 * k + e;
            x[k] = values_input(T, TP_F32, TP_SHAPE(2, 4), v[k]);
        }
        const tp_tensor s = tp_stack(T, axis, x[0], x[1], x[2]);
        values_read(T, s, whole);
        for (int e = 0; e < 24; e++) {
            int64_t index[3];
            index_of(tp_shape_of(s), e, index);
            const int64_t k = index[at], i = index[at == 0 ? 1 : 0], j = index[at == 2 ? 1 : 2];
            cr_expect_eq(whole[e], v[k][4 * i + j], "stack along %d, element %d", axis, e);
        }
        tp_split(T, s, axis, 3, y);
        for (int k = 0; k < 3; k++) {
            values_read(T, y[k], back);
            cr_expect_arr_eq(back, v[k], sizeof back, "split along %d, part %d", axis, k);
            cr_expect_eq(tp_dim(y[k], at), 1);
        }
        /* the second part is unused, so its gradient is zero */
        tp_backward(T, tp_sum(T, tp_sub(T, tp_square(T, y[0]), y[2]), TP_ALL));
        for (int k = 0; k < 3; k++) {
            values_read(T, tp_grad(T, x[k]), back);
            for (int e = 0; e < 8; e++)
                cr_expect_eq(back[e], k == 0 ? 2 * v[0][e] : k == 1 ? 0 : -1);
        }
    }
}

/* ---- reshape and views ---- */

Test(shape_ops, reshape)
{
    double x[24], y[24];
    for (int e = 0; e < 24; e++) x[e] = e;
    const struct {
        tp_shape to, want;
    } table[] = {
        { { 1, { 24 } }, { 1, { 24 } } },
        { { 1, { -1 } }, { 1, { 24 } } },
        { { 3, { 2, -1, 4 } }, { 3, { 2, 3, 4 } } },
        { { 4, { 1, 24, 1, -1 } }, { 4, { 1, 24, 1, 1 } } },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const tp_tensor v = values_constant(T, TP_I32, TP_SHAPE(4, 6), x);
        const tp_tensor t = tp_reshape(T, v, table[i].to);
        values_read(T, t, y);
        cr_expect_arr_eq(x, y, sizeof x);
        cr_expect_eq(tp_ndim(t), table[i].want.ndim);
        for (int k = 0; k < table[i].want.ndim; k++)
            cr_expect_eq(tp_dim(t, k), table[i].want.dim[k]);
    }
}

/* Views of an input allocate nothing. */
Test(shape_ops, views)
{
    const tp_tensor x = tp_full(T, TP_F32, TP_SHAPE(64, 1, 256), 1);
    const size_t before = tp_device_stats(D).live_bytes;
    tp_reshape(T, x, TP_SHAPE(-1));
    tp_slice(T, x, 0, 3, 7);
    tp_slice(T, x, 2, 0, 256);
    tp_permute(T, x, TP_SHAPE(1, 0, 2));
    tp_cast(T, x, TP_F32);
    cr_expect_eq(tp_device_stats(D).live_bytes, before);
    tp_slice(T, x, 2, 3, 7);
    cr_expect_gt(tp_device_stats(D).live_bytes, before);
}

/* Views need no kernel and no memory, forward and backward. */
Test(shape_ops, slices_of_everything_cost_nothing)
{
    uint64_t launches[2];
    size_t peaks[2];
    for (int sliced = 0; sliced < 2; sliced++) {
        static double x[8 * 4096], g[8 * 4096];
        values_random(x, 8 * 4096, 1);
        tp_reset(T);
        tp_device_reset_peak(D);
        const uint64_t before = tp_device_stats(D).launches;
        const tp_tensor in = values_input(T, TP_F64, TP_SHAPE(8, 4096), x);
        const tp_tensor y = sliced ? tp_slice(T, in, 1, 0, 4096) : in;
        tp_backward(T, tp_sum(T, tp_mul(T, y, y), TP_ALL));
        launches[sliced] = tp_device_stats(D).launches - before;
        peaks[sliced] = tp_device_stats(D).peak_bytes;
        values_read(T, tp_grad(T, in), g);
        for (int e = 0; e < 8 * 4096; e++) cr_assert_eq(g[e], 2 * x[e], "element %d: %g", e, g[e]);
    }
    cr_expect_eq(launches[1], launches[0], "%d launches more", (int)(launches[1] - launches[0]));
    cr_expect_eq(peaks[1], peaks[0], "%d bytes more", (int)(peaks[1] - peaks[0]));
}

/* Overlapping slices accumulate into the gradient of one tensor. */
Test(shape_ops, overlapping_slices)
{
    for (int axis = 0; axis < 2; axis++) {
        double x[25] = { 0 }, g[25];
        tp_reset(T);
        const tp_tensor in = values_input(T, TP_F64, TP_SHAPE(5, 5), x);
        const tp_tensor a = tp_slice(T, in, axis, 0, 3), b = tp_slice(T, in, axis, 2, 3);
        tp_backward(T, tp_sum(T, tp_add(T, tp_add(T, a, b), b), TP_ALL));
        values_read(T, tp_grad(T, in), g);
        for (int e = 0; e < 25; e++) {
            const int i = axis == 0 ? e / 5 : e % 5;
            cr_expect_eq(g[e], (i < 3) + 2 * (i >= 2), "axis %d, element %d: %g", axis, e, g[e]);
        }
    }
}

/* ---- errors ---- */

Test(shape_ops, mistakes)
{
    const tp_tensor x = tp_full(T, TP_F32, TP_SHAPE(4, 6), 1),
                    i = tp_full(T, TP_I32, TP_SHAPE(4, 6), 1);
    const tp_tensor row = tp_full(T, TP_F32, TP_SHAPE(6), 1);
    tp_tensor y[4];
    tp_reshape(T, x, TP_SHAPE(5, -1));
    cr_expect(failed_with(T, "reshape: 24 elements are not a multiple of 5\n  inputs f32[4,6]\n"));
    tp_reshape(T, x, TP_SHAPE(5, 5));
    cr_expect(failed_with(T, "reshape: 24 elements do not fit a shape of 25\n"));
    tp_reshape(T, x, TP_SHAPE(-1, -1));
    cr_expect(failed_with(T, "reshape: sizes of axes 0 and 1 are both -1\n"));
    tp_reshape(T, x, TP_SHAPE(24, -2));
    cr_expect(failed_with(T, "reshape: size of axis 1 is -2\n"));
    tp_reshape(T, x, TP_SHAPE(0, -1));
    cr_expect(failed_with(T, "reshape: size -1 is not determined beside a size of 0\n"));
    tp_reshape(T, x, TP_SHAPE(INT64_MAX, INT64_MAX));
    cr_expect(failed_with(T, "reshape: the product of the sizes overflows\n"));
    tp_reshape(T, x, (tp_shape){ .ndim = 9 });
    cr_expect(failed_with(T, "reshape: 9 axes; at most 8 are possible\n"));
    tp_permute(T, x, TP_SHAPE(0));
    cr_expect(failed_with(T, "permute: the order names 1 axes, x has 2\n"));
    tp_permute(T, x, TP_SHAPE(0, 2));
    cr_expect(failed_with(T, "permute: axis 2 is out of range for 2 axes\n"));
    tp_permute(T, x, TP_SHAPE(1, -1));
    cr_expect(failed_with(T, "permute: axis 1 is named twice\n"));
    tp_slice(T, x, 2, 0, 1);
    cr_expect(failed_with(T, "slice: axis 2 is out of range for 2 axes\n"));
    tp_slice(T, x, 1, 4, 3);
    cr_expect(failed_with(T, "slice: 3 indices from 4 on do not fit an axis of size 6\n"));
    tp_slice(T, x, 1, -1, 3);
    cr_expect(failed_with(T, "slice: 3 indices from -1 on do not fit an axis of size 6\n"));
    tp_slice(T, x, 1, 3, INT64_MAX);
    cr_expect(failed_with(T, "slice: 9223372036854775807 indices from 3 on do not fit an axis"));
    tp_concat(T, 0, x, row);
    cr_expect(failed_with(T, "concat: inputs 0 and 1 have 2 and 1 axes\n"));
    tp_concat(T, 0, x, tp_full(T, TP_F32, TP_SHAPE(4, 5), 1));
    cr_expect(failed_with(T, "concat: sizes of axis 1 of inputs 0 and 1 are 6 and 5\n"));
    tp_concat(T, 0, i, x);
    cr_expect(failed_with(T, "concat: inputs mix i32 and f32; convert with tp_cast\n"));
    tp_concat_n(T, 0, 0, &x);
    cr_expect(failed_with(T, "concat: at least one tensor is needed\n"));
    tp_stack(T, 3, x, x);
    cr_expect(failed_with(T, "stack: axis 3 is out of range for 3 axes\n"));
    tp_stack(T, 0, x, row);
    cr_expect(failed_with(T, "stack: inputs 0 and 1 have different shapes\n"));
    tp_split(T, x, 1, 4, y);
    cr_expect(failed_with(T, "split: an axis of size 6 does not divide into 4 equal parts\n"));
    tp_expand(T, x, TP_SHAPE(6));
    cr_expect(failed_with(T, "expand: 2 axes cannot become 1\n"));
    tp_expand(T, x, TP_SHAPE(2, 4, 7));
    cr_expect(failed_with(T, "expand: size 6 of axis 1 cannot become 7\n"));
    tp_expand(T, row, TP_SHAPE(-1, 6));
    cr_expect(failed_with(T, "expand: a new axis cannot have size -1\n"));
    tp_expand(T, row, TP_SHAPE(INT64_C(1) << 62, 6));
    cr_expect(failed_with(T, "expand: the result is too large or has too many axes\n"));
    tp_pad(T, x, 0, -1, 0, 0);
    cr_expect(failed_with(T, "pad: cannot pad by -1 and 0\n"));
    tp_pad(T, x, 0, INT64_MAX, 1, 0);
    cr_expect(failed_with(T, "pad: the padded axis is too long\n"));
    tp_pad(T, i, 0, 1, 1, 0.5);
    cr_expect(failed_with(T, "pad: i32 cannot hold the value 0.5\n"));
    tp_pad(T, i, 0, 1, 1, NAN);
    cr_expect(failed_with(T, "pad: i32 cannot hold the value nan\n"));
    tp_pad(T, tp_full(T, TP_U8, TP_SHAPE(3), 1), 0, 1, 1, 256);
    cr_expect(failed_with(T, "pad: u8 cannot hold the value 256\n"));
    tp_roll(T, tp_full(T, TP_F32, TP_SCALAR, 1), 0, 1);
    cr_expect(failed_with(T, "roll: axis 0 is out of range for 0 axes\n"));
}

Test(shape_ops, empty)
{
    tp_tensor x = tp_input(T, TP_F32, TP_SHAPE(2, 0, 6), NULL), part[3];
    const tp_tensor in = x;
    x = tp_permute(T, x, TP_SHAPE(2, 1, 0));
    x = tp_roll(T, x, 1, 3);
    x = tp_slice(T, x, 0, 1, 3);
    tp_split(T, x, 0, 3, part);
    x = tp_concat_n(T, 1, 3, part);
    x = tp_stack(T, 0, x, x);
    x = tp_expand(T, x, TP_SHAPE(5, 2, 1, 0, 2));
    x = tp_reshape(T, x, TP_SHAPE(0, 7));
    x = tp_pad(T, x, 0, 0, 0, 1);
    tp_backward(T, tp_sum(T, x, TP_ALL));
    cr_expect_eq(tp_numel(tp_grad(T, in)), 0);
}
