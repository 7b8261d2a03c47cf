/* test_index_ops.c - embedding, index_select, index_add, gather, scatter_add, one_hot against plain
 * loops; both index widths; gradients with repeated indices; empty tensors; messages. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "support/values.h"

typedef struct world {
    tp_device *D;
    tp_tape *T;
} world;

static world begin(void)
{
    world s;
    s.D = tp_device_open("cpu", &(tp_device_opts){ .threads = 2 });
    s.T = tp_tape_new(s.D, NULL);
    return s;
}

static void end(world *s)
{
    cr_expect(tp_ok(s->T), "%s", tp_why(s->T));
    tp_tape_free(s->T);
    tp_device_close(s->D);
}

/* n indices in [0, below) as a tensor of dtype dt, also written to host. */
static tp_tensor indices(tp_tape *T, tp_dtype dt, tp_shape s, int64_t below, int64_t *host)
{
    static double values[20000];
    int64_t n = 1;
    for (int i = 0; i < s.ndim; i++) n *= s.dim[i];
    values_random(values, n, 17);
    for (int64_t i = 0; i < n; i++) {
        host[i] = (int64_t)((values[i] + 1.0) / 2.0 * (double)below);
        values[i] = (double)host[i];
    }
    return values_constant(T, dt, s, values);
}

/* The gradient of sum(w y) by x. */
static void gradient(tp_tape *T, tp_tensor y, const double *w, tp_tensor x, double *dx)
{
    const tp_tensor tw = values_constant(T, tp_dtype_of(y), tp_shape_of(y), w);
    tp_backward(T, tp_sum(T, tp_mul(T, y, tw), TP_ALL));
    values_read(T, tp_grad(T, x), dx);
}

Test(index_ops, embedding)
{
    enum { V = 50, C = 130, B = 9, N = 11 };
    static double table[V * C], w[B * N * C], y[B * N * C], dx[V * C], want_dx[V * C];
    int64_t id[B * N];
    world s = begin();
    values_random(table, V * C, 1);
    values_random(w, B * N * C, 2);
    for (int k = 0; k < 4; k++) {
        const tp_dtype dt = k % 2 ? TP_F64 : TP_F32, it = k / 2 ? TP_I32 : TP_I64;
        double off = 0.0;
        tp_reset(s.T);
        memset(want_dx, 0, sizeof want_dx);
        const tp_tensor t = values_input(s.T, dt, TP_SHAPE(V, C), table);
        const tp_tensor ids = indices(s.T, it, TP_SHAPE(B, N), V, id);
        const tp_tensor r = tp_embedding(s.T, t, ids, -1.5);
        cr_expect(tp_ndim(r) == 3 && tp_dim(r, 0) == B && tp_dim(r, 1) == N && tp_dim(r, 2) == C);
        values_read(s.T, r, y);
        for (int64_t i = 0; i < B * N; i++)
            for (int64_t j = 0; j < C; j++) {
                off = fmax(off, fabs(y[i * C + j] + 1.5 * table[id[i] * C + j]));
                want_dx[id[i] * C + j] += -1.5 * w[i * C + j];
            }
        cr_expect_leq(off, dt == TP_F32 ? 1e-7 : 0.0, "case %d", k);
        gradient(s.T, r, w, t, dx);
        off = values_error(dx, want_dx, V * C, 0.0);
        cr_expect_leq(off, dt == TP_F32 ? 1e-6 : 1e-15, "case %d: gradient", k);
    }
    end(&s);
}

/* One table is used twice; the gradients of both uses add up. */
Test(index_ops, embedding_adds_gradients)
{
    const double table[6] = { 1, 2, 3, 4, 5, 6 };
    const int32_t a[3] = { 0, 2, 2 }, b[2] = { 2, 1 };
    const double w[10] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };
    double dx[6];
    world s = begin();
    const tp_tensor t = values_input(s.T, TP_F64, TP_SHAPE(3, 2), table);
    const tp_tensor y =
        tp_concat(s.T, 0, tp_embedding(s.T, t, tp_from(s.T, TP_I32, TP_SHAPE(3), a), 1.0),
                  tp_embedding(s.T, t, tp_from(s.T, TP_I32, TP_SHAPE(2), b), 10.0));
    gradient(s.T, y, w, t, dx);
    const double want[6] = { 1, 1, 10, 10, 12, 12 };
    cr_expect_eq(memcmp(dx, want, sizeof want), 0);
    end(&s);
}

/* The padding id's row is read like any other but gets no gradient. */
Test(index_ops, embedding_with_padding)
{
    const double table[6] = { 1, 2, 3, 4, 5, 6 };
    const double w[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    double y[8], dx[6];
    const int32_t id[4] = { 0, 1, 2, 1 };
    world s = begin();
    const tp_tensor t = values_input(s.T, TP_F64, TP_SHAPE(3, 2), table);
    const tp_tensor r = tp_embedding_pad(s.T, t, tp_from(s.T, TP_I32, TP_SHAPE(4), id), 2.0, 1);
    values_read(s.T, r, y);
    cr_expect(y[2] == 6 && y[3] == 8 && y[6] == 6);
    gradient(s.T, r, w, t, dx);
    const double want[6] = { 2, 2, 0, 0, 2, 2 };
    cr_expect_eq(memcmp(dx, want, sizeof want), 0);
    const double column[3] = { 1, 2, 3 };
    const tp_tensor thin = values_input(s.T, TP_F64, TP_SHAPE(3, 1), column);
    const tp_tensor z = tp_embedding_pad(s.T, thin, tp_from(s.T, TP_I32, TP_SHAPE(4), id), 1.0, 1);
    gradient(s.T, z, w, thin, dx);
    cr_expect(dx[0] == 1 && dx[1] == 0 && dx[2] == 1);
    tp_embedding_pad(s.T, t, tp_from(s.T, TP_I32, TP_SHAPE(4), id), 1.0, 3);
    cr_expect(strstr(tp_why(s.T), "the padding id 3 is not in a table of 3 rows"), "%s",
              tp_why(s.T));
    tp_clear(s.T);
    end(&s);
}

/* ---- index_select and index_add ---- */

/* [O,V,I] with n indices into the middle; the axis is the shape's first, middle or last. */
static const struct {
    tp_shape shape;
    int axis;
    int64_t O, V, I, n;
} along[] = {
    { { 2, { 7, 5 } }, 0, 1, 7, 5, 20 },
    { { 3, { 3, 4, 70 } }, 1, 3, 4, 70, 9 }, /* more columns than a strip */
    { { 3, { 3, 4, 70 } }, -1, 12, 70, 1, 100 },
    { { 1, { 6 } }, 0, 1, 6, 1, 50 },
    { { 4, { 5, 2, 3, 2 } }, -3, 5, 2, 6, 1 },
    { { 3, { 40, 9, 3 } }, 1, 40, 9, 3, 30 },
    { { 3, { 3, 4, 2 } }, 2, 12, 2, 1, 0 },
    { { 2, { 0, 4 } }, 1, 0, 4, 1, 3 },
    { { 2, { 3, 0 } }, 0, 1, 3, 0, 2 },
};

enum { ALONG_MOST = 40 * 30 * 3 };

/* Checks case a: each sum of results and gradients has a loop's terms in the same order. */
static void check_along(size_t a, tp_dtype it, int threads)
{
    static double x[ALONG_MOST], src[ALONG_MOST], y[ALONG_MOST], got[ALONG_MOST], want[ALONG_MOST];
    static double dx[ALONG_MOST], dsrc[ALONG_MOST], want_dx[ALONG_MOST];
    int64_t index[100];
    const int64_t O = along[a].O, V = along[a].V, I = along[a].I, n = along[a].n;
    tp_shape taken = along[a].shape;
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .threads = threads });
    tp_tape *T = tp_tape_new(D, NULL);
    taken.dim[(along[a].axis + taken.ndim) % taken.ndim] = n;
    values_random(x, O * V * I, 1);
    values_random(src, O * n * I, 2);
    const tp_tensor tx = values_input(T, TP_F64, along[a].shape, x);
    const tp_tensor ts = values_input(T, TP_F64, taken, src);
    const tp_tensor ti = indices(T, it, TP_SHAPE(n), V, index);
    const tp_tensor selected = tp_index_select(T, tx, along[a].axis, ti);
    const tp_tensor added = tp_index_add(T, tx, along[a].axis, ti, ts);
    cr_assert(tp_ok(T), "case %zu: %s", a, tp_why(T));
    memcpy(want, x, sizeof want);
    memset(want_dx, 0, sizeof want_dx);
    values_read(T, selected, y);
    values_read(T, added, got);
    for (int64_t e = 0; e < O * n * I; e++) {
        const int64_t at = (e / (n * I) * V + index[e / I % n]) * I + e % I;
        cr_assert_eq(y[e], x[at], "case %zu, element %lld", a, (long long)e);
        want[at] += src[e];
        want_dx[at] += src[e];
    }
    cr_expect_arr_eq(got, want, (size_t)(O * V * I) * sizeof *got, "case %zu: index_add", a);
    gradient(T, selected, src, tx, dx);
    cr_expect_arr_eq(dx, want_dx, (size_t)(O * V * I) * sizeof *dx, "case %zu: dx", a);
    tp_reset(T);
    const tp_tensor ux = values_input(T, TP_F64, along[a].shape, x);
    const tp_tensor us = values_input(T, TP_F64, taken, src);
    const tp_tensor ui = indices(T, it, TP_SHAPE(n), V, index);
    gradient(T, tp_index_add(T, ux, along[a].axis, ui, us), x, us, dsrc);
    values_read(T, tp_grad(T, ux), dx);
    cr_expect_arr_eq(dsrc, y, (size_t)(O * n * I) * sizeof *y, "case %zu: dsrc", a);
    cr_expect_arr_eq(dx, x, (size_t)(O * V * I) * sizeof *x, "case %zu: dx of index_add", a);
    cr_expect(tp_ok(T), "case %zu: %s", a, tp_why(T));
    tp_tape_free(T);
    tp_device_close(D);
}

Test(index_ops, rows_along_an_axis)
{
    for (size_t a = 0; a < sizeof along / sizeof *along; a++)
        for (int threads = 1; threads <= 3; threads++)
            check_along(a, threads == 2 ? TP_I32 : TP_I64, threads);
}

/* Sums of bf16 are rounded once: 256 and eight times 1 give 264, where steps of 1 would be lost. */
Test(index_ops, bf16_sums_are_rounded_once)
{
    const double x[1] = { 256.0 }, ones[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    const int32_t zeros[8] = { 0 };
    double y;
    world s = begin();
    const tp_tensor index = tp_from(s.T, TP_I32, TP_SHAPE(8), zeros);
    const tp_tensor src = values_constant(s.T, TP_BF16, TP_SHAPE(8), ones);
    values_read(
        s.T, tp_index_add(s.T, values_constant(s.T, TP_BF16, TP_SHAPE(1), x), 0, index, src), &y);
    cr_expect_eq(y, 264.0, "%g", y);
    end(&s);
}

/* ---- gather and scatter_add: x [4,5,6], index larger along the axis, else smaller ---- */

enum { D0 = 4, D1 = 5, D2 = 6, MOST = 4 * 5 * 20 };

/* The position in x that element (i,j,k) of the index refers to. */
static int64_t place(int axis, int64_t i, int64_t j, int64_t k, int64_t at)
{
    if (axis == 0) i = at;
    if (axis == 1) j = at;
    if (axis == 2) k = at;
    return (i * D1 + j) * D2 + k;
}

Test(index_ops, gather_and_scatter_add)
{
    double x[D0 * D1 * D2], src[MOST], y[MOST], sum[D0 * D1 * D2], got[D0 * D1 * D2], dsrc[MOST];
    int64_t index[MOST];
    world s = begin();
    for (int axis = 0; axis < 3; axis++)
        for (int dt = TP_I32; dt <= TP_I64; dt++) {
            const int64_t n[3] = { axis == 0 ? 20 : 3, axis == 1 ? 20 : 5, axis == 2 ? 20 : 4 };
            const tp_shape shape = TP_SHAPE(n[0], n[1], n[2]);
            const int64_t below = axis == 0 ? D0 : axis == 1 ? D1 : D2, all = n[0] * n[1] * n[2];
            tp_reset(s.T);
            values_random(x, D0 * D1 * D2, 1);
            values_random(src, all, 2);
            memcpy(sum, x, sizeof sum);
            const tp_tensor tx = values_input(s.T, TP_F64, TP_SHAPE(D0, D1, D2), x);
            const tp_tensor ts = values_input(s.T, TP_F64, shape, src);
            const tp_tensor ti = indices(s.T, (tp_dtype)dt, shape, below, index);
            const tp_tensor gathered = tp_gather(s.T, tx, axis - 3, ti);
            const tp_tensor added = tp_scatter_add(s.T, tx, axis, ti, ts);
            values_read(s.T, gathered, y);
            values_read(s.T, added, got);
            for (int64_t e = 0; e < all; e++) {
                const int64_t i = e / (n[1] * n[2]), j = e / n[2] % n[1], k = e % n[2];
                const int64_t at = place(axis, i, j, k, index[e]);
                cr_assert_eq(y[e], x[at], "axis %d, element %lld", axis, (long long)e);
                sum[at] += src[e];
            }
            cr_expect_eq(memcmp(got, sum, sizeof sum), 0, "scatter_add along axis %d", axis);

            gradient(s.T, added, x, ts, dsrc); /* dsrc = x gathered */
            cr_expect_eq(memcmp(dsrc, y, (size_t)all * sizeof *y), 0, "axis %d: dsrc", axis);
        }
    end(&s);
}

Test(index_ops, gradient_of_gather_is_scatter_add)
{
    double zero[D0 * D1 * D2] = { 0 }, w[D0 * 20 * D2], dx[D0 * D1 * D2], want[D0 * D1 * D2];
    int64_t index[D0 * 20 * D2];
    world s = begin();
    values_random(w, D0 * 20 * D2, 5);
    const tp_tensor x = values_input(s.T, TP_F64, TP_SHAPE(D0, D1, D2), zero);
    const tp_tensor ti = indices(s.T, TP_I64, TP_SHAPE(D0, 20, D2), D1, index);
    const tp_tensor tw = values_constant(s.T, TP_F64, TP_SHAPE(D0, 20, D2), w);
    values_read(s.T, tp_scatter_add(s.T, x, 1, ti, tw), want);
    gradient(s.T, tp_gather(s.T, x, 1, ti), w, x, dx);
    cr_expect_eq(memcmp(dx, want, sizeof want), 0);
    end(&s);
}

Test(index_ops, one_hot)
{
    const int32_t id[4] = { 2, 0, 1, 2 };
    double y[12];
    static const tp_dtype dtypes[] = { TP_F32, TP_F64, TP_BF16 };
    world s = begin();
    for (size_t k = 0; k < sizeof dtypes / sizeof *dtypes; k++) {
        const tp_tensor ids = tp_from(s.T, TP_I32, TP_SHAPE(2, 2), id);
        const tp_tensor r = tp_one_hot(s.T, ids, 3, dtypes[k]);
        cr_expect(tp_ndim(r) == 3 && tp_dim(r, 2) == 3 && tp_dtype_of(r) == dtypes[k]);
        values_read(s.T, r, y);
        for (int i = 0; i < 12; i++) cr_expect_eq(y[i], id[i / 3] == i % 3, "element %d", i);
    }
    end(&s);
}

Test(index_ops, empty_tensors)
{
    world s = begin();
    const tp_tensor none = tp_from(s.T, TP_I64, TP_SHAPE(0), NULL);
    const tp_tensor wide = tp_input(s.T, TP_F32, TP_SHAPE(3, 0), NULL);
    const tp_tensor empty = tp_input(s.T, TP_F32, TP_SHAPE(0), NULL);
    const int64_t two[2] = { 2, 1 };
    const tp_tensor ids = tp_from(s.T, TP_I64, TP_SHAPE(2), two);
    tp_tensor y = tp_embedding(s.T, wide, ids, 1.0);
    cr_expect(tp_numel(y) == 0 && tp_dim(y, 0) == 2);
    tp_backward(s.T, tp_sum(s.T, y, TP_ALL));
    y = tp_gather(s.T, empty, 0, none);
    tp_backward(s.T, tp_sum(s.T, y, TP_ALL));
    y = tp_scatter_add(s.T, empty, 0, none, empty);
    cr_expect_eq(tp_numel(y), 0);
    tp_backward(s.T, tp_sum(s.T, y, TP_ALL));
    cr_expect_eq(tp_numel(tp_one_hot(s.T, none, 4, TP_F32)), 0);
    cr_expect_eq(tp_numel(tp_one_hot(s.T, none, 0, TP_F32)), 0);
    end(&s);
}

Test(index_ops, messages)
{
    static const char *const expected[] = {
        "embedding: id 7 at position 2, but the table has 3 rows",
        "embedding: id -1 at position 1, but the table has 2 rows",
        "embedding: ids must be i32 or i64, not f32; tp_cast converts\n  inputs f32[3,2], f32[3,2]",
        "embedding: the table must have two axes, rows and columns",
        "gather: index 7 at position 2, but axis 0 has size 6",
        "gather: axis 2 is out of range: x has 2 axes",
        "gather: x has 2 axes and the index has 1",
        "gather: the index is larger than x along axis 1: 3 and 2",
        "gather: index must be i32 or i64, not f32",
        "scatter_add: index and src differ in shape",
        "scatter_add: index 7 at position 2, but axis 0 has size 3",
        "index_select: index 7 at position 2, but axis 0 has size 6",
        "index_select: index -1 at position 1, but axis 1 has size 2",
        "index_select: axis 2 is out of range for 2 axes",
        "index_select: the index must have one axis, not 2",
        "index_select: index must be i32 or i64, not f32",
        "index_add: index 7 at position 2, but axis 0 has size 3",
        "index_add: src must have x's shape, with the size of the index along the axis",
        "index_add: axis -3 is out of range for 2 axes",
        "one_hot: id 7 at position 2, but n is 5",
        "one_hot: the result must be floating point, not i32",
        "one_hot: n must not be negative: -1",
        "one_hot: ids must be i32 or i64, not f32",
    };
    const double zeros[6] = { 0 };
    const int64_t far[3] = { 0, 1, 7 }, negative[3] = { 0, -1, 1 };
    world s = begin();
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        tp_tape *T = s.T;
        const tp_tensor x = values_constant(T, TP_F32, TP_SHAPE(3, 2), zeros);
        const tp_tensor narrow = values_constant(T, TP_F32, TP_SHAPE(2, 2), zeros);
        const tp_tensor flat = tp_reshape(T, x, TP_SHAPE(6));
        const tp_tensor a = tp_from(T, TP_I64, TP_SHAPE(3), far);
        const tp_tensor b = tp_from(T, TP_I64, TP_SHAPE(3), negative);
        const tp_tensor column = tp_from(T, TP_I64, TP_SHAPE(3, 1), far);
        const tp_tensor row = tp_from(T, TP_I64, TP_SHAPE(1, 3), far);
        switch (i) {
        case 0: tp_embedding(T, x, a, 1.0); break;
        case 1: tp_embedding(T, narrow, b, 1.0); break;
        case 2: tp_embedding(T, x, x, 1.0); break;
        case 3: tp_embedding(T, flat, a, 1.0); break;
        case 4: tp_gather(T, flat, 0, a); break;
        case 5: tp_gather(T, x, 2, column); break;
        case 6: tp_gather(T, x, 0, a); break;
        case 7: tp_gather(T, x, 0, row); break;
        case 8: tp_gather(T, x, 0, x); break;
        case 9: tp_scatter_add(T, x, 0, column, x); break;
        case 10: tp_scatter_add(T, x, 0, column, tp_slice(T, x, 1, 0, 1)); break;
        case 11: tp_index_select(T, flat, 0, a); break;
        case 12: tp_index_select(T, x, 1, b); break;
        case 13: tp_index_select(T, x, 2, a); break;
        case 14: tp_index_select(T, x, 0, column); break;
        case 15: tp_index_select(T, x, 0, x); break;
        case 16: tp_index_add(T, x, 0, a, x); break;
        case 17: tp_index_add(T, x, 1, a, x); break;
        case 18: tp_index_add(T, x, -3, a, x); break;
        case 19: tp_one_hot(T, a, 5, TP_F32); break;
        case 20: tp_one_hot(T, a, 5, TP_I32); break;
        case 21: tp_one_hot(T, a, -1, TP_F32); break;
        case 22: tp_one_hot(T, x, 5, TP_F32); break;
        }
        cr_expect_eq(strncmp(tp_why(T), expected[i], strlen(expected[i])), 0, "case %zu: %s", i,
                     tp_why(T));
        tp_clear(T);
    }
    end(&s);
}
