/* test_refs.c - fused ops against their compositions of simple ops: results and the gradients of
 * all inputs and parameters, in f64 and f32, on every instruction set.
 *
 * To add an op, write its composition in ref_NAME.c, two functions here that unpack x, and entries
 * in the table. */
#include <criterion/criterion.h>

#include "ops/ref_norms.h"
#include "support/trial.h"
#include "support/values.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static tp_tensor layernorm(tp_tape *T, const tp_tensor *x, const void *eps)
{
    return tp_layernorm(T, x[0], x[1], x[2], *(const double *)eps);
}

static tp_tensor layernorm_ref(tp_tape *T, const tp_tensor *x, const void *eps)
{
    return ref_layernorm(T, x[0], x[1], x[2], *(const double *)eps);
}

/* Of k, v, w and b. */
static tp_tensor layernorm_kv(tp_tape *T, const tp_tensor *x, const void *eps)
{
    const tp_kv y = tp_layernorm_kv(T, x[0], x[1], x[2], x[3], *(const double *)eps);
    return tp_concat(T, 0, y.k, y.v);
}

static tp_tensor layernorm_kv_ref(tp_tape *T, const tp_tensor *x, const void *eps)
{
    const double e = *(const double *)eps;
    return tp_concat(T, 0, ref_layernorm(T, x[0], x[2], x[3], e),
                     ref_layernorm(T, x[1], x[2], x[3], e));
}

static tp_tensor rmsnorm(tp_tape *T, const tp_tensor *x, const void *eps)
{
    return tp_rmsnorm(T, x[0], x[1], *(const double *)eps);
}

static tp_tensor rmsnorm_ref(tp_tape *T, const tp_tensor *x, const void *eps)
{
    return ref_rmsnorm(T, x[0], x[1], *(const double *)eps);
}

static tp_tensor batchnorm(tp_tape *T, const tp_tensor *x, const void *eps)
{
    const tp_shape s = TP_SHAPE(tp_dim(x[0], 1));
    const tp_dtype dt = tp_dtype_of(x[0]);
    return tp_batchnorm(T, x[0], x[1], x[2], tp_full(T, dt, s, 0.0), tp_full(T, dt, s, 1.0),
                        TP_NONE, 0.1, *(const double *)eps);
}

static tp_tensor batchnorm_ref(tp_tape *T, const tp_tensor *x, const void *eps)
{
    return ref_batchnorm(T, x[0], x[1], x[2], *(const double *)eps);
}

static tp_tensor instancenorm(tp_tape *T, const tp_tensor *x, const void *eps)
{
    return tp_instancenorm(T, x[0], x[1], x[2], *(const double *)eps);
}

static tp_tensor instancenorm_ref(tp_tape *T, const tp_tensor *x, const void *eps)
{
    return ref_instancenorm(T, x[0], x[1], x[2], *(const double *)eps);
}

enum { GROUPS = 6 };

static tp_tensor groupnorm(tp_tape *T, const tp_tensor *x, const void *eps)
{
    return tp_groupnorm(T, x[0], GROUPS, x[1], x[2], *(const double *)eps);
}

static tp_tensor groupnorm_ref(tp_tape *T, const tp_tensor *x, const void *eps)
{
    return ref_groupnorm(T, x[0], GROUPS, x[1], x[2], *(const double *)eps);
}

/* A negative eps selects the biased variance with eps under the root. */
static tp_tensor standardize(tp_tape *T, const tp_tensor *x, const void *eps)
{
    const double e = *(const double *)eps;
    return tp_weight_standardize(T, x[0], e < 0.0 ? -e : e, e < 0.0);
}

static tp_tensor standardize_ref(tp_tape *T, const tp_tensor *x, const void *eps)
{
    const double e = *(const double *)eps;
    return ref_weight_standardize(T, x[0], e < 0.0 ? -e : e, e < 0.0);
}

static tp_tensor softmax(tp_tape *T, const tp_tensor *x, const void *none)
{
    (void)none;
    return tp_softmax(T, x[0]);
}

static tp_tensor softmax_ref(tp_tape *T, const tp_tensor *x, const void *none)
{
    (void)none;
    return ref_softmax(T, x[0]);
}

static tp_tensor log_softmax(tp_tape *T, const tp_tensor *x, const void *none)
{
    (void)none;
    return tp_log_softmax(T, x[0]);
}

static tp_tensor log_softmax_ref(tp_tape *T, const tp_tensor *x, const void *none)
{
    (void)none;
    return ref_log_softmax(T, x[0]);
}

static tp_tensor linear(tp_tape *T, const tp_tensor *x, const void *act)
{
    return tp_linear(T, x[0], x[1], x[2], *(const tp_act *)act);
}

static tp_tensor linear_ref(tp_tape *T, const tp_tensor *x, const void *act)
{
    return ref_linear(T, x[0], x[1], x[2], *(const tp_act *)act);
}

static tp_tensor conv2d_relu(tp_tape *T, const tp_tensor *x, const void *cfg)
{
    return tp_conv2d_relu(T, x[0], x[1], x[2], x[3], *(const tp_conv_cfg *)cfg);
}

static tp_tensor linear_dropout(tp_tape *T, const tp_tensor *x, const void *act)
{
    return tp_linear_dropout(T, x[0], x[1], x[2], *(const tp_act *)act, 0.4);
}

static tp_tensor linear_dropout_ref(tp_tape *T, const tp_tensor *x, const void *act)
{
    return tp_dropout(T, tp_linear(T, x[0], x[1], x[2], *(const tp_act *)act), 0.4);
}

/* The composition that the op replaces. */
static tp_tensor conv2d_relu_ref(tp_tape *T, const tp_tensor *x, const void *cfg)
{
    const tp_tensor y = tp_conv2d(T, x[0], x[1], x[2], *(const tp_conv_cfg *)cfg);
    return tp_relu(T, tp_given(x[3]) ? tp_add(T, y, x[3]) : y);
}

#define PAD(p)                                                                                     \
    &(const tp_conv_cfg)                                                                           \
    {                                                                                              \
        .pad = { p, p }                                                                            \
    }
#define EPS(e)                                                                                     \
    &(const double)                                                                                \
    {                                                                                              \
        e                                                                                          \
    }
#define ACT(a)                                                                                     \
    &(const tp_act)                                                                                \
    {                                                                                              \
        TP_ACT_##a                                                                                 \
    }
#define V TRIAL_VECTOR

/* clang-format off */
static const struct {
    const char *name;
    trial_fn fused, composed;
    const void *env;
    tp_shape in[TRIAL_INPUTS];
} cases[] = {
    { "layernorm", layernorm, layernorm_ref, EPS(1e-5), { { 2, { 40, 33 } }, V(33), V(33) } },
    { "layernorm, w", layernorm, layernorm_ref, EPS(1e-5), { { 3, { 2, 9, 16 } }, V(16) } },
    { "layernorm, b", layernorm, layernorm_ref, EPS(0.1), { { 2, { 5, 100 } }, { 0 }, V(100) } },
    { "layernorm, plain", layernorm, layernorm_ref, EPS(1e-5), { { 2, { 3, 8 } } } },
    { "layernorm_kv", layernorm_kv, layernorm_kv_ref, EPS(1e-5),
      { { 2, { 40, 33 } }, { 2, { 29, 33 } }, V(33), V(33) } },
    { "layernorm_kv, w", layernorm_kv, layernorm_kv_ref, EPS(0.1),
      { { 3, { 2, 9, 16 } }, { 3, { 5, 9, 16 } }, V(16) } },
    { "layernorm_kv, plain", layernorm_kv, layernorm_kv_ref, EPS(0.1),
      { { 2, { 3, 8 } }, { 2, { 70, 8 } } } },
    { "rmsnorm", rmsnorm, rmsnorm_ref, EPS(1e-5), { { 2, { 40, 33 } }, V(33) } },
    { "rmsnorm, plain", rmsnorm, rmsnorm_ref, EPS(0.1), { { 3, { 2, 9, 16 } } } },
    { "batchnorm", batchnorm, batchnorm_ref, EPS(1e-5), { { 2, { 90, 21 } }, V(21), V(21) } },
    { "batchnorm, plain", batchnorm, batchnorm_ref, EPS(0.1), { { 2, { 7, 3 } } } },
    { "instancenorm", instancenorm, instancenorm_ref, EPS(1e-5),
      { { 3, { 2, 150, 37 } }, V(37), V(37) } },
    { "instancenorm, plain", instancenorm, instancenorm_ref, EPS(0.1), { { 3, { 3, 7, 3 } } } },
    { "groupnorm", groupnorm, groupnorm_ref, EPS(1e-5), { { 3, { 2, 150, 42 } }, V(42), V(42) } },
    { "groupnorm, several parts", groupnorm, groupnorm_ref, EPS(1e-5),
      { { 3, { 1, 1100, 6 } }, V(6), V(6) } },
    { "groupnorm, plain", groupnorm, groupnorm_ref, EPS(0.1), { { 3, { 3, 7, 12 } } } },
    { "weight_standardize", standardize, standardize_ref, EPS(1e-5), { { 2, { 20, 9 } } } },
    { "weight_standardize, biased", standardize, standardize_ref, EPS(-1e-5),
      { { 2, { 5, 77 } } } },
    { "softmax", softmax, softmax_ref, NULL, { { 3, { 2, 9, 37 } } } },
    { "log_softmax", log_softmax, log_softmax_ref, NULL, { { 3, { 2, 9, 37 } } } },
    { "linear", linear, linear_ref, ACT(NONE), { { 2, { 20, 30 } }, { 2, { 17, 30 } }, V(17) } },
    { "linear, no bias", linear, linear_ref, ACT(NONE), { { 2, { 20, 30 } }, { 2, { 17, 30 } } } },
    { "linear, relu", linear, linear_ref, ACT(RELU),
      { { 2, { 20, 30 } }, { 2, { 17, 30 } }, V(17) } },
    { "linear, gelu", linear, linear_ref, ACT(GELU),
      { { 2, { 20, 30 } }, { 2, { 17, 30 } }, V(17) } },
    { "linear_dropout, none", linear_dropout, linear_dropout_ref, ACT(NONE),
      { { 2, { 20, 30 } }, { 2, { 17, 30 } }, V(17) } },
    { "linear_dropout, relu", linear_dropout, linear_dropout_ref, ACT(RELU),
      { { 2, { 20, 30 } }, { 2, { 17, 30 } }, V(17) } },
    { "linear_dropout, gelu", linear_dropout, linear_dropout_ref, ACT(GELU),
      { { 3, { 2, 70, 30 } }, { 2, { 300, 30 } }, V(300) } },
    { "linear_dropout, quick_gelu", linear_dropout, linear_dropout_ref, ACT(QUICK_GELU),
      { { 2, { 9, 30 } }, { 2, { 17, 30 } } } },
    { "linear_dropout, silu", linear_dropout, linear_dropout_ref, ACT(SILU),
      { { 2, { 1, 30 } }, { 2, { 64, 30 } }, V(64) } },
    { "conv2d_relu", conv2d_relu, conv2d_relu_ref, PAD(1),
      { { 4, { 2, 9, 40, 33 } }, { 4, { 70, 33, 3, 3 } }, V(70), { 4, { 2, 9, 40, 70 } } } },
    { "conv2d_relu, no residual", conv2d_relu, conv2d_relu_ref, PAD(1),
      { { 4, { 1, 5, 7, 64 } }, { 4, { 80, 64, 3, 3 } } } },
    { "conv2d_relu, 1x1", conv2d_relu, conv2d_relu_ref, PAD(0),
      { { 4, { 1, 30, 21, 40 } }, { 4, { 300, 40, 1, 1 } }, { 0 }, { 4, { 1, 30, 21, 300 } } } },
    { "linear, quick_gelu", linear, linear_ref, ACT(QUICK_GELU),
      { { 2, { 9, 30 } }, { 2, { 17, 30 } } } },
    { "linear, gelu_tanh", linear, linear_ref, ACT(GELU_TANH),
      { { 2, { 9, 30 } }, { 2, { 17, 30 } }, V(17) } },
    { "linear, tanh", linear, linear_ref, ACT(TANH), { { 2, { 7, 30 } }, { 2, { 18, 30 } } } },
    { "linear, sigmoid", linear, linear_ref, ACT(SIGMOID),
      { { 2, { 8, 30 } }, { 2, { 16, 30 } }, V(16) } },
};
/* clang-format on */

static void compare(size_t i, tp_dtype dt, tp_isa isa)
{
    trial t = { .f = cases[i].fused, .env = cases[i].env, .dtype = dt, .compute = dt, .isa = isa };
    for (int k = 0; k < TRIAL_INPUTS; k++) t.in[k] = cases[i].in[k];
    trial_result a = trial_run(&t);
    t.f = cases[i].composed;
    trial_result b = trial_run(&t);
    const double tol = dt == TP_F64 ? 1e-12 : 1e-5;
    cr_expect_str_empty(a.why, "%s: %s", cases[i].name, a.why);
    cr_expect_str_empty(b.why, "%s, composed: %s", cases[i].name, b.why);
    cr_expect_eq(a.ny, b.ny);
    cr_expect_lt(values_error(a.y, b.y, b.ny, 0), tol, "%s, %s, isa %d", cases[i].name,
                 tp_dtype_name(dt), (int)isa);
    for (int k = 0; k < TRIAL_INPUTS; k++) {
        int64_t n = a.dx[k] ? 1 : 0;
        for (int j = 0; j < t.in[k].ndim; j++) n *= t.in[k].dim[j];
        cr_expect_lt(values_error(a.dx[k], b.dx[k], n, 0), tol, "%s, %s, isa %d: gradient %d",
                     cases[i].name, tp_dtype_name(dt), (int)isa, k);
    }
    trial_free(&a);
    trial_free(&b);
}

Test(refs, fused_equals_composed)
{
    for (tp_isa isa = TP_ISA_BASE; isa <= TP_ISA_AVX512; isa++)
        for (size_t i = 0; i < COUNT(cases); i++) {
            if (trial_can(TP_F64, isa)) compare(i, TP_F64, isa);
            if (trial_can(TP_F32, isa)) compare(i, TP_F32, isa);
        }
}
