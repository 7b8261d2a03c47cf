/* test_along.c - functions along one axis against loops in double: running sums and products with
 * long lanes and zeros, bits on any number of threads; sorting. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/random.h>
#include <tapegrad/tapegrad.h>

#include "support/loops.h"
#include "support/ops.h"
#include "support/values.h"

TestSuite(along, .init = cpu_tape_open, .fini = cpu_tape_close);

static const struct {
    tp_shape s;
    int axis;
} shapes[] = {
    { { 1, { 7 } }, 0 },          { { 1, { 100003 } }, 0 },   { { 2, { 301, 703 } }, 0 },
    { { 2, { 301, 703 } }, 1 },   { { 2, { 3, 9001 } }, -1 }, { { 2, { 9001, 3 } }, 0 },
    { { 2, { 9001, 33 } }, 0 },   { { 2, { 5, 4097 } }, 1 },  { { 3, { 13, 47, 31 } }, 1 },
    { { 3, { 7, 4099, 2 } }, 1 }, { { 2, { 7, 1 } }, 1 },     { { 2, { 65, 5000 } }, 1 },
};

typedef struct lane {
    int64_t at, step, n;
} lane;

static int64_t lanes_of(size_t i, int64_t *n, int64_t *inner)
{
    const tp_shape s = shapes[i].s;
    const int axis = (shapes[i].axis + s.ndim) % s.ndim;
    *n = s.dim[axis];
    *inner = 1;
    for (int k = axis + 1; k < s.ndim; k++) *inner *= s.dim[k];
    return elements(s) / *n;
}

static lane lane_at(int64_t number, int64_t n, int64_t inner)
{
    return (lane){ number / inner * n * inner + number % inner, inner, n };
}

/* y and dx of one lane. The product's gradient sums over all later results by definition, but from
 * the end for long lanes, which have no zeros. */
static void expected(bool product, const double *x, const double *dy, lane l, double *y, double *dx)
{
    double s = product ? 1.0 : 0.0;
    for (int64_t i = 0; i < l.n; i++) {
        const int64_t e = l.at + i * l.step;
        s = product ? s * x[e] : s + x[e];
        y[e] = s;
    }
    double later = 0.0;
    for (int64_t i = l.n - 1; i >= 0; i--) {
        const int64_t e = l.at + i * l.step;
        later += product ? dy[e] * y[e] : dy[e];
        dx[e] = product ? later / x[e] : later;
    }
    for (int64_t i = 0; product && l.n <= 50 && i < l.n; i++) {
        double others = i > 0 ? y[l.at + (i - 1) * l.step] : 1.0, sum = 0.0;
        for (int64_t k = i; k < l.n; k++) {
            if (k > i) others *= x[l.at + k * l.step];
            sum += dy[l.at + k * l.step] * others;
        }
        dx[l.at + i * l.step] = sum;
    }
}

static void check(bool product, size_t i, tp_dtype dt)
{
    const char *name = product ? "cumprod" : "cumsum";
    const tp_shape s = shapes[i].s;
    const int64_t numel = elements(s);
    int64_t n, inner;
    const int64_t lanes = lanes_of(i, &n, &inner);
    const size_t bytes = (size_t)numel * sizeof(double);
    double *x = malloc(bytes), *dy = malloc(bytes), *y = malloc(bytes), *dx = malloc(bytes);
    double *got = malloc(bytes);
    values_random(x, numel, i);
    values_random(dy, numel, 99);
    for (int64_t e = 0; e < numel; e++) {
        if (product) x[e] = n > 50 ? 1 + 0.01 * x[e] : floor(x[e] * 8) / 4; /* some are 0 */
        x[e] = (float)x[e];
        dy[e] = (float)dy[e];
    }
    for (int64_t k = 0; k < lanes; k++) expected(product, x, dy, lane_at(k, n, inner), y, dx);
    tp_reset(T);
    const tp_tensor tx = values_input(T, dt, s, x);
    const tp_tensor ty =
        product ? tp_cumprod(T, tx, shapes[i].axis) : tp_cumsum(T, tx, shapes[i].axis);
    values_read(T, ty, got);
    const double limit = dt == TP_F64 ? 1e-12 : 2e-6;
    double off = values_error(got, y, numel, 0.0);
    cr_expect(off <= limit, "%s, %zu, %s: off by %g", name, i, tp_dtype_name(dt), off);
    tp_backward(T, tp_sum(T, tp_mul(T, ty, values_constant(T, dt, s, dy)), TP_ALL));
    values_read(T, tp_grad(T, tx), got);
    off = values_error(got, dx, numel, 0.0);
    cr_expect(off <= limit, "gradient of %s, %zu, %s: off by %g", name, i, tp_dtype_name(dt), off);
    free(x), free(dy), free(y), free(dx), free(got);
}

Test(along, running_sums_and_products)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int product = 0; product < 2; product++) {
            check(product, i, TP_F64);
            check(product, i, TP_F32);
        }
}

/* A million equal numbers: each result is within one ulp; f32 sums would miss by far. */
Test(along, precision)
{
    enum { N = 1 << 20 };
    float *y = malloc(N * sizeof *y);
    tp_read(T, tp_cumsum(T, tp_full(T, TP_F32, TP_SHAPE(N), 0.1), 0), y, N * sizeof *y);
    for (int i = 0; i < N; i += 4093) {
        const double want = (double)0.1f * (i + 1);
        cr_expect_float_eq((double)y[i], want, 6e-8 * want, "element %d", i);
    }
    free(y);
}

/* bf16 results keep their dtype and are rounded once. */
Test(along, bf16)
{
    const tp_tensor x = tp_full(T, TP_BF16, TP_SHAPE(300), 1.0), y = tp_cumsum(T, x, 0);
    double got[300];
    cr_expect_eq(tp_dtype_of(y), TP_BF16);
    values_read(T, y, got);
    cr_expect_eq(got[255], 256.0);
    cr_expect_eq(got[256], 256.0, "257 is no bf16: halves go to even");
    cr_expect_eq(got[258], 260.0, "%g", got[258]);
}

/* ---- sorting ---- */

/* True if a precedes b. NaN is the largest. */
static bool before(double a, double b, bool descending)
{
    if (isnan(a) || isnan(b)) return descending ? isnan(a) && !isnan(b) : !isnan(a) && isnan(b);
    return descending ? a > b : a < b;
}

/* Expects the k values at the indices, stably sorted; no other element precedes the last. */
static void check_order(const char *name, const double *x, const double *y, const int64_t *at,
                        lane l, lane to, bool descending)
{
    bool *taken = calloc((size_t)l.n, sizeof *taken);
    for (int64_t i = 0; i < to.n; i++) {
        const int64_t p = at[to.at + i * to.step];
        cr_assert(p >= 0 && p < l.n && !taken[p], "%s: index %lld", name, (long long)p);
        taken[p] = true;
        const double v = x[l.at + p * l.step], w = y[to.at + i * to.step];
        cr_assert(memcmp(&v, &w, sizeof v) == 0, "%s: %g is not %g", name, w, v);
        if (i == 0) continue;
        const int64_t q = at[to.at + (i - 1) * to.step];
        const double u = x[l.at + q * l.step];
        cr_assert(before(u, v, descending) || (!before(v, u, descending) && q < p),
                  "%s: %g at %lld, then %g at %lld", name, u, (long long)q, v, (long long)p);
    }
    const int64_t q = to.n > 0 ? at[to.at + (to.n - 1) * to.step] : -1;
    const double last = q < 0 ? 0.0 : x[l.at + q * l.step];
    for (int64_t p = 0; q >= 0 && p < l.n; p++) {
        const double v = x[l.at + p * l.step];
        cr_assert(taken[p] || before(last, v, descending) ||
                      (!before(v, last, descending) && p > q),
                  "%s: %g at %lld was left out", name, v, (long long)p);
    }
    free(taken);
}

/* Kinds: distinct values, few distinct ones with zeros of both signs, some NaN, already sorted. */
static double value_of(int kind, double random, int64_t e)
{
    if (kind == 1) return floor(random * 3) * (e % 2 ? 1.0 : -0.0);
    if (kind == 2) return e % 7 == 3 ? NAN : e % 11 == 5 ? -INFINITY : floor(random * 9);
    return kind == 3 ? (double)(float)e : (double)(float)random;
}

static void check_sort(size_t i, tp_dtype dt, int kind, int64_t k, bool descending)
{
    const tp_shape s = shapes[i].s;
    const int64_t numel = elements(s);
    int64_t n, inner;
    const int64_t lanes = lanes_of(i, &n, &inner), some = k < 0 ? n : k < n ? k : n;
    char name[100];
    snprintf(name, sizeof name, "shape %zu, %s, kind %d, k %d, %s", i, tp_dtype_name(dt), kind,
             (int)k, descending ? "falling" : "rising");
    double *x = malloc((size_t)numel * sizeof *x), *y = malloc((size_t)numel * sizeof *y);
    int64_t *at = malloc((size_t)numel * sizeof *at);
    values_random(x, numel, i);
    for (int64_t e = 0; e < numel; e++) x[e] = value_of(kind, x[e], e);
    tp_reset(T);
    const tp_tensor in = values_input(T, dt, s, x);
    tp_tensor indices;
    const tp_tensor out = k < 0 ? tp_sort(T, in, shapes[i].axis, descending, &indices)
                                : tp_topk(T, in, some, shapes[i].axis, descending, &indices);
    values_read(T, out, y);
    tp_read(T, indices, at, (size_t)(lanes * some) * sizeof *at);
    cr_assert(tp_ok(T), "%s: %s", name, tp_why(T));
    for (int64_t j = 0; j < lanes; j++)
        check_order(name, x, y, at, lane_at(j, n, inner), lane_at(j, some, inner), descending);
    /* the gradient of sum y_i g_i is g_i at the index of y_i, 0 elsewhere */
    double *g = malloc((size_t)numel * sizeof *g), *want = calloc((size_t)numel, sizeof *want);
    values_random(g, lanes * some, 7);
    for (int64_t e = 0; e < lanes * some; e++) {
        g[e] = (float)g[e];
        const int64_t row = e / (some * inner);
        want[(row * n + at[e]) * inner + e % inner] = g[e];
    }
    tp_backward(T, tp_sum(T, tp_mul(T, out, values_constant(T, dt, tp_shape_of(out), g)), TP_ALL));
    if (kind != 2) {
        values_read(T, tp_grad(T, in), y);
        cr_expect_eq(values_error(y, want, numel, 1.0), 0.0, "the gradient of %s", name);
    }
    free(x), free(y), free(at), free(g), free(want);
}

Test(along, sort_and_topk)
{
    static const int64_t ks[] = { -1, 1, 5, 600 };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int kind = 0; kind < 4; kind++)
            for (size_t k = 0; k < sizeof ks / sizeof *ks; k++)
                check_sort(i, (i + k) % 2 ? TP_F64 : TP_F32, kind, ks[k],
                           ((size_t)kind + k) % 3 == 0);
}

/* Hashes the results and gradients of every shape. */
static uint64_t hash_of(int threads)
{
    tp_device *E = tp_device_open("cpu", &(tp_device_opts){ .threads = threads });
    tp_tape *U = tp_tape_new(E, NULL);
    uint64_t h = TP_HASH;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const tp_shape s = shapes[i].s;
        const int64_t numel = elements(s);
        double *x = malloc((size_t)numel * sizeof *x), *got = malloc((size_t)numel * sizeof *got);
        values_random(x, numel, i);
        for (int64_t e = 0; e < numel; e++) x[e] = 1 + 0.01 * x[e];
        tp_reset(U);
        const tp_tensor in = values_input(U, TP_F32, s, x);
        const tp_tensor y =
            tp_cumprod(U, tp_cumsum(U, tp_scale(U, in, 1e-4), shapes[i].axis), shapes[i].axis);
        tp_backward(U, tp_sum(U, y, TP_ALL));
        const tp_tensor results[] = { y, tp_grad(U, in), tp_argsort(U, in, shapes[i].axis, true) };
        for (int k = 0; k < 3; k++) {
            values_read(U, results[k], got);
            for (int64_t e = 0; e < numel; e++) {
                uint64_t bits;
                memcpy(&bits, &got[e], sizeof bits);
                h = tp_hash(h, bits);
            }
        }
        free(x), free(got);
    }
    cr_expect(tp_ok(U), "%s", tp_why(U));
    tp_tape_free(U);
    tp_device_close(E);
    return h;
}

Test(along, threads_do_not_matter)
{
    const uint64_t one = hash_of(1);
    cr_expect_eq(hash_of(2), one);
    cr_expect_eq(hash_of(5), one);
}

Test(along, mistakes)
{
    const tp_tensor x = tp_full(T, TP_F32, TP_SHAPE(2, 3), 1.0);
    tp_cumsum(T, x, 2);
    cr_expect(failed_with(T, "cumsum: axis 2 is out of range for 2 axes"), "%s", tp_why(T));
    tp_cumprod(T, tp_full(T, TP_F32, TP_SCALAR, 1.0), 0);
    cr_expect(failed_with(T, "cumprod: axis 0 is out of range for 0 axes"), "%s", tp_why(T));
    tp_topk(T, x, 4, 1, true, NULL);
    cr_expect(failed_with(T, "topk: k must be from 0 to 3, the size of the axis, not 4"), "%s",
              tp_why(T));
    tp_sort(T, x, -3, true, NULL);
    cr_expect(failed_with(T, "sort: axis -3 is out of range for 2 axes"), "%s", tp_why(T));
    tp_cumsum(T, tp_full(T, TP_I64, TP_SHAPE(3), 1.0), 0);
    cr_expect(failed_with(T, "cumsum: input 0 must be floating point, not "), "%s", tp_why(T));
}
