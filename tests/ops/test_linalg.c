/* test_linalg.c - matmul and linear against naive loops in f64: values and gradients, transposes,
 * shapes split in every way, empty sizes, bf16, dropout of infinite values, equal bits on any
 * number of threads, and messages for mismatched shapes. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/device.h"
#include "support/trial.h"
#include "support/values.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static const tp_dtype dtypes[] = { TP_F32, TP_F64 };

/* Relative to the largest element; sums here have at most 700 terms. */
static double tolerance(tp_dtype dt)
{
    return dt == TP_F32 ? 5e-6 : 1e-13;
}

static double *zeros(int64_t n)
{
    return calloc((size_t)n + 1, sizeof(double));
}

/* ---- matmul ---- */

typedef struct product {
    const char *name;
    tp_shape a, b;
    bool ta, tb;
} product;

static tp_tensor matmul(tp_tape *T, const tp_tensor *x, const void *env)
{
    const product *p = env;
    return tp_matmul_t(T, x[0], p->ta, x[1], p->tb);
}

static int64_t last(const tp_shape *s, int from_end)
{
    return s->dim[s->ndim - from_end];
}

/* y, da, db by one loop over all products a_ik b_kj. */
static void naive_matmul(const product *p, const trial_result *r, double *y, double *da, double *db)
{
    const int64_t M = last(&p->a, p->ta ? 1 : 2), K = last(&p->a, p->ta ? 2 : 1);
    const int64_t N = last(&p->b, p->tb ? 2 : 1);
    int64_t batch = 1;
    for (int i = 0; i < p->a.ndim - 2; i++) batch *= p->a.dim[i];
    for (int64_t q = 0; q < batch; q++)
        for (int64_t i = 0; i < M; i++)
            for (int64_t j = 0; j < N; j++)
                for (int64_t k = 0; k < K; k++) {
                    const int64_t at = q * M * N + i * N + j;
                    const int64_t ia = q * M * K + (p->ta ? k * M + i : i * K + k);
                    const int64_t ib =
                        (p->b.ndim > 2 ? q * K * N : 0) + (p->tb ? j * K + k : k * N + j);
                    y[at] += r->x[0][ia] * r->x[1][ib];
                    da[ia] += r->dy[at] * r->x[1][ib];
                    db[ib] += r->dy[at] * r->x[0][ia];
                }
}

static const product products[] = {
    { "square", { 2, { 5, 5 } }, { 2, { 5, 5 } }, false, false },
    { "a transposed", { 2, { 7, 3 } }, { 2, { 7, 4 } }, true, false },
    { "b transposed", { 2, { 3, 7 } }, { 2, { 4, 7 } }, false, true },
    { "both", { 2, { 7, 3 } }, { 2, { 4, 7 } }, true, true },
    { "rows split", { 2, { 600, 40 } }, { 2, { 40, 70 } }, false, false },
    { "rows split, a transposed", { 2, { 40, 600 } }, { 2, { 70, 40 } }, true, true },
    { "columns split", { 2, { 8, 700 } }, { 2, { 700, 401 } }, false, false },
    { "columns split, transposed", { 2, { 700, 8 } }, { 2, { 401, 700 } }, true, true },
    { "both split", { 2, { 150, 130 } }, { 2, { 130, 400 } }, false, false },
    { "one row", { 2, { 1, 300 } }, { 2, { 300, 5 } }, false, false },
    { "one column", { 2, { 300, 9 } }, { 2, { 1, 9 } }, false, true },
    { "batch", { 4, { 3, 4, 20, 24 } }, { 4, { 3, 4, 24, 17 } }, false, false },
    { "batch, transposed", { 3, { 9, 24, 20 } }, { 3, { 9, 17, 24 } }, true, true },
    { "large batch items", { 3, { 2, 200, 90 } }, { 3, { 2, 90, 110 } }, false, false },
    { "one b", { 4, { 2, 3, 50, 30 } }, { 2, { 30, 20 } }, false, false },
    { "one b, transposed", { 3, { 6, 50, 30 } }, { 2, { 20, 30 } }, false, true },
    { "one b, a transposed", { 3, { 6, 30, 50 } }, { 2, { 30, 20 } }, true, false },
    { "one b, both", { 3, { 6, 30, 50 } }, { 2, { 20, 30 } }, true, true },
    { "no rows", { 2, { 0, 4 } }, { 2, { 4, 3 } }, false, false },
    { "no columns", { 2, { 3, 4 } }, { 2, { 0, 4 } }, false, true },
    { "nothing to sum", { 3, { 2, 3, 0 } }, { 3, { 2, 0, 4 } }, false, false },
    { "empty batch", { 3, { 0, 4, 3 } }, { 2, { 4, 2 } }, true, false },
};

static void check_matmul(const product *p, tp_dtype dt)
{
    const trial t = { matmul, p, .in = { p->a, p->b }, .dtype = dt, .compute = dt };
    trial_result r = trial_run(&t);
    cr_expect_str_empty(r.why, "%s: %s", p->name, r.why);
    double *y = zeros(r.ny), *da = zeros(trial_count(&p->a)), *db = zeros(trial_count(&p->b));
    naive_matmul(p, &r, y, da, db);
    const double tol = tolerance(dt);
    cr_expect_lt(values_error(r.y, y, r.ny, 0), tol, "%s: y", p->name);
    cr_expect_lt(values_error(r.dx[0], da, trial_count(&p->a), 0), tol, "%s: da", p->name);
    cr_expect_lt(values_error(r.dx[1], db, trial_count(&p->b), 0), tol, "%s: db", p->name);
    free(y);
    free(da);
    free(db);
    trial_free(&r);
}

Test(linalg, matmul)
{
    for (size_t i = 0; i < COUNT(products); i++)
        for (size_t k = 0; k < COUNT(dtypes); k++)
            if (trial_can(dtypes[k], TP_ISA_AUTO)) check_matmul(&products[i], dtypes[k]);
}

/* ---- linear ---- */

typedef struct layer {
    const char *name;
    tp_shape x, w, b;
} layer;

typedef struct layer_act {
    tp_act act;
    const char *name;
} layer_act;

static const layer layers[] = {
    { "small", { 2, { 3, 5 } }, { 2, { 4, 5 } }, { 1, { 4 } } },
    { "one vector", { 1, { 33 } }, { 2, { 65, 33 } }, { 1, { 65 } } },
    { "no bias", { 3, { 2, 21, 17 } }, { 2, { 19, 17 } }, { 0 } },
    { "rows split", { 3, { 2, 350, 20 } }, { 2, { 70, 20 } }, { 1, { 70 } } },
    { "columns split", { 2, { 8, 700 } }, { 2, { 401, 700 } }, { 1, { 401 } } },
    { "no rows", { 2, { 0, 5 } }, { 2, { 4, 5 } }, { 1, { 4 } } },
    { "no inputs", { 2, { 3, 0 } }, { 2, { 4, 0 } }, { 1, { 4 } } },
    { "no outputs", { 2, { 3, 5 } }, { 2, { 0, 5 } }, { 1, { 0 } } },
};

static const layer_act acts[] = { { TP_ACT_NONE, "none" }, { TP_ACT_RELU, "relu" },
                                  { TP_ACT_GELU, "gelu" }, { TP_ACT_QUICK_GELU, "quick_gelu" },
                                  { TP_ACT_SILU, "silu" }, { TP_ACT_GELU_TANH, "gelu_tanh" },
                                  { TP_ACT_TANH, "tanh" }, { TP_ACT_SIGMOID, "sigmoid" } };

static tp_tensor linear(tp_tape *T, const tp_tensor *x, const void *env)
{
    return tp_linear(T, x[0], x[1], x[2], *(const tp_act *)env);
}

static double activation(tp_act act, double z, double *slope)
{
    const double k = act == TP_ACT_SILU ? 1.0 : 1.702;
    const double cdf = 0.5 * (1.0 + erf(z / sqrt(2.0))), s = 1.0 / (1.0 + exp(-k * z));
    const double e = 1.0 / (1.0 + exp(-z)), r = sqrt(2.0 / acos(-1.0));
    const double t = tanh(r * (z + 0.044715 * z * z * z));
    if (act == TP_ACT_NONE) return *slope = 1.0, z;
    if (act == TP_ACT_RELU) return *slope = z > 0.0, z > 0.0 ? z : 0.0;
    if (act == TP_ACT_QUICK_GELU || act == TP_ACT_SILU)
        return *slope = s + k * z * s * (1.0 - s), z * s;
    if (act == TP_ACT_TANH) return *slope = 1.0 - tanh(z) * tanh(z), tanh(z);
    if (act == TP_ACT_SIGMOID) return *slope = e * (1.0 - e), e;
    if (act == TP_ACT_GELU_TANH)
        return *slope = 0.5 * (1.0 + t + z * (1.0 - t * t) * r * (1.0 + 0.134145 * z * z)),
               0.5 * z * (1.0 + t);
    *slope = cdf + z * exp(-0.5 * z * z) / sqrt(2.0 * acos(-1.0));
    return z * cdf;
}

/* Returns the largest |Z|: its rounding bounds that of tanh and the sigmoid. */
static double naive_linear(const layer *l, tp_act act, const trial_result *r, double *y,
                           double **dx)
{
    double largest = 0.0;
    const int64_t N = l->w.dim[0], K = l->w.dim[1], rows = N > 0 ? r->ny / N : 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < N; j++) {
            double z = r->x[2] ? r->x[2][j] : 0.0, slope;
            for (int64_t k = 0; k < K; k++) z += r->x[0][i * K + k] * r->x[1][j * K + k];
            y[i * N + j] = activation(act, z, &slope);
            if (fabs(z) > largest) largest = fabs(z);
            const double dz = r->dy[i * N + j] * slope;
            for (int64_t k = 0; k < K; k++) {
                dx[0][i * K + k] += dz * r->x[1][j * K + k];
                dx[1][j * K + k] += dz * r->x[0][i * K + k];
            }
            dx[2][j] += dz;
        }
    return largest;
}

static void check_linear(const layer *l, const layer_act *a, tp_dtype dt, tp_dtype compute,
                         tp_isa isa, double tol)
{
    const trial t = {
        linear, &a->act, .in = { l->x, l->w, l->b }, .dtype = dt, .compute = compute, .isa = isa
    };
    trial_result r = trial_run(&t);
    cr_expect_str_empty(r.why, "%s, %s: %s", l->name, a->name, r.why);
    double *y = zeros(r.ny),
           *dx[3] = { zeros(trial_count(&l->x)), zeros(trial_count(&l->w)), zeros(l->w.dim[0]) };
    const double z = naive_linear(l, a->act, &r, y, dx);
    const double scale = a->act == TP_ACT_TANH || a->act == TP_ACT_SIGMOID ? z : 0;
    cr_expect_lt(values_error(r.y, y, r.ny, scale), tol, "%s, %s: y", l->name, a->name);
    for (int i = 0; i < 3; i++)
        if (r.dx[i])
            cr_expect_lt(values_error(r.dx[i], dx[i], trial_count(&t.in[i]), 0), tol,
                         "%s, %s: gradient %d, isa %d", l->name, a->name, i, (int)isa);
    free(y);
    for (int i = 0; i < 3; i++) free(dx[i]);
    trial_free(&r);
}

Test(linalg, linear)
{
    for (tp_isa isa = TP_ISA_BASE; isa <= TP_ISA_AVX512; isa++)
        for (size_t i = 0; i < COUNT(layers); i++)
            for (size_t a = 0; a < COUNT(acts); a++)
                for (size_t k = 0; k < COUNT(dtypes); k++) {
                    const tp_dtype dt = dtypes[k];
                    if (!trial_can(dt, isa)) continue;
                    check_linear(&layers[i], &acts[a], dt, dt, isa, tolerance(dt));
                }
}

/* f32 inputs and parameters, rounded to bf16 on the way in and out. ReLU is omitted: rounding moves
 * values over its kink. */
Test(linalg, linear_in_bf16)
{
    static const layer large = { "pairs", { 2, { 101, 79 } }, { 2, { 130, 79 } }, { 1, { 130 } } };
    for (size_t a = 0; a < COUNT(acts); a++)
        if (acts[a].act != TP_ACT_RELU)
            for (tp_isa isa = TP_ISA_BASE; isa <= TP_ISA_AMX; isa++) {
                if (!trial_can(TP_F32, isa)) continue;
                check_linear(&layers[3], &acts[a], TP_F32, TP_BF16, isa, 2e-2);
                check_linear(&large, &acts[a], TP_F32, TP_BF16, isa, 2e-2);
            }
}

Test(linalg, threads_do_not_change_bits)
{
    for (size_t i = 0; i < COUNT(products); i++) {
        const trial t = { matmul, &products[i], .in = { products[i].a, products[i].b } };
        cr_expect(trial_same_on_threads(&t), "matmul, %s", products[i].name);
    }
    for (size_t i = 0; i < COUNT(layers); i++) {
        const trial t = { linear, &acts[2].act, .in = { layers[i].x, layers[i].w, layers[i].b } };
        cr_expect(trial_same_on_threads(&t), "linear, %s", layers[i].name);
    }
}

Test(linalg, nan_and_infinity_pass_through_relu)
{
    const double x[] = { NAN, INFINITY, -INFINITY, 2.0 }, one[] = { 1.0 };
    const trial t = { linear, &acts[1].act, .in = { { 2, { 4, 1 } }, { 2, { 1, 1 } } },
                      .x = { x, one } };
    trial_result r = trial_run(&t);
    cr_expect(isnan(r.y[0]));
    cr_expect_eq(r.y[1], INFINITY);
    cr_expect_eq(r.y[2], 0.0);
    cr_expect_eq(r.y[3], 2.0);
    trial_free(&r);
}

/* ---- messages ---- */

/* ---- dropout in the layer ---- */

enum { DROP_ROWS = 9, DROP_COLS = 13 };
static const double drop_rate = 0.4;

/* y of act(b), dropped, for DROP_ROWS rows, and db where dy is infinite at what is dropped and 1
 * elsewhere. fused: in one op. */
static void drop_layer(tp_device *D, tp_dtype dt, tp_act act, bool fused, const float *b, float *y,
                       float *db)
{
    enum { N = DROP_ROWS * DROP_COLS };
    const tp_shape s = TP_SHAPE(DROP_ROWS, DROP_COLS);
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = dt, .train = true, .seed = 5 });
    tp_tape *M = tp_tape_new(D, &(tp_tape_opts){ .train = true, .seed = 5 });
    float dy[N];
    tp_read(M, tp_dropout(M, tp_full(M, TP_F32, s, 1), drop_rate), dy, sizeof dy);
    for (int i = 0; i < N; i++) dy[i] = dy[i] == 0 ? INFINITY : 1;
    const tp_tensor leaf = tp_input(T, TP_F32, TP_SHAPE(DROP_COLS), b), c = tp_cast(T, leaf, dt),
                    x = tp_full(T, dt, TP_SHAPE(DROP_ROWS, 1), 0),
                    w = tp_full(T, dt, TP_SHAPE(DROP_COLS, 1), 1),
                    z = fused ? tp_linear_dropout(T, x, w, c, act, drop_rate)
                              : tp_dropout(T, tp_linear(T, x, w, c, act), drop_rate);
    tp_read(T, tp_cast(T, z, TP_F32), y, sizeof dy);
    const tp_tensor g = tp_cast(T, tp_from(T, TP_F32, s, dy), dt);
    tp_backward(T, tp_sum(T, tp_mul(T, z, g), TP_ALL));
    tp_read(T, tp_grad(T, leaf), db, sizeof *db * DROP_COLS);
    cr_assert(tp_ok(M) && tp_ok(T), "%s%s", tp_why(M), tp_why(T));
    for (int i = 0; i < N; i++)
        if (isinf(dy[i]))
            cr_expect(y[i] == 0 && !signbit(y[i]), "activation %d, %s: element %d is %g, not +0",
                      (int)act, tp_dtype_name(dt), i, (double)y[i]);
    tp_tape_free(M);
    tp_tape_free(T);
}

/* Dropped elements are selected, not multiplied by 0. */
Test(linalg, dropout_selects)
{
    static const float finite[] = { -3, 0.5f, 2, -0.25f },
                       wild[] = { INFINITY, -INFINITY, -3, NAN };
    const double limit[] = { [TP_F32] = 1e-5, [TP_BF16] = 2e-2 };
    tp_device *D = device_open(NULL);
    float b[DROP_COLS], y[DROP_ROWS * DROP_COLS], db[DROP_COLS], want[DROP_COLS];
    for (int act = TP_ACT_RELU; act <= TP_ACT_SIGMOID; act++)
        for (int half = 0; half < 2; half++) {
            const tp_dtype dt = half ? TP_BF16 : TP_F32;
            for (int j = 0; j < DROP_COLS; j++) b[j] = wild[j % 4];
            drop_layer(D, dt, (tp_act)act, true, b, y, db);
            for (int j = 0; j < DROP_COLS; j++) b[j] = finite[j % 4];
            drop_layer(D, dt, (tp_act)act, true, b, y, db);
            drop_layer(D, dt, (tp_act)act, false, b, y, want);
            for (int j = 0; j < DROP_COLS; j++)
                cr_expect(fabs((double)(db[j] - want[j])) <= limit[dt] * 15,
                          "activation %d, %s: db[%d] is %g, not %g", act, tp_dtype_name(dt), j,
                          (double)db[j], (double)want[j]);
        }
    cr_expect_eq(tp_device_stats(D).live_bytes, 0, "memory is returned");
    tp_device_close(D);
}

Test(linalg, matmul_messages)
{
    static const struct {
        product p;
        const char *text;
    } cases[] = {
        { { "", { 2, { 32, 16 } }, { 2, { 64, 64 } }, false, false },
          "matmul: inner sizes differ: 16 and 64\n  inputs f32[32,16], f32[64,64]\n" },
        { { "", { 2, { 32, 16 } }, { 2, { 64, 16 } }, true, true },
          "matmul: inner sizes differ: 32 and 16\n" },
        { { "", { 1, { 16 } }, { 2, { 16, 4 } }, false, false },
          "matmul: operands need two axes or more\n" },
        { { "", { 4, { 2, 3, 4, 5 } }, { 3, { 3, 5, 6 } }, false, false },
          "matmul: b must have the leading axes of a, or none\n" },
        { { "", { 4, { 2, 3, 4, 5 } }, { 4, { 2, 4, 5, 6 } }, false, false },
          "matmul: leading axis 1 differs: 3 and 4\n" },
        { { "", { 2, { 0, INT64_C(1) << 31 } }, { 2, { INT64_C(1) << 31, 0 } }, false, false },
          "matmul: sizes must be below 2^31\n" },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const trial t = { matmul, &cases[i].p, .in = { cases[i].p.a, cases[i].p.b } };
        cr_expect(trial_fails(&t, cases[i].text), "case %zu", i);
    }
}

Test(linalg, linear_messages)
{
    static const struct {
        tp_shape x, w, b;
        tp_act act;
        const char *text;
    } cases[] = {
        { { 2, { 3, 16 } },
          { 2, { 8, 64 } },
          { 0 },
          TP_ACT_NONE,
          "linear: inner sizes differ: 16 and 64\n  inputs f32[3,16], f32[8,64], none\n" },
        { { 2, { 3, 16 } },
          { 3, { 8, 16, 1 } },
          { 0 },
          TP_ACT_NONE,
          "linear: w must be [outputs,inputs]\n" },
        { { 2, { 3, 16 } },
          { 2, { 8, 16 } },
          { 1, { 16 } },
          TP_ACT_NONE,
          "linear: b must be [8]\n" },
        { { 2, { 3, 16 } },
          { 2, { 8, 16 } },
          { 2, { 1, 8 } },
          TP_ACT_NONE,
          "linear: b must be [8]\n" },
        { { 2, { 3, 16 } }, { 2, { 8, 16 } }, { 0 }, (tp_act)9, "linear: unknown activation 9\n" },
        { { 2, { 0, 0 } },
          { 2, { INT64_C(1) << 31, 0 } },
          { 0 },
          TP_ACT_NONE,
          "linear: sizes must be below 2^31\n" },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const trial t = { linear, &cases[i].act, .in = { cases[i].x, cases[i].w, cases[i].b } };
        cr_expect(trial_fails(&t, cases[i].text), "case %zu", i);
    }
}

static tp_tensor of_integers(tp_tape *T, const tp_tensor *x, const void *env)
{
    const tp_tensor i = tp_full(T, TP_I32, tp_shape_of(x[0]), 1.0);
    return *(const bool *)env ? tp_matmul(T, i, x[0]) : tp_linear(T, x[0], i, TP_NONE, TP_ACT_NONE);
}

Test(linalg, integers_are_refused)
{
    const trial m = { of_integers, &(bool){ true }, .in = { { 2, { 3, 3 } } } };
    const trial l = { of_integers, &(bool){ false }, .in = { { 2, { 3, 3 } } } };
    cr_expect(trial_fails(&m, "matmul: a must be floating point, not "));
    cr_expect(trial_fails(&l, "linear: w must be floating point, not "));
}
