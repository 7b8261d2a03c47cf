/* test_index_ops.c - embedding, gather, scatter_add, one_hot against plain loops; both index
 * widths; gradients with repeated indices; empty tensors; messages. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "support_values.h"

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

/* One table is used twice, and the gradients of both uses add up. */
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
        "embedding: the table must be floating point, ids i32 or i64\n  inputs f32[3,2], f32[3,2]",
        "embedding: the table must have two axes, rows and columns",
        "gather: index 7 at position 2, but axis 0 has size 6",
        "gather: axis 2 is out of range: x has 2 axes",
        "gather: x has 2 axes and the index has 1",
        "gather: the index is larger than x along axis 1: 3 and 2",
        "gather: x must be floating point, the index i32 or i64",
        "scatter_add: index and src differ in shape",
        "scatter_add: index 7 at position 2, but axis 0 has size 3",
        "one_hot: id 7 at position 2, but n is 5",
        "one_hot: the result must be floating point, not i32",
        "one_hot: n must not be negative: -1",
        "one_hot: ids must be i32 or i64",
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
        case 11: tp_one_hot(T, a, 5, TP_F32); break;
        case 12: tp_one_hot(T, a, 5, TP_I32); break;
        case 13: tp_one_hot(T, a, -1, TP_F32); break;
        case 14: tp_one_hot(T, x, 5, TP_F32); break;
        }
        cr_expect_eq(strncmp(tp_why(T), expected[i], strlen(expected[i])), 0, "case %zu: %s", i,
                     tp_why(T));
        tp_clear(T);
    }
    end(&s);
}
