/* test_linear_attention.c - linear attention against plain loops: values and gradients, on every
 * instruction set; reference cases; equal bits on any number of threads; messages. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <tapegrad/file.h>

#include "support/device.h"
#include "support/fixtures.h"
#include "support/trial.h"
#include "support/values.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

typedef struct linear_case {
    const char *name;
    int64_t batch, queries, keys, dim, features; /* features: of the projection */
    tp_linear_attn_cfg cfg;
    bool masked;
} linear_case;

/* clang-format off */
static const linear_case cases[] = {
    { "elu", 2, 30, 30, 8, 0, { .heads = 2 }, false },
    { "elu, padding", 3, 30, 50, 8, 0, { .heads = 2 }, true },
    { "elu, a scale", 1, 10, 20, 5, 0, { .heads = 3, .scale = 0.5 }, true },
    { "elu, normalised", 2, 70, 130, 33, 0, { .heads = 2, .normalise = true }, true },
    { "positive", 2, 30, 30, 8, 20, { .heads = 2, .features = TP_FEATURES_POSITIVE }, false },
    { "positive, padding", 3, 40, 70, 8, 20, { .heads = 2, .features = TP_FEATURES_POSITIVE },
      true },
    { "positive, a scale and eps", 2, 20, 30, 4, 9,
      { .heads = 1, .features = TP_FEATURES_POSITIVE, .scale = 0.3, .eps = 0.01 }, true },
    { "positive, wide heads", 1, 20, 30, 70, 100, { .heads = 1, .features = TP_FEATURES_POSITIVE },
      true },
    { "positive, several parts", 1, 300, 1100, 6, 10,
      { .heads = 1, .features = TP_FEATURES_POSITIVE }, true },
    { "relu", 2, 30, 40, 8, 20, { .heads = 2, .features = TP_FEATURES_RELU }, true },
};
/* clang-format on */

static bool is_real(const linear_case *k, int64_t b, int64_t j)
{
    return !k->masked || (b != 1 && (j * 7 + b) % 5 != 0);
}

static tp_tensor apply(tp_tape *T, const tp_tensor *x, const void *env)
{
    const linear_case *k = env;
    tp_tensor mask = TP_NONE;
    if (k->masked) {
        uint8_t *seen = malloc((size_t)(k->batch * k->keys) + 1);
        for (int64_t e = 0; e < k->batch * k->keys; e++)
            seen[e] = is_real(k, e / k->keys, e % k->keys);
        mask = tp_from(T, TP_U8, TP_SHAPE(k->batch, k->keys), seen);
        free(seen);
    }
    return tp_linear_attention(T, x[0], x[1], x[2], x[3], mask, k->cfg);
}

/* ---- plain loops ---- */

typedef struct features {
    int64_t n;           /* rows       */
    int64_t D, M;        /* of a row   */
    double *x, *u, *phi; /* [n][D], [n][M], [n][M] */
    double *dphi;
} features;

static double scale_of(const linear_case *k)
{
    if (k->cfg.features == TP_FEATURES_ELU) return 1.0;
    return k->cfg.scale != 0.0 ? k->cfg.scale : pow((double)k->dim, -0.25);
}

static double eps_of(const linear_case *k)
{
    if (k->cfg.eps != 0.0) return k->cfg.eps;
    return k->cfg.features == TP_FEATURES_RELU ? 1e-3 : 1e-4;
}

/* The features of head h of row b; `all`: keys. */
static features features_of(const linear_case *k, const double *from, const double *w, int64_t n,
                            int64_t b, int64_t h, bool all)
{
    const int64_t D = k->dim, M = k->features ? k->features : D, width = D * k->cfg.heads;
    features f = { .n = n, .D = D, .M = M };
    f.x = calloc((size_t)(n * D) + 1, sizeof(double));
    f.u = calloc((size_t)(n * M) + 1, sizeof(double));
    f.phi = calloc((size_t)(n * M) + 1, sizeof(double));
    f.dphi = calloc((size_t)(n * M) + 1, sizeof(double));
    double most = -INFINITY;
    for (int64_t i = 0; i < n; i++)
        for (int64_t d = 0; d < D && (!all || is_real(k, b, i)); d++)
            f.x[i * D + d] = scale_of(k) * from[(b * n + i) * width + h * D + d];
    for (int64_t e = 0; e < n * M && k->features; e++) {
        for (int64_t d = 0; d < D; d++) f.u[e] += f.x[e / M * D + d] * w[e % M * D + d];
        most = fmax(most, f.u[e]);
    }
    for (int64_t i = 0; i < n; i++) {
        double square = 0.0, own = -INFINITY;
        for (int64_t d = 0; d < D; d++) square += f.x[i * D + d] * f.x[i * D + d] / 2.0;
        for (int64_t m = 0; m < M; m++) own = fmax(own, f.u[i * M + m]);
        for (int64_t m = 0; m < M; m++) {
            const double u = f.u[i * M + m], x = k->features ? 0.0 : f.x[i * D + m];
            double *phi = &f.phi[i * M + m];
            if (k->cfg.features == TP_FEATURES_POSITIVE)
                *phi = exp(u - square - (all ? most : own)) + eps_of(k);
            else if (k->cfg.features == TP_FEATURES_RELU)
                *phi = fmax(u, 0.0) + eps_of(k);
            else
                *phi = all && !is_real(k, b, i) ? 0.0 : x > 0.0 ? x + 1.0 : exp(x);
        }
    }
    return f;
}

/* Adds the gradient of the rows. */
static void back(const linear_case *k, const features *f, const double *w, int64_t b, int64_t h,
                 bool all, double *dx)
{
    const int64_t width = f->D * k->cfg.heads;
    for (int64_t i = 0; i < f->n; i++) {
        if (all && !is_real(k, b, i)) continue;
        double *to = dx + (b * f->n + i) * width + h * f->D;
        for (int64_t m = 0; m < f->M; m++) {
            const double phi = f->phi[i * f->M + m], dphi = f->dphi[i * f->M + m];
            const double u = f->u[i * f->M + m];
            if (k->cfg.features == TP_FEATURES_ELU)
                to[m] += dphi * (f->x[i * f->D + m] > 0.0 ? 1.0 : phi);
            for (int64_t d = 0; d < f->D && k->features; d++) {
                if (k->cfg.features == TP_FEATURES_POSITIVE)
                    to[d] += scale_of(k) * dphi * (phi - eps_of(k)) *
                             (w[m * f->D + d] - f->x[i * f->D + d]);
                else if (u > 0.0)
                    to[d] += scale_of(k) * dphi * w[m * f->D + d];
            }
        }
    }
}

static void free_features(features *f)
{
    free(f->x);
    free(f->u);
    free(f->phi);
    free(f->dphi);
}

/* Query i of a head: weights of all keys, their result and gradients. */
static void attend(const linear_case *k, const trial_result *r, int64_t b, int64_t h, int64_t i,
                   features *fq, features *fk, double *y, double *dv)
{
    const int64_t D = k->dim, M = fq->M, width = D * k->cfg.heads;
    const bool divided = k->features || k->cfg.normalise;
    const double factor = k->cfg.scale != 0.0 ? k->cfg.scale : 1.0 / sqrt((double)k->keys);
    double *s = calloc((size_t)k->keys + 1, sizeof *s), sum = 0.0, delta = 0.0;
    double *out = y + (b * k->queries + i) * width + h * D;
    const double *dy = r->dy + (b * k->queries + i) * width + h * D;
    for (int64_t j = 0; j < k->keys; j++) {
        for (int64_t m = 0; m < M; m++) s[j] += fq->phi[i * M + m] * fk->phi[j * M + m];
        sum += s[j];
    }
    const double by = !divided ? factor : sum > 0.0 ? 1.0 / sum : 0.0;
    for (int64_t j = 0; j < k->keys; j++)
        for (int64_t d = 0; d < D && is_real(k, b, j); d++) {
            out[d] += by * s[j] * r->x[2][(b * k->keys + j) * width + h * D + d];
            dv[(b * k->keys + j) * width + h * D + d] += by * s[j] * dy[d];
        }
    for (int64_t d = 0; d < D && divided; d++) delta += out[d] * dy[d];
    for (int64_t j = 0; j < k->keys; j++) {
        double ds = -delta;
        for (int64_t d = 0; d < D && is_real(k, b, j); d++)
            ds += dy[d] * r->x[2][(b * k->keys + j) * width + h * D + d];
        for (int64_t m = 0; m < M; m++) {
            fq->dphi[i * M + m] += by * ds * fk->phi[j * M + m];
            fk->dphi[j * M + m] += by * ds * fq->phi[i * M + m];
        }
    }
    free(s);
}

static void naive(const void *env, const trial_result *r, double *y, double **dx)
{
    const linear_case *k = env;
    for (int64_t b = 0; b < k->batch; b++)
        for (int64_t h = 0; h < k->cfg.heads; h++) {
            features fq = features_of(k, r->x[0], r->x[3], k->queries, b, h, false);
            features fk = features_of(k, r->x[1], r->x[3], k->keys, b, h, true);
            for (int64_t i = 0; i < k->queries; i++) attend(k, r, b, h, i, &fq, &fk, y, dx[2]);
            back(k, &fq, r->x[3], b, h, false, dx[0]);
            back(k, &fk, r->x[3], b, h, true, dx[1]);
            free_features(&fq);
            free_features(&fk);
        }
}

static trial trial_of(const linear_case *k, tp_dtype dt, tp_isa isa)
{
    const int64_t width = k->dim * k->cfg.heads;
    const tp_shape keys = TP_SHAPE(k->batch, k->keys, width);
    trial t = { .f = apply,
                .env = k,
                .in = { TP_SHAPE(k->batch, k->queries, width), keys, keys },
                .constant = 1u << 3,
                .dtype = dt,
                .compute = dt,
                .isa = isa };
    if (k->features) t.in[3] = TP_SHAPE(k->features, k->dim);
    return t;
}

Test(linear_attention, values_and_gradients)
{
    for (tp_isa isa = TP_ISA_BASE; isa <= TP_ISA_AVX512; isa++)
        for (size_t i = 0; i < COUNT(cases); i++) {
            const trial f32 = trial_of(&cases[i], TP_F32, isa);
            const trial f64 = trial_of(&cases[i], TP_F64, isa);
            if (trial_can(TP_F32, isa)) trial_compare(&f32, naive, cases[i].name, 5e-5);
            if (trial_can(TP_F64, isa)) trial_compare(&f64, naive, cases[i].name, 1e-11);
        }
}

Test(linear_attention, threads_do_not_change_bits)
{
    for (size_t i = 0; i < COUNT(cases); i++) {
        const trial t = trial_of(&cases[i], TP_F32, TP_ISA_AUTO);
        cr_expect(trial_same_on_threads(&t), "%s", cases[i].name);
    }
}

/* ---- reference cases ---- */

static double *numbers(tp_file *F, const char *name, tp_shape *s, int64_t *n)
{
    const tp_file_tensor *t = tp_file_find(F, name);
    cr_assert(t, "%s has no %s", tp_file_path(F), name);
    *s = t->shape;
    *n = trial_count(&t->shape);
    double *x = malloc((size_t)*n * sizeof *x + 1);
    cr_assert(tp_file_read(F, t, TP_F64, x), "%s", tp_file_why(F));
    return x;
}

static tp_tensor of_file(tp_tape *T, tp_file *F, const char *name, bool wanted)
{
    tp_shape s;
    int64_t n;
    double *x = numbers(F, name, &s, &n);
    const tp_tensor y = (wanted ? values_input : values_constant)(T, device_real(), s, x);
    free(x);
    return y;
}

static void expect_values(tp_tape *T, tp_file *F, const char *name, tp_tensor x, double tol)
{
    tp_shape s;
    int64_t n;
    double *want = numbers(F, name, &s, &n), *got = malloc((size_t)n * sizeof *got);
    cr_assert_eq(tp_numel(x), n, "%s: %s", name, tp_why(T));
    values_read(T, x, got);
    cr_expect_lt(values_error(got, want, n, 1.0), tol, "%s: %s: %g", tp_file_path(F), name,
                 values_error(got, want, n, 1.0));
    free(want);
    free(got);
}

static tp_tensor mask_of_file(tp_tape *T, tp_file *F)
{
    tp_shape s;
    int64_t n;
    double *x = numbers(F, "input.mask", &s, &n);
    uint8_t *mask = malloc((size_t)n);
    for (int64_t i = 0; i < n; i++) mask[i] = x[i] != 0.0;
    const tp_tensor m = tp_from(T, TP_U8, s, mask);
    free(x);
    free(mask);
    return m;
}

static void check_file(tp_tape *T, tp_file *F, tp_features kind)
{
    enum { X, FF = 7, PARAMS = 9 };
    static const char *const names[PARAMS] = { "x",          "W_q.weight", "W_q.bias",
                                               "W_k.weight", "W_k.bias",   "W_v.weight",
                                               "W_v.bias",   "ff.weight",  "ff.bias" };
    const char *const buffer = "buffer.attn.attn_fn.projection_matrix";
    tp_tensor p[PARAMS], x[3];
    char name[64];
    for (int i = 0; i < PARAMS; i++) {
        snprintf(name, sizeof name, "%s.%s", i == X ? "input" : "param", names[i]);
        p[i] = of_file(T, F, name, true);
    }
    for (int i = 0; i < 3; i++) x[i] = tp_linear(T, p[X], p[2 * i + 1], p[2 * i + 2], TP_ACT_NONE);
    const bool projected = kind != TP_FEATURES_ELU;
    tp_linear_attn_cfg cfg = { .heads = 2, .features = kind };
    /* The scale D^(-1/4) is applied twice. */
    if (projected) cfg.scale = 1.0 / sqrt((double)(tp_dim(x[0], 2) / cfg.heads));
    const tp_tensor a =
        tp_linear_attention(T, x[0], x[1], x[2], projected ? of_file(T, F, buffer, false) : TP_NONE,
                            mask_of_file(T, F), cfg);
    const tp_tensor y = tp_linear(T, a, p[FF], p[FF + 1], TP_ACT_NONE);
    expect_values(T, F, "output.y", y, device_limit(2e-7, 2e-5));
    tp_backward(T, tp_sum(T, tp_mul(T, y, of_file(T, F, "input.probe", false)), TP_ALL));
    for (int i = 0; i < PARAMS; i++) {
        snprintf(name, sizeof name, "grad.%s%s", i == X ? "input." : "", names[i]);
        expect_values(T, F, name, tp_grad(T, p[i]), device_limit(2e-7, 1e-4));
    }
    cr_expect(tp_ok(T), "%s", tp_why(T));
}

Test(linear_attention, reference_cases)
{
    static const struct {
        const char *name;
        tp_features kind;
    } files[] = { { "linear", TP_FEATURES_ELU },
                  { "performer_m20", TP_FEATURES_POSITIVE },
                  { "performer_relu_m20", TP_FEATURES_RELU } };
    for (size_t i = 0; i < COUNT(files); i++) {
        char name[64];
        snprintf(name, sizeof name, "lra/attn_%s.safetensors", files[i].name);
        tp_file *F = fixture_open(name);
        tp_device *D = device_open(0);
        tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = device_real() });
        check_file(T, F, files[i].kind);
        tp_tape_free(T);
        tp_device_close(D);
        tp_file_close(F);
    }
}

/* ---- messages ---- */

/* clang-format off */
Test(linear_attention, messages)
{
    static const struct {
        tp_linear_attn_cfg cfg;
        tp_shape in[4];
        const char *text;
    } wrong[] = {
        { { .heads = 0 }, { { 3, { 1, 8, 4 } }, { 3, { 1, 8, 4 } }, { 3, { 1, 8, 4 } } },
          "linear_attention: heads must be positive, not 0\n" },
        { { .heads = 3 }, { { 3, { 1, 8, 4 } }, { 3, { 1, 8, 4 } }, { 3, { 1, 8, 4 } } },
          "linear_attention: a width of 4 does not divide into 3 heads\n" },
        { { .heads = 1 }, { { 3, { 1, 8, 4 } }, { 3, { 1, 8, 4 } }, { 3, { 1, 7, 4 } } },
          "linear_attention: k and v must be of one shape\n" },
        { { .heads = 1 }, { { 3, { 1, 8, 4 } }, { 3, { 2, 8, 4 } }, { 3, { 1, 8, 4 } } },
          "linear_attention: q must be [B,N,H*D], k and v [B,S,H*D]\n" },
        { { .heads = 1, .features = (tp_features)3 },
          { { 3, { 1, 8, 4 } }, { 3, { 1, 8, 4 } }, { 3, { 1, 8, 4 } } },
          "linear_attention: unknown features 3\n" },
        { { .heads = 1, .eps = -1.0 },
          { { 3, { 1, 8, 4 } }, { 3, { 1, 8, 4 } }, { 3, { 1, 8, 4 } } },
          "linear_attention: eps must be at least 0 and less than 1, not -1\n" },
        { { .heads = 1 },
          { { 3, { 1, 8, 4 } }, { 3, { 1, 8, 4 } }, { 3, { 1, 8, 4 } }, { 2, { 5, 4 } } },
          "linear_attention: TP_FEATURES_ELU takes no projection\n" },
        { { .heads = 2, .features = TP_FEATURES_RELU },
          { { 3, { 1, 8, 4 } }, { 3, { 1, 8, 4 } }, { 3, { 1, 8, 4 } }, { 2, { 5, 4 } } },
          "linear_attention: projection must be [M,D] = [M,2]\n" },
    };
    for (size_t i = 0; i < COUNT(wrong); i++) {
        const linear_case k = { .cfg = wrong[i].cfg };
        trial t = { .f = apply, .env = &k };
        for (int x = 0; x < 4; x++) t.in[x] = wrong[i].in[x];
        cr_expect(trial_fails(&t, wrong[i].text), "case %zu", i);
    }
}
/* clang-format on */
