/* test_norms.c - normalisations and softmax against the plain formulas in f64, on every instruction
 * set: values, running statistics, extreme inputs, empty sizes, equal bits with any number of
 * threads, messages. test_gradcheck.c and test_refs.c check gradients. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/device.h"
#include "support/trial.h"
#include "support/values.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

typedef enum kind { LAYER, RMS, BATCH, SOFTMAX, LOG_SOFTMAX } kind;

static const char *const kinds[] = { "layernorm", "rmsnorm", "batchnorm", "softmax",
                                     "log_softmax" };

typedef struct setting {
    kind kind;
    double eps, momentum;
} setting;

/* The inputs are x, w, b, mean, var; a kind uses the first few. */
static tp_tensor apply(tp_tape *T, const tp_tensor *x, const void *env)
{
    const setting *s = env;
    switch (s->kind) {
    case LAYER: return tp_layernorm(T, x[0], x[1], x[2], s->eps);
    case RMS: return tp_rmsnorm(T, x[0], x[1], s->eps);
    case BATCH: return tp_batchnorm(T, x[0], x[1], x[2], x[3], x[4], TP_NONE, s->momentum, s->eps);
    case SOFTMAX: return tp_softmax(T, x[0]);
    case LOG_SOFTMAX: return tp_log_softmax(T, x[0]);
    }
    return x[0];
}

/* Mean and biased variance of n numbers `step` apart. */
static void moments(const double *x, int64_t n, int64_t step, double *mean, double *var)
{
    *mean = *var = 0.0;
    for (int64_t i = 0; i < n; i++) *mean += x[i * step] / (double)n;
    for (int64_t i = 0; i < n; i++)
        *var += (x[i * step] - *mean) * (x[i * step] - *mean) / (double)n;
}

static void naive_row(kind k, double eps, int64_t n, const double *x, double *y)
{
    double m, v, most = -INFINITY, sum = 0.0;
    moments(x, n, 1, &m, &v);
    for (int64_t i = 0; i < n; i++) most = fmax(most, x[i]);
    for (int64_t i = 0; i < n; i++) sum += exp(x[i] - most);
    for (int64_t i = 0; i < n; i++)
        y[i] = k == LAYER     ? (x[i] - m) / sqrt(v + eps)
               : k == RMS     ? x[i] / sqrt(v + m * m + eps)
               : k == SOFTMAX ? exp(x[i] - most) / sum
                              : x[i] - most - log(sum);
}

/* Computes y [rows,n] from x, w, b, mean, var. */
static void naive(const setting *s, const trial_result *r, int64_t rows, int64_t n, bool eval,
                  double *y)
{
    const double *x = r->x[0];
    for (int64_t j = 0; j < n && s->kind == BATCH; j++) {
        double m, v;
        moments(x + j, rows, n, &m, &v);
        if (eval) m = r->x[3][j], v = r->x[4][j];
        for (int64_t i = 0; i < rows; i++) y[i * n + j] = (x[i * n + j] - m) / sqrt(v + s->eps);
    }
    for (int64_t i = 0; i < rows && s->kind != BATCH; i++)
        naive_row(s->kind, s->eps, n, x + i * n, y + i * n);
    for (int64_t i = 0; i < rows * n; i++) {
        if (r->x[1]) y[i] *= r->x[1][i % n];
        if (r->x[2]) y[i] += r->x[2][i % n];
    }
}

static trial trial_of(const setting *s, int64_t rows, int64_t n, bool w, bool b)
{
    trial t = { apply, s, .in = { { 2, { rows, n } } } };
    const tp_shape vector = { 1, { n } };
    if (w && s->kind <= BATCH) t.in[1] = vector;
    if (b && (s->kind == LAYER || s->kind == BATCH)) t.in[2] = vector;
    if (s->kind == BATCH) {
        t.in[3] = t.in[4] = vector;
        t.constant = 1u << 3 | 1u << 4;
    }
    return t;
}

/* n positive numbers. */
static double *variances(int64_t n)
{
    double *v = calloc((size_t)n + 1, sizeof *v);
    values_random(v, n, 5);
    for (int64_t i = 0; i < n; i++) v[i] = 1.5 + v[i];
    return v;
}

static void check(const setting *s, int64_t rows, int64_t n, tp_dtype dt, tp_isa isa)
{
    double *var = variances(n), *y = calloc((size_t)(rows * n) + 1, sizeof *y);
    for (int k = 0; k < 8; k++) { /* w, b, eval */
        trial t = trial_of(s, rows, n, k & 1, k & 2);
        t.eval = k & 4;
        t.dtype = t.compute = dt;
        t.isa = isa;
        t.x[4] = var;
        trial_result r = trial_run(&t);
        cr_expect_str_empty(r.why, "%s", r.why);
        naive(s, &r, rows, n, t.eval, y);
        cr_expect_lt(values_error(r.y, y, r.ny, 0), dt == TP_F32 ? 2e-6 : 1e-13,
                     "%s [%d,%d] %s, case %d", kinds[s->kind], (int)rows, (int)n, tp_dtype_name(dt),
                     k);
        trial_free(&r);
    }
    free(var);
    free(y);
}

Test(norms, values)
{
    static const setting settings[] = { { LAYER, 1e-5, 0 },
                                        { RMS, 1e-5, 0 },
                                        { BATCH, 1e-5, 0.1 },
                                        { SOFTMAX, 0, 0 },
                                        { LOG_SOFTMAX, 0, 0 } };
    static const int64_t sizes[][2] = { { 2, 3 }, { 5, 17 }, { 300, 5 }, { 70, 130 }, { 9, 1 } };
    for (tp_isa isa = TP_ISA_BASE; isa <= TP_ISA_AVX512; isa++)
        for (size_t s = 0; s < COUNT(settings); s++)
            for (size_t i = 0; i < COUNT(sizes); i++) {
                const int64_t rows = sizes[i][0], n = sizes[i][1];
                if (trial_can(TP_F32, isa)) check(&settings[s], rows, n, TP_F32, isa);
                if (trial_can(TP_F64, isa)) check(&settings[s], rows, n, TP_F64, isa);
            }
}

/* A one-pass variance would lose all digits here. */
Test(norms, the_variance_is_exact_at_a_large_mean)
{
    enum { ROWS = 200, N = 40 };
    static double x[ROWS * N], y[ROWS * N];
    values_random(x, ROWS * N, 1);
    for (int i = 0; i < ROWS * N; i++) x[i] = (double)(float)(3000.0 + x[i]);
    static const setting settings[] = { { LAYER, 1e-5, 0 }, { BATCH, 1e-5, 0.1 } };
    for (size_t s = 0; s < COUNT(settings); s++) {
        trial t = trial_of(&settings[s], ROWS, N, false, false);
        t.x[0] = x;
        trial_result r = trial_run(&t);
        naive(&settings[s], &r, ROWS, N, false, y);
        cr_expect_lt(values_error(r.y, y, r.ny, 0), 1e-3, "%s", kinds[settings[s].kind]);
        trial_free(&r);
    }
}

Test(norms, softmax_of_extreme_rows)
{
    const double x[] = { 1e4, 1e4 - 1, -INFINITY, -1e30, -200, -100, -150, -100,
                         NAN, 0,       0,         0,     5,    5,    5,    5 };
    const double e = exp(-1.0);
    const double p[] = { 1 / (1 + e), e / (1 + e), 0,   0,   0,    0.5,  0,    0.5,
                         NAN,         NAN,         NAN, NAN, 0.25, 0.25, 0.25, 0.25 };
    const setting soft = { SOFTMAX, 0, 0 }, logs = { LOG_SOFTMAX, 0, 0 };
    double q[16];
    for (int k = 0; k < 2; k++) {
        trial t = trial_of(k ? &logs : &soft, 4, 4, false, false);
        t.x[0] = x;
        trial_result r = trial_run(&t);
        for (int i = 0; i < 16; i++) q[i] = k ? exp(r.y[i]) : r.y[i];
        cr_expect_lt(values_error(q, p, 16, 0), 1e-6, "%s", k ? "log_softmax" : "softmax");
        if (k) cr_expect_float_eq(r.y[4], -100.0 - log(2.0), 1e-5);
        trial_free(&r);
    }
}

/* ---- running statistics of batch norm ---- */

enum { B_ROWS = 50, B_N = 3 };

typedef struct stats {
    tp_tensor mean, var, batches;
} stats;

static tp_tensor normalise(tp_tape *T, const void *self, tp_tensor x)
{
    const stats *s = self;
    return tp_batchnorm(T, x, TP_NONE, TP_NONE, s->mean, s->var, s->batches, 0.25, 1e-5);
}

static tp_tensor checkpointed(tp_tape *T, const void *self, tp_tensor x)
{
    return tp_checkpoint(T, normalise, self, x);
}

static void check_running(const char *name, tp_fn f, bool train)
{
    const double tol = device_limit(1e-14, 1e-6);
    double x[B_ROWS * B_N], got[2][B_N], m, v;
    values_random(x, B_ROWS * B_N, 3);
    tp_device *D = device_open(&(tp_device_opts){ .threads = 2 });
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = device_real(), .train = train });
    const tp_shape n = TP_SHAPE(B_N);
    const stats s = { tp_full(T, device_real(), n, 2.0), tp_full(T, device_real(), n, 3.0),
                      tp_from(T, TP_I64, TP_SCALAR, &(int64_t){ 5 }) };
    const tp_tensor in = values_input(T, device_real(), TP_SHAPE(B_ROWS, B_N), x);
    tp_backward(T, tp_sum(T, f(T, &s, in), TP_ALL));
    values_read(T, s.mean, got[0]);
    values_read(T, s.var, got[1]);
    int64_t count = 0;
    tp_read(T, s.batches, &count, sizeof count);
    cr_expect(tp_ok(T), "%s", tp_why(T));
    cr_expect_eq(count, train ? 6 : 5, "%s: %lld batches", name, (long long)count);
    for (int j = 0; j < B_N; j++) {
        moments(x + j, B_ROWS, B_N, &m, &v);
        v *= B_ROWS / (B_ROWS - 1.0);
        cr_expect_float_eq(got[0][j], train ? 0.75 * 2.0 + 0.25 * m : 2.0, tol, "%s: mean", name);
        cr_expect_float_eq(got[1][j], train ? 0.75 * 3.0 + 0.25 * v : 3.0, tol, "%s: var", name);
    }
    tp_tape_free(T);
    tp_device_close(D);
}

Test(norms, running_statistics)
{
    check_running("training", normalise, true);
    check_running("training, checkpointed: moved once", checkpointed, true);
    check_running("eval", normalise, false);
}

/* ---- shapes ---- */

static const setting all[] = { { LAYER, 1e-5, 0 },
                               { RMS, 1e-5, 0 },
                               { BATCH, 1e-5, 0.1 },
                               { SOFTMAX, 0, 0 },
                               { LOG_SOFTMAX, 0, 0 } };

Test(norms, threads_do_not_change_bits)
{
    static const int64_t sizes[][2] = { { 300, 130 }, { 6000, 7 }, { 1, 5000 } };
    for (size_t s = 0; s < COUNT(all); s++)
        for (size_t i = 0; i < COUNT(sizes); i++) {
            if (all[s].kind == BATCH && sizes[i][0] == 1) continue;
            const trial t = trial_of(&all[s], sizes[i][0], sizes[i][1], true, true);
            cr_expect(trial_same_on_threads(&t), "%s, size %zu", kinds[all[s].kind], i);
        }
}

Test(norms, empty_sizes)
{
    static const int64_t sizes[][2] = { { 0, 4 }, { 4, 0 }, { 0, 0 } };
    for (size_t s = 0; s < COUNT(all); s++)
        for (size_t i = 0; i < COUNT(sizes); i++) {
            const trial t = trial_of(&all[s], sizes[i][0], sizes[i][1], true, true);
            trial_result r = trial_run(&t);
            cr_expect_str_empty(r.why, "%s, size %zu: %s", kinds[all[s].kind], i, r.why);
            cr_expect_eq(r.ny, 0);
            for (int k = 1; k < 3; k++)
                for (int64_t j = 0; r.dx[k] && j < sizes[i][1]; j++)
                    cr_expect_eq(r.dx[k][j], 0.0, "%s: gradient %d", kinds[all[s].kind], k);
            trial_free(&r);
        }
}

Test(norms, messages)
{
    static const struct {
        setting s;
        tp_shape in[5];
        const char *text;
    } cases[] = {
        { { LAYER, 1e-5, 0 },
          { { 2, { 3, 4 } }, { 1, { 3 } } },
          "layernorm: w must be [4]\n  inputs f32[3,4], f32[3], none\n" },
        { { LAYER, 1e-5, 0 },
          { { 2, { 3, 4 } }, { 0 }, { 2, { 1, 4 } } },
          "layernorm: b must be [4]\n" },
        { { LAYER, -1.0, 0 }, { { 2, { 3, 4 } } }, "layernorm: eps must be 0 or more\n" },
        { { RMS, NAN, 0 }, { { 2, { 3, 4 } } }, "rmsnorm: eps must be 0 or more\n" },
        { { RMS, 0, 0 }, { { 2, { 3, 4 } }, { 1, { 5 } } }, "rmsnorm: w must be [4]\n" },
        { { BATCH, 1e-5, 0.1 },
          { { 2, { 3, 4 } }, { 0 }, { 0 }, { 1, { 4 } }, { 1, { 3 } } },
          "batchnorm: var must be [4]\n" },
        { { BATCH, 1e-5, 1.5 },
          { { 2, { 3, 4 } }, { 0 }, { 0 }, { 1, { 4 } }, { 1, { 4 } } },
          "batchnorm: momentum must be in [0, 1]\n" },
        { { BATCH, -1e-5, 0.5 },
          { { 2, { 3, 4 } }, { 0 }, { 0 }, { 1, { 4 } }, { 1, { 4 } } },
          "batchnorm: eps must be 0 or more\n" },
        { { BATCH, 1e-5, 0.5 },
          { { 3, { 1, 1, 4 } }, { 0 }, { 0 }, { 1, { 4 } }, { 1, { 4 } } },
          "batchnorm: training needs more than one value a channel: use a batch of 2 or more, or "
          "larger inputs\n" },
        { { BATCH, 1e-5, 0.5 },
          { { 2, { 3, 4 } }, { 0 }, { 0 }, { 0 }, { 1, { 4 } } },
          "batchnorm: input 3" },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        trial t = { .f = apply, .env = &cases[i].s };
        memcpy(t.in, cases[i].in, sizeof cases[i].in);
        cr_expect(trial_fails(&t, cases[i].text), "case %zu", i);
    }
}

static tp_tensor of_scalar(tp_tape *T, const tp_tensor *x, const void *env)
{
    const tp_tensor y[] = { tp_sum(T, x[0], TP_ALL), TP_NONE, TP_NONE, x[0], x[0] };
    return apply(T, y, env);
}

Test(norms, scalars_are_refused)
{
    for (size_t s = 0; s < COUNT(all); s++) {
        char text[64];
        snprintf(text, sizeof text, "%s: x needs one axis or more\n", kinds[all[s].kind]);
        const trial t = { of_scalar, &all[s], .in = { { 1, { 3 } } } };
        cr_expect(trial_fails(&t, text));
    }
}

/* ---- instance and group norm, weight standardisation; tests/ops/test_refs.c checks values ---- */

typedef struct option {
    bool weights, biased;
    double eps;
    int64_t groups; /* of group norm; 0: another op */
} option;

static tp_tensor apply_option(tp_tape *T, const tp_tensor *x, const void *env)
{
    const option *o = env;
    if (o->groups != 0) return tp_groupnorm(T, x[0], o->groups, x[1], x[2], o->eps);
    return o->weights ? tp_weight_standardize(T, x[0], o->eps, o->biased)
                      : tp_instancenorm(T, x[0], x[1], x[2], o->eps);
}

Test(norms, messages_of_instances_and_weights)
{
    static const struct {
        option o;
        tp_shape in[3];
        const char *text;
    } cases[] = {
        { { false, false, 1e-5, 0 },
          { { 3, { 2, 3, 4 } }, { 1, { 5 } } },
          "instancenorm: w must be [4]\n  inputs f32[2,3,4], f32[5], none\n" },
        { { false, false, 1e-5, 0 },
          { { 3, { 2, 3, 4 } }, { 0 }, { 1, { 5 } } },
          "instancenorm: b must be [4]\n" },
        { { false, false, 1e-5, 0 }, { { 1, { 4 } } }, "instancenorm: x must be [B,...,C]\n" },
        { { false, false, -1.0, 0 }, { { 2, { 3, 4 } } }, "instancenorm: eps must be 0 or more\n" },
        { { false, false, 1e-5, 2 },
          { { 3, { 2, 3, 4 } }, { 1, { 2 } } },
          "groupnorm: w must be [4]\n  inputs f32[2,3,4], f32[2], none\n" },
        { { false, false, 1e-5, 3 },
          { { 3, { 2, 3, 4 } } },
          "groupnorm: 4 channels cannot be divided into 3 groups\n" },
        { { false, false, 1e-5, 2 },
          { { 4, { 2, 4, 6, 8 } }, { 1, { 4 } } },
          "groupnorm: x must be [B,H,W,4], channels last; it looks like channels first: tp_permute "
          "it by 0, 2, 3, 1\n" },
        { { false, false, 1e-5, -3 }, { { 3, { 2, 3, 4 } } }, "groupnorm: groups cannot be -3\n" },
        { { false, false, NAN, 2 }, { { 3, { 2, 3, 4 } } }, "groupnorm: eps must be 0 or more\n" },
        { { true, false, 1e-5, 0 }, { { 1, { 4 } } }, "weight_standardize: w must be [Co,...]\n" },
        { { true, false, NAN, 0 },
          { { 2, { 3, 4 } } },
          "weight_standardize: eps must be 0 or more\n" },
        { { true, false, 1e-5, 0 },
          { { 2, { 3, 1 } } },
          "weight_standardize: an unbiased deviation needs two weights a channel or more\n" },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        trial t = { .f = apply_option, .env = &cases[i].o };
        memcpy(t.in, cases[i].in, sizeof cases[i].in);
        cr_expect(trial_fails(&t, cases[i].text), "case %zu", i);
    }
}

/* Threads share the parts of one image, or take complete images of many. */
Test(norms, instances_and_groups_on_threads)
{
    static const option options[] = { { false, false, 1e-5, 0 }, { false, false, 1e-5, 7 } };
    for (int i = 0; i < 2; i++)
        for (int64_t images = 1; images < 12; images += 5) {
            const trial t = { apply_option, &options[i],
                              .in = { { 4, { images, 40, 31, 70 } }, { 1, { 70 } } } };
            cr_expect(trial_same_on_threads(&t), "%d, %d images", i, (int)images);
        }
}

/* A one-pass variance would lose all digits here. */
Test(norms, the_variance_of_groups_is_exact_at_a_large_mean)
{
    enum { N = 1300, C = 6, D = 3 };
    static const option o = { false, false, 1e-5, C / D };
    static double x[N * C], y[N * C];
    values_random(x, N * C, 1);
    for (int i = 0; i < N * C; i++) x[i] = (double)(float)(3000.0 + x[i]);
    for (int g = 0; g < C; g += D) {
        static double row[N * D];
        for (int i = 0; i < N * D; i++) row[i] = x[i / D * C + g + i % D];
        double m, v;
        moments(row, N * D, 1, &m, &v);
        for (int i = 0; i < N * D; i++) y[i / D * C + g + i % D] = (row[i] - m) / sqrt(v + 1e-5);
    }
    trial t = { apply_option, &o, .in = { { 3, { 1, N, C } } } };
    t.x[0] = x;
    trial_result r = trial_run(&t);
    cr_expect_lt(values_error(r.y, y, r.ny, 0), 1e-3, "%s", r.why);
    trial_free(&r);
}

Test(norms, weights_on_threads)
{
    static const option o = { true, false, 1e-5, 0 };
    const trial t = { apply_option, &o, .in = { { 4, { 90, 70, 3, 3 } } } };
    cr_expect(trial_same_on_threads(&t));
}
