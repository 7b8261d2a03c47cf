/* test_models_cost.c - the FLOPs and activation memory of the language models. */
#include <criterion/criterion.h>
#include <math.h>
#include <tapegrad/lm.h>

#include "support/device.h"

/* Forward MFLOP per token, 2 per multiply-add, from the table in section 9 of the specification. */
Test(models, flops)
{
    const struct {
        int64_t tokens, cache;
        double small, large, full;
    } rows[] = {
        { 2048, 2048, 108.2, 270.1, 214.1 },  { 4096, 4096, 112.9, 281.9, 327.4 },
        { 8192, 8192, 125.9, 314.3, 553.9 },  { 256, 32768, 373.8, 934.0, 3711.0 },
        { 512, 32768, 272.6, 681.0, 2507.0 },
    };
    char why[256];
    tp_model_cfg small, large, full;
    cr_assert(tp_model_preset(&small, "ls_lm-small", why, sizeof why) &&
                  tp_model_preset(&large, "ls_lm-large", why, sizeof why) &&
                  tp_model_preset(&full, "txl-base", why, sizeof why) &&
                  tp_model_change(&full, "vocab_size=208", NULL, why, sizeof why),
              "%s", why);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int64_t M = rows[i].tokens, L = rows[i].cache;
        const double per = 2.0 / (double)M / 1e6;
        cr_expect_float_eq(tp_model_cost(&small, M, L).macs * per, rows[i].small, 0.06);
        cr_expect_float_eq(tp_model_cost(&large, M, L).macs * per, rows[i].large, 0.5);
        cr_expect_float_eq(tp_model_cost(&full, M, L).macs * per, rows[i].full, 0.5);
    }
}

/* Costs take no memory of the host: this table of positions has 512 GiB. */
Test(models, flops_beyond_the_memory_of_the_host)
{
    char why[256];
    tp_model_cfg cfg;
    cr_assert(tp_model_preset(&cfg, "txl-base", why, sizeof why) &&
                  tp_model_change(&cfg, "d_model=65536", NULL, why, sizeof why),
              "%s", why);
    cr_expect_gt(tp_model_cost(&cfg, 1 << 10, 1 << 20).macs, 0.0);
}

/* True only where nothing is computed. */
Test(models, dry_tapes)
{
    tp_device *dry = device_open(&(tp_device_opts){ .threads = 1, .dry = true });
    tp_device *real = device_open(&(tp_device_opts){ .threads = 1 });
    tp_tape *T = tp_tape_new(dry, NULL), *U = tp_tape_new(real, NULL);
    cr_expect(tp_dry(T));
    cr_expect_not(tp_dry(U));
    cr_expect_not(tp_dry(NULL));
    tp_tape_free(T);
    tp_tape_free(U);
    tp_device_close(dry);
    tp_device_close(real);
}

/* The bytes that a recorded forward pass adds to a reset tape. */
static double measure(tp_device *D, const tp_ls_lm_cfg *ls, const tp_txl_cfg *xl, int M)
{
    static tp_ls_lm lm;
    static tp_txl txl;
    int32_t x[256] = { 0 };
    tp_params *P = tp_params_new(D, NULL);
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .train = true });
    tp_ls_lm_state s = { 0 };
    tp_txl_state t = { 0 };
    size_t before = 0;

    if (ls)
        tp_ls_lm_init(P, &lm, "", *ls);
    else
        tp_model_txl.init(P, &txl, "", xl);
    for (int k = 0; k < 3; k++) {
        tp_reset(T);
        before = tp_device_stats(D).live_bytes;
        const tp_tensor in = tp_from(T, TP_I32, TP_SHAPE(1, M), x);
        if (ls)
            tp_ls_lm_forward(T, &lm, &s, in);
        else
            tp_model_txl.forward(T, &txl, &t, in);
    }
    cr_assert(tp_ok(T), "%s", tp_why(T));
    const double bytes = (double)(tp_device_stats(D).live_bytes - before);
    tp_tape_free(T);
    tp_params_free(P);
    return bytes;
}

Test(models, activation_memory)
{
    enum { M = 128 };
    const struct {
        bool pre_ln, project_first, gelu;
        tp_recompute recompute;
        tp_ls_cfg ls; /* rank and window, if not 0; options */
    } rows[] = {
        { true, false, true, TP_RECOMPUTE_NONE, { .attn = { 0 } } },
        { true, true, true, TP_RECOMPUTE_NONE, { .attn = { 0 } } },
        { false, false, false, TP_RECOMPUTE_NONE, { .attn = { 0 } } },
        { true, false, true, TP_RECOMPUTE_ATTENTION, { .attn = { 0 } } },
        { true, false, true, TP_RECOMPUTE_BLOCK, { .attn = { 0 } } },
        { true, false, true, TP_RECOMPUTE_NONE, { .attn = { .rank = 0, .window = 64 } } },
        { true, true, true, TP_RECOMPUTE_NONE, { .attn = { .rank = 0, .window = 64 } } },
        { true, false, true, TP_RECOMPUTE_NONE, { .attn = { .rank = 2, .window = 0 } } },
        { true, false, true, TP_RECOMPUTE_NONE, { .attn = { .rank = 2 }, .ln_local = true } },
        { true,
          false,
          true,
          TP_RECOMPUTE_NONE,
          { .attn = { .rank = 2, .window = 64 }, .window_heads = 1 } },
        { true,
          false,
          true,
          TP_RECOMPUTE_NONE,
          { .attn = { .rank = 1, .window = 64 }, .raw_kv = true } },
        { true,
          true,
          true,
          TP_RECOMPUTE_NONE,
          { .attn = { .rank = 1, .window = 64 }, .raw_kv = true } },
    };
    /* a dry device counts like a real one (test_plan.c), but faster */
    tp_device *D = device_open(&(tp_device_opts){ .threads = 1, .dry = true });
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tp_ls_lm_cfg c = {
            .vocab = 64, .dim = 128, .hidden = 512, .layers = 4, .mem_len = 256, .ls = rows[i].ls
        };
        if (c.ls.attn.rank == 0 && c.ls.attn.window == 0) c.ls.attn.rank = 1, c.ls.attn.window = 64;
        c.ls.attn.heads = 4;
        c.ls.attn.chunk = 16;
        c.pre_ln = rows[i].pre_ln;
        c.gelu = rows[i].gelu;
        c.ls.project_first = rows[i].project_first;
        c.recompute = rows[i].recompute;
        const tp_model_cfg of = tp_model_cfg_of(&tp_model_ls_lm, &c);
        const double want = tp_model_cost(&of, M, 256).saved, got = measure(D, &c, NULL, M);
        cr_expect(fabs(got / want - 1.0) < 0.02, "row %zu: %g bytes, said %g", i, got, want);

        const tp_txl_cfg x = { .vocab = 64,
                               .dim = 128,
                               .hidden = 512,
                               .d_head = 32,
                               .layers = 4,
                               .heads = 4,
                               .mem_len = 128,
                               .pre_ln = rows[i].pre_ln,
                               .recompute = rows[i].recompute };
        const tp_model_cfg other = tp_model_cfg_of(&tp_model_txl, &x);
        const double xl = tp_model_cost(&other, M, 128).saved, held = measure(D, NULL, &x, M);
        cr_expect(fabs(held / xl - 1.0) < 0.02, "Transformer-XL, row %zu: %g bytes, said %g", i,
                  held, xl);
    }
    tp_device_close(D);
}
