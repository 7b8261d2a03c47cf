/* test_conv2d_relu.c - tp_conv2d_relu in bf16 against the ops that it replaces, x as its own
 * residual, equal bits on any number of threads, the depthwise case, messages. test_refs covers f32
 * and f64. */
#include <criterion/criterion.h>

#include "support/device.h"
#include "support/trial.h"
#include "support/values.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

typedef struct layer {
    const char *name;
    tp_shape in[4]; /* x, w, b, residual */
    tp_conv_cfg cfg;
    bool own;         /* x is the residual, too                 */
    tp_dtype becomes; /* the residual is cast; TP_F32: it is not */
} layer;

#define X TRIAL_MAP
#define V TRIAL_VECTOR

static const layer layers[] = {
    { "3x3", { X(2, 9, 11, 64), X(64, 64, 3, 3), V(64) }, .cfg = { .pad = { 1, 1 } } },
    { "3x3, gathered, groups",
      { X(2, 17, 15, 50), X(66, 25, 3, 3), V(66) },
      .cfg = { .stride = { 2, 2 }, .pad = { 1, 1 }, .groups = 2 } },
    { "1x1", { X(2, 9, 11, 65), X(300, 65, 1, 1), V(300) }, .cfg = { .groups = 1 } },
    { "depthwise", { X(1, 9, 11, 20), X(20, 1, 3, 3), V(20) }, .cfg = { .groups = 20 } },
    { "3x3, residual",
      { X(2, 9, 11, 64), X(64, 64, 3, 3), V(64), X(2, 9, 11, 64) },
      .cfg = { .pad = { 1, 1 } } },
    { "1x1, residual",
      { X(2, 9, 11, 65), X(300, 65, 1, 1), { 0 }, X(2, 9, 11, 300) },
      .cfg = { .groups = 1 } },
    { "depthwise, residual",
      { X(1, 9, 11, 20), X(20, 1, 3, 3), V(20), X(1, 7, 9, 20) },
      .cfg = { .groups = 20 } },
    { "3x3, own residual",
      { X(2, 9, 11, 64), X(64, 64, 3, 3), V(64) },
      .cfg = { .pad = { 1, 1 } },
      .own = true },
    { "1x1, own residual",
      { X(2, 9, 11, 65), X(65, 65, 1, 1), V(65) },
      .cfg = { .groups = 1 },
      .own = true },
    { "depthwise, own residual",
      { X(1, 9, 11, 20), X(20, 1, 3, 3), V(20) },
      .cfg = { .pad = { 1, 1 }, .groups = 20 },
      .own = true },
};

static tp_tensor residual_of(tp_tape *T, const tp_tensor *x, const layer *l)
{
    const tp_tensor r = l->own ? x[0] : x[3];
    return l->becomes == TP_F32 ? r : tp_cast(T, r, l->becomes);
}

static tp_tensor fused(tp_tape *T, const tp_tensor *x, const void *env)
{
    const layer *l = env;
    return tp_conv2d_relu(T, x[0], x[1], x[2], residual_of(T, x, l), l->cfg);
}

static tp_tensor composed(tp_tape *T, const tp_tensor *x, const void *env)
{
    const layer *l = env;
    const tp_tensor y = tp_conv2d(T, x[0], x[1], x[2], l->cfg), r = residual_of(T, x, l);
    if (!tp_given(r)) return tp_relu(T, y);
    return tp_relu(T, tp_add(T, y, tp_cast(T, r, tp_dtype_of(y))));
}

enum { MOST = 60000 };

/* Sets residuals to 64 or -64, which outweigh the convolution: rounding changes no sign, so no
 * gradient. If x is the residual, w is small. */
static void outweigh(trial *t, const layer *l)
{
    static double residual[MOST], w[MOST];
    const int at = l->own ? 0 : 3;
    const int64_t n = trial_count(&l->in[at]), nw = trial_count(&l->in[1]);
    cr_assert(n <= MOST && nw <= MOST);
    values_random(residual, n, 7);
    for (int64_t i = 0; i < n; i++) residual[i] = residual[i] < 0.0 ? -64.0 : 64.0;
    t->x[at] = residual;
    if (!l->own) return;
    values_random(w, nw, 8);
    for (int64_t i = 0; i < nw; i++) w[i] /= 256.0;
    t->x[1] = w;
}

static trial trial_of(const layer *l, trial_fn f, tp_isa isa)
{
    trial t = { .f = f, .env = l, .compute = TP_BF16, .isa = isa };
    for (int k = 0; k < 4; k++) t.in[k] = l->in[k];
    if (l->own || l->in[3].ndim > 0) outweigh(&t, l);
    return t;
}

/* Without a residual both round the same sums once. The op adds a residual before its only
 * rounding; the composition rounds twice. Gradients depend only on signs. */
static void compare(const layer *l, tp_dtype compute, tp_isa isa)
{
    trial one = trial_of(l, fused, isa), two = trial_of(l, composed, isa);
    one.compute = two.compute = compute;
    trial_result a = trial_run(&one), b = trial_run(&two);
    cr_expect_str_empty(a.why, "%s: %s", l->name, a.why);
    cr_expect_str_empty(b.why, "%s: %s", l->name, b.why);
    const double limit = !l->own && l->in[3].ndim == 0 ? 0.0 : compute == TP_F32 ? 1e-6 : 1e-2;
    cr_expect(values_error(a.y, b.y, b.ny, 0) <= limit, "%s, isa %d", l->name, (int)isa);
    for (int k = 0; k < 4; k++)
        if (a.dx[k])
            cr_expect(values_error(a.dx[k], b.dx[k], trial_count(&l->in[k]), 0) <= 1e-6,
                      "%s, isa %d: gradient %d", l->name, (int)isa, k);
    trial_free(&a);
    trial_free(&b);
}

Test(conv2d_relu, bf16)
{
    for (tp_isa isa = TP_ISA_BASE; isa <= TP_ISA_AMX; isa++)
        for (size_t i = 0; trial_can(TP_F32, isa) && i < COUNT(layers); i++)
            compare(&layers[i], TP_BF16, isa);
}

/* Without casts, one buffer sums both gradients of x. */
Test(conv2d_relu, own_residual)
{
    for (size_t i = 0; i < COUNT(layers); i++)
        if (layers[i].own) compare(&layers[i], TP_F32, TP_ISA_AUTO);
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
        { { "", { X(1, 5, 5, 3), X(4, 3, 3, 3), V(4), X(1, 5, 5, 4) }, .cfg = { .groups = 1 } },
          "conv2d_relu: the residual must be [1,3,3,4]\n" },
        { { "", { X(1, 5, 5, 3), X(4, 3, 3, 3), V(4), V(4) }, .cfg = { .groups = 1 } },
          "conv2d_relu: the residual must be [1,3,3,4]\n" },
        { { "", { X(1, 5, 5, 3), X(4, 2, 3, 3), V(4) }, .cfg = { .groups = 1 } },
          "conv2d_relu: w must be [Co,3,KH,KW]" },
        { { "", { X(1, 5, 5, 4), X(4, 1, 3, 3), V(4), V(4) }, .cfg = { .groups = 4 } },
          "conv2d_relu: the residual must be [1,3,3,4]\n" },
        { { "", { X(1, 5, 5, 4), X(4, 1, 3, 3), V(4), X(2, 3, 3, 4) }, .cfg = { .groups = 4 } },
          "conv2d_relu: the residual must be [1,3,3,4]\n" },
        { { "", { X(1, 5, 5, 4), X(4, 1, 3, 3), V(4), X(1, 3, 3, 1) }, .cfg = { .groups = 4 } },
          "conv2d_relu: the residual must be [1,3,3,4]\n" },
        { { "", { X(1, 5, 5, 4), X(4, 1, 3, 3), V(3), X(1, 3, 3, 4) }, .cfg = { .groups = 4 } },
          "depthwise_conv2d: b must be [4]\n" },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        trial t = trial_of(&cases[i].l, fused, TP_ISA_AUTO);
        t.compute = TP_F32;
        cr_expect(trial_fails(&t, cases[i].text), "case %zu", i);
    }
}

/* Dense and depthwise convolutions refuse residuals of other dtypes. */
Test(conv2d_relu, dtypes)
{
    static const struct {
        tp_dtype becomes;
        const char *text;
    } cases[] = {
        { TP_I64, "conv2d_relu: residual must be floating point, not i64; " },
        { TP_F64, "conv2d_relu: inputs mix f32 and f64; " },
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        for (int64_t groups = 1; groups <= 4; groups += 3) {
            const layer l = { "",
                              { X(1, 3, 3, 4), X(4, 4 / groups, 1, 1), V(4), X(1, 3, 3, 4) },
                              { .groups = groups },
                              .becomes = cases[i].becomes };
            trial t = trial_of(&l, fused, TP_ISA_AUTO);
            t.compute = TP_F32;
            if (cases[i].becomes == TP_F64 && device_is_cuda()) continue; /* has no f64 */
            cr_expect(trial_fails(&t, cases[i].text), "case %zu, %lld groups", i,
                      (long long)groups);
        }
}
