/* test_lra_cost.c - the encoders of the Long Range Arena as a model of the table: memory at every
 * setting, recomputation, batches of ids. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/lra.h>

#include "support/device.h"

enum { B = 1, N = 512, WORDS = 21 };

static tp_lra_cfg small(tp_lra_kind kind)
{
    const bool ls = kind == TP_LRA_LS;
    return (tp_lra_cfg){ .attn = { .kind = kind,
                                   .dim = 32,
                                   .heads = 2,
                                   .length = N,
                                   .rank = 8,
                                   .window = ls ? 8 : 0,
                                   .chunk = 16 },
                         .layers = 3,
                         .hidden = 48,
                         .vocab = WORDS,
                         .classes = 3,
                         .pooling = ls ? TP_LRA_CLS_LAST : TP_LRA_MEAN };
}

/* The ids of a batch of full documents, or of pairs. */
static tp_tensor ids_of(tp_tape *T, const tp_lra_cfg *c, int64_t n)
{
    return tp_full(T, TP_I32, c->pair ? TP_SHAPE(B, 2, n) : TP_SHAPE(B, n), 1.0);
}

/* Bytes that a recorded forward pass of one sample saves. */
static double measure(tp_device *D, const tp_lra_cfg *c, int64_t n)
{
    tp_params *P = tp_params_new(D, NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    tp_lra *m = malloc(sizeof *m);
    double bytes = 0.0;
    tp_model_lra.init(P, m, "", c);
    for (int i = 0; i < 2; i++) { /* the first run allocates the weights */
        tp_reset(T);
        const tp_tensor ids = ids_of(T, c, n);
        const size_t before = tp_device_stats(D).live_bytes;
        tp_model_lra.forward(T, m, NULL, ids);
        cr_assert(tp_ok(T), "%s", tp_why(T));
        bytes = (double)(tp_device_stats(D).live_bytes - before);
    }
    tp_tape_free(T);
    tp_params_free(P);
    free(m);
    return bytes;
}

static void expect_costs(const tp_lra_cfg *c, int64_t n, const char *what)
{
    static const tp_recompute ways[] = { TP_RECOMPUTE_NONE, TP_RECOMPUTE_ATTENTION,
                                         TP_RECOMPUTE_BLOCK };
    tp_device *D = device_open(&(tp_device_opts){ .threads = 1, .dry = true, .exact = true });
    for (int i = 0; i < 3; i++) {
        tp_lra_cfg one = *c;
        one.recompute = ways[i];
        const tp_model_cfg of = tp_model_cfg_of(&tp_model_lra, &one);
        const double got = measure(D, &one, n), want = tp_model_cost(&of, n, 0).saved;
        cr_expect(fabs(got / want - 1.0) < 0.02, "%s, recompute %d: %.0f bytes, said %.0f", what, i,
                  got, want);
    }
    tp_device_close(D);
}

#define COSTS(kind, n, ...)                                                                        \
    do {                                                                                           \
        tp_lra_cfg c = small(kind);                                                                \
        __VA_ARGS__;                                                                               \
        expect_costs(&c, n, #kind " " #n " " #__VA_ARGS__);                                        \
    } while (0)

Test(lra_cost, attentions)
{
    COSTS(TP_LRA_LS, N, c.pair = false);
    COSTS(TP_LRA_SOFTMAX, N, c.pair = false);
    COSTS(TP_LRA_LINFORMER, N, c.pair = false);
    COSTS(TP_LRA_PERFORMER, N, c.pair = false);
    COSTS(TP_LRA_NYSTROM, N, c.pair = false);
    COSTS(TP_LRA_REFORMER, N, c.pair = false);
    COSTS(TP_LRA_LINEAR, N, c.pair = false);
    COSTS(TP_LRA_NONE, N, c.pair = false);
    COSTS(TP_LRA_NYSTROM, 128, c.attn.rank = 128);
    COSTS(TP_LRA_REFORMER, 128, c.attn.chunk = 128);
    COSTS(TP_LRA_PERFORMER, 256, c.attn.relu = true);
    COSTS(TP_LRA_LINFORMER, N, c.attn.conv = 5);
    COSTS(TP_LRA_NYSTROM, 256, c.attn.conv = 5);
}

Test(lra_cost, long_short)
{
    COSTS(TP_LRA_LS, 256, c.attn.window = 1);
    COSTS(TP_LRA_LS, 320, c.attn.length = 640, c.attn.window = 5);
    COSTS(TP_LRA_LS, N, c.attn.window = 0);
    COSTS(TP_LRA_LS, N, c.attn.rank = 0);
    COSTS(TP_LRA_LS, N, c.attn.window = c.attn.rank = 0, c.pooling = TP_LRA_CLS_TOKEN);
    COSTS(TP_LRA_LS, N, c.attn.raw_kv = true);
    COSTS(TP_LRA_LS, N, c.attn.fixed = true);
    COSTS(TP_LRA_LS, N, c.attn.conv = 5);
    COSTS(TP_LRA_LS, N, c.attn.conv = 5, c.pooling = TP_LRA_MEAN);
    COSTS(TP_LRA_LS, N, c.attn.cls_values = true);
}

Test(lra_cost, poolings)
{
    COSTS(TP_LRA_LS, N, c.pooling = TP_LRA_MEAN);
    COSTS(TP_LRA_LS, N, c.pooling = TP_LRA_CLS_TOKEN);
    COSTS(TP_LRA_LS, N, c.pooling = TP_LRA_CLS_POOL);
    COSTS(TP_LRA_SOFTMAX, N, c.pooling = TP_LRA_CLS_POOL);
    COSTS(TP_LRA_NYSTROM, N, c.pooling = TP_LRA_CLS_POOL);
    COSTS(TP_LRA_LS, N, c.pair = true);
    COSTS(TP_LRA_LINEAR, 256, c.pair = true);
    COSTS(TP_LRA_LS, N, c.tied = true);
}
