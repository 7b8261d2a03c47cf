/* test_conv2d_relu.c - tp_conv2d_relu in bf16 beside the ops that it replaces, equal bits on any number of threads, the
 * depthwise case, messages. test_refs compares it in f32 and f64. */
#include <criterion/criterion.h>

#include "support_trial.h"
#include "support_values.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

typedef struct layer {
    const char *name;
    tp_shape in[4]; /* x, w, b, residual */
    tp_conv_cfg cfg;
} layer;

#define X(...)                                                                                     \
    {                                                                                              \
        4,                                                                                         \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define V(n)                                                                                       \
    {                                                                                              \
        1,                                                                                         \
        {                                                                                          \
            n                                                                                      \
        }                                                                                          \
    }

/* clang-format off */
static const layer layers[] = {
    { "3x3", { X(2, 9, 11, 64), X(64, 64, 3, 3), V(64) }, { .pad = { 1, 1 } } },
    { "3x3, gathered, groups", { X(2, 17, 15, 50), X(66, 25, 3, 3), V(66) }, { .stride = { 2, 2 }, .pad = { 1, 1 }, .groups = 2 } },
    { "1x1", { X(2, 9, 11, 65), X(300, 65, 1, 1), V(300) }, { .groups = 1 } },
    { "depthwise", { X(1, 9, 11, 20), X(20, 1, 3, 3), V(20) }, { .groups = 20 } },
    { "3x3, residual", { X(2, 9, 11, 64), X(64, 64, 3, 3), V(64), X(2, 9, 11, 64) }, { .pad = { 1, 1 } } },
    { "1x1, residual", { X(2, 9, 11, 65), X(300, 65, 1, 1), { 0 }, X(2, 9, 11, 300) }, { .groups = 1 } },
    { "depthwise, residual", { X(1, 9, 11, 20), X(20, 1, 3, 3), V(20), X(1, 7, 9, 20) }, { .groups = 20 } },
};
/* clang-format on */

static tp_tensor fused(tp_tape *T, const tp_tensor *x, const void *env)
{
    return tp_conv2d_relu(T, x[0], x[1], x[2], x[3], ((const layer *)env)->cfg);
}

static tp_tensor composed(tp_tape *T, const tp_tensor *x, const void *env)
{
    const tp_tensor y = tp_conv2d(T, x[0], x[1], x[2], ((const layer *)env)->cfg);
    if (!tp_given(x[3])) return tp_relu(T, y);
    return tp_relu(T, tp_add(T, y, tp_cast(T, x[3], tp_dtype_of(y))));
}

static trial trial_of(const layer *l, trial_fn f, tp_isa isa)
{
    trial t = { .f = f, .env = l, .compute = TP_BF16, .isa = isa };
    for (int k = 0; k < 4; k++) t.in[k] = l->in[k];
    return t;
}

/* Without a residual both round the same sums once. A residual is added before the only rounding, where the
 * composition rounds twice, so that some signs differ, and with them gradients. */
static void compare(const layer *l, tp_isa isa)
{
    const trial one = trial_of(l, fused, isa), two = trial_of(l, composed, isa);
    trial_result a = trial_run(&one), b = trial_run(&two);
    cr_expect_str_empty(a.why, "%s: %s", l->name, a.why);
    cr_expect_str_empty(b.why, "%s: %s", l->name, b.why);
    const bool exact = l->in[3].ndim == 0;
    cr_expect(values_error(a.y, b.y, b.ny, 0) <= (exact ? 0.0 : 1e-2), "%s, isa %d", l->name,
              (int)isa);
    for (int k = 0; exact && k < 3; k++)
        if (a.dx[k])
            cr_expect(values_error(a.dx[k], b.dx[k], trial_count(&l->in[k]), 0) <= 1e-6,
                      "%s, isa %d: gradient %d", l->name, (int)isa, k);
    trial_free(&a);
    trial_free(&b);
}

Test(conv2d_relu, bf16)
{
    for (tp_isa isa = TP_ISA_BASE; isa <= TP_ISA_AVX512; isa++)
        for (size_t i = 0; trial_can(TP_F32, isa) && i < COUNT(layers); i++)
            compare(&layers[i], isa);
}

Test(conv2d_relu, threads_do_not_change_bits)
{
    for (size_t i = 0; i < COUNT(layers); i++) {
        trial t = trial_of(&layers[i], fused, TP_ISA_AUTO);
        cr_expect(trial_same_on_threads(&t), "%s in bf16", layers[i].name);
        t.compute = TP_F32;
        cr_expect(trial_same_on_threads(&t), "%s", layers[i].name);
    }
}

Test(conv2d_relu, messages)
{
    static const struct {
        layer l;
        const char *text;
    } cases[] = {
        { { "", { X(1, 5, 5, 3), X(4, 3, 3, 3), V(4), X(1, 5, 5, 4) }, { .groups = 1 } },
          "conv2d_relu: the residual must be [1,3,3,4]\n" },
        { { "", { X(1, 5, 5, 3), X(4, 3, 3, 3), V(4), V(4) }, { .groups = 1 } },
          "conv2d_relu: the residual must be [1,3,3,4]\n" },
        { { "", { X(1, 5, 5, 3), X(4, 2, 3, 3), V(4) }, { .groups = 1 } },
          "conv2d_relu: w must be [Co,3,KH,KW]" },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        trial t = trial_of(&cases[i].l, fused, TP_ISA_AUTO);
        t.compute = TP_F32;
        cr_expect(trial_fails(&t, cases[i].text), "case %zu", i);
    }
}
