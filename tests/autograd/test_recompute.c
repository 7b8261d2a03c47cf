/* test_recompute.c - recomputation changes only the memory of a training step. Losses, gradients
 * and carried memories keep their bits, even with dropout. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/lm.h>

#include "support/device.h"

enum { B = 2, M = 32, SEGMENTS = 3 };

static const tp_recompute modes[] = { TP_RECOMPUTE_NONE, TP_RECOMPUTE_ATTENTION,
                                      TP_RECOMPUTE_BLOCK };
static const char *const mode_names[] = { "none", "attention", "block" };

/* The gradients, losses and peak memory of a short training run. */
typedef struct run {
    float loss[SEGMENTS], *grad;
    size_t n, peak;
} run;

typedef struct model {
    bool xl;
    tp_ls_lm ls;
    tp_ls_lm_state ls_state;
    tp_txl txl;
    tp_txl_state txl_state;
} model;

static tp_tensor forward(tp_tape *T, model *m, tp_tensor x)
{
    return m->xl ? tp_model_txl.forward(T, &m->txl, &m->txl_state, x)
                 : tp_ls_lm_forward(T, &m->ls, &m->ls_state, x);
}

static void copy_grads(tp_params *P, run *r)
{
    r->n = 0;
    r->grad = malloc((size_t)tp_params_count(P) * sizeof *r->grad);
    cr_assert(r->grad);
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) {
        if (it.buffer || it.alias_of) continue;
        const size_t n = (size_t)tp_numel(it.tensor);
        cr_assert(tp_param_get_grad(P, it.tensor, TP_F32, r->grad + r->n, n * sizeof *r->grad),
                  "%s", tp_params_why(P));
        r->n += n;
    }
}

static run train(bool xl, tp_recompute mode)
{
    static int32_t ids[B * (M * SEGMENTS + 1)];
    static model m;
    run r = { 0 };
    tp_device *D = device_open(&(tp_device_opts){ .threads = 2 });
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 3 });
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .seed = 5, .train = true });

    memset(&m, 0, sizeof m);
    m.xl = xl;
    if (xl) {
        tp_model_txl.init(P, &m.txl, "",
                          &(tp_txl_cfg){ .vocab = 19,
                                         .dim = 24,
                                         .hidden = 40,
                                         .d_head = 8,
                                         .layers = 3,
                                         .heads = 3,
                                         .mem_len = 40,
                                         .dropout = 0.2,
                                         .att_dropout = 0.1,
                                         .recompute = mode });
    } else {
        tp_ls_lm_cfg c = tp_ls_lm_tiny(19);
        c.dim = 24;
        c.hidden = 40;
        c.mem_len = 48;
        c.ls = (tp_ls_cfg){ .attn = { .heads = 3, .chunk = 8, .rank = 2, .window = 16 } };
        c.dropout = c.emb_dropout = 0.2;
        c.recompute = mode;
        tp_ls_lm_init(P, &m.ls, "", c);
    }
    for (int i = 0; i < B * (M * SEGMENTS + 1); i++) ids[i] = i * i % 19;
    for (int k = 0; k < SEGMENTS; k++) {
        tp_reset(T);
        const tp_tensor x = tp_from(T, TP_I32, TP_SHAPE(B, M), ids + k * B * M);
        const tp_tensor y = tp_from(T, TP_I32, TP_SHAPE(B, M), ids + k * B * M + 1);
        const tp_tensor loss = tp_cross_entropy(T, forward(T, &m, x), y, TP_MEAN);
        tp_backward(T, loss);
        r.loss[k] = (float)tp_item(T, loss);
    }
    cr_assert(tp_ok(T), "%s", tp_why(T));
    copy_grads(P, &r);
    r.peak = tp_device_stats(D).peak_bytes;
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
    return r;
}

static size_t differences(const float *a, const float *b, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += a[i] != b[i];
    return count;
}

static void compare(bool xl)
{
    const char *name = xl ? "Transformer-XL" : "Transformer-LS";
    const run plain = train(xl, TP_RECOMPUTE_NONE);
    size_t peak = plain.peak;
    for (size_t i = 1; i < sizeof modes / sizeof *modes; i++) {
        const run r = train(xl, modes[i]);
        cr_expect_eq(differences(r.loss, plain.loss, SEGMENTS), 0, "%s, %s: losses", name,
                     mode_names[i]);
        cr_expect(r.n == plain.n && differences(r.grad, plain.grad, r.n) == 0,
                  "%s, %s: gradients differ", name, mode_names[i]);
        cr_expect(r.peak < peak, "%s, %s: peak %zu, with less recomputed %zu", name, mode_names[i],
                  r.peak, peak);
        peak = r.peak;
        free(r.grad);
    }
    free(plain.grad);
}

Test(recompute, transformer_ls)
{
    compare(false);
}

Test(recompute, transformer_xl)
{
    compare(true);
}
