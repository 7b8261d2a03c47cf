/* test_categorical.c - draws from logits have their probabilities; log-probabilities and entropies
 * are those of the definition, also with excluded classes; a policy gradient finds the best arm. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "support/device.h"

enum { DRAWS = 20000, V = 4 };

static const float logits[V] = { 0.5f, -1.0f, -INFINITY, 1.5f };

Test(categorical, draws_have_the_probabilities)
{
    static int64_t drawn[DRAWS], again[DRAWS];
    const int n = device_is_emulated() ? DRAWS / 10 : DRAWS; /* the bounds depend on it */
    tp_device *D = device_open(&(tp_device_opts){ .threads = 2 });
    double z = 0.0, count[V] = { 0 };
    for (int dt = 0; dt < 2; dt++) { /* bf16 logits are drawn from in f32 */
        for (int pass = 0; pass < 2; pass++) {
            tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .seed = 7 });
            const tp_tensor row = tp_from(T, TP_F32, TP_SHAPE(1, V), logits);
            const tp_tensor x = tp_expand(T, row, TP_SHAPE(n, V));
            const tp_tensor y = tp_categorical(T, dt ? tp_cast(T, x, TP_BF16) : x);
            cr_assert(tp_read(T, y, pass ? again : drawn, (size_t)n * sizeof *drawn), "%s",
                      tp_why(T));
            tp_tape_free(T);
        }
        cr_expect_arr_eq(drawn, again, (size_t)n * sizeof *drawn, "a seed gives the same draws");
        z = 0.0;
        for (int j = 0; j < V; j++) count[j] = 0;
        for (int j = 0; j < V; j++) z += exp((double)logits[j]);
        for (int i = 0; i < n; i++) count[drawn[i]]++;
        for (int j = 0; j < V; j++) {
            const double p = exp((double)logits[j]) / z;
            cr_expect(fabs(count[j] / n - p) <= 5 * sqrt(p * (1 - p) / n), "%d: %g of %g", j,
                      count[j] / n, p);
        }
    }
    tp_device_close(D);
}

Test(categorical, log_probabilities_and_entropies)
{
    const int64_t index[3] = { 0, -1, 3 };
    float lp[3], h[3], g[3][V];
    double z = 0.0, entropy = 0.0;
    tp_device *D = device_open(&(tp_device_opts){ .threads = 1 });
    tp_tape *T = tp_tape_new(D, NULL);
    float rows[3][V];
    for (int r = 0; r < 3; r++) memcpy(rows[r], logits, sizeof logits);
    const tp_tensor x = tp_input(T, TP_F32, TP_SHAPE(3, V), rows);
    const tp_tensor i = tp_from(T, TP_I64, TP_SHAPE(3), index);
    const tp_tensor e = tp_categorical_entropy(T, x);
    cr_assert(tp_read(T, tp_categorical_log_prob(T, x, i), lp, sizeof lp), "%s", tp_why(T));
    cr_assert(tp_read(T, e, h, sizeof h), "%s", tp_why(T));
    for (int j = 0; j < V; j++) z += exp((double)logits[j]);
    for (int j = 0; j < V; j++) {
        const double p = exp((double)logits[j]) / z;
        if (p > 0) entropy -= p * log(p);
    }
    cr_expect_float_eq((double)lp[0], (double)logits[0] - log(z), 1e-5);
    cr_expect_eq(lp[1], 0.0f);
    cr_expect_float_eq((double)lp[2], (double)logits[3] - log(z), 1e-5);
    for (int r = 0; r < 3; r++) cr_expect_float_eq((double)h[r], entropy, 1e-5);
    tp_backward(T, tp_sum(T, e, TP_ALL));
    cr_assert(tp_read(T, tp_grad(T, x), g, sizeof g), "%s", tp_why(T));
    for (int j = 0; j < V; j++) { /* -p (log p + H), 0 where p is */
        const double p = exp((double)logits[j]) / z;
        cr_expect_float_eq((double)g[1][j], p > 0 ? -p * (log(p) + entropy) : 0.0, 1e-5, "%d: %g",
                           j, (double)g[1][j]);
    }
    tp_tape_free(T);
    tp_device_close(D);
}

/* REINFORCE as the header writes it, on a bandit whose arm 2 pays. */
Test(categorical, a_policy_gradient)
{
    enum { N = 64 };
    int64_t action[N];
    float advantage[N];
    tp_device *D = device_open(&(tp_device_opts){ .threads = 1 });
    tp_params *P = tp_params_new(D, NULL);
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .seed = 1 });
    const tp_tensor w = tp_param(P, "w", TP_SHAPE(1, V), (tp_init){ TP_INIT_ZERO, 0, 0 }, 0);
    tp_optim *O = tp_sgd_new(P, NULL);
    for (int step = 0; step < 30; step++) {
        const tp_tensor x = tp_expand(T, w, TP_SHAPE(N, V)), a = tp_categorical(T, x);
        cr_assert(tp_read(T, a, action, sizeof action), "%s", tp_why(T));
        for (int i = 0; i < N; i++) advantage[i] = action[i] == 2 ? 0.75f : -0.25f;
        const tp_tensor gain =
            tp_mul(T, tp_categorical_log_prob(T, x, a), tp_from(T, TP_F32, TP_SHAPE(N), advantage));
        tp_backward(T, tp_neg(T, tp_mean(T, gain, TP_ALL)));
        cr_assert(tp_step(O, 1.0), "%s", tp_optim_why(O));
        tp_reset(T);
    }
    int64_t best = 0;
    cr_assert(tp_read(T, tp_argmax(T, w, -1), &best, sizeof best), "%s", tp_why(T));
    cr_expect_eq(best, 2);
    tp_categorical_entropy(T, tp_argmax(T, w, -1));
    cr_expect(strstr(tp_why(T), "categorical_entropy: logits are floats, not i64"), "%s",
              tp_why(T));
    tp_optim_free(O);
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
}
