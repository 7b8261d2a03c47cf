/* test_models.c - the language models through the public interface: counts, names and shapes,
 * parameters that ablations omit, the untrained loss, bf16 against f32. test_models_cost.c,
 * test_models_config.c and test_models_state.c test costs, configurations and states. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tapegrad/lm.h>

#include "support/device.h"

/* ---- counts and names ---- */

Test(models, parameter_counts)
{
    const struct {
        const char *name;
        int64_t count;
    } counts[] = {
        { "ls_lm-small-enwik8", 44294448 },  { "ls_lm-small-text8", 44204160 },
        { "ls_lm-large-enwik8", 110576064 }, { "ls_lm-large-text8", 110485776 },
        { "txl-base-enwik8", 41055436 },     { "txl-base-text8", 40964635 },
        { "txl-large-enwik8", 277231820 },
    };
    tp_device *D = device_open(NULL);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const char *name = counts[i].name;
        char why[256];
        tp_model_cfg c;
        cr_assert(tp_model_find(name) && tp_model_preset(&c, name, why, sizeof why), "%s", name);
        tp_params *P = tp_params_new(D, NULL);
        tp_net *N = tp_net_new(P, "", &c);
        cr_expect(tp_params_ok(P), "%s: %s", name, tp_params_why(P));
        cr_expect(tp_params_count(P) == counts[i].count, "%s: %lld", name,
                  (long long)tp_params_count(P));
        tp_net_free(N);
        tp_params_free(P);
    }
    tp_device_close(D);
}

typedef struct named {
    const char *name;
    tp_shape shape;
} named;

static void check_names(tp_params *P, const named *want, int n)
{
    cr_assert(tp_params_ok(P), "%s", tp_params_why(P));
    int found = 0;
    for (tp_param_info it = { 0 }; tp_next_param(P, &it); found++) {
        int i = 0;
        while (i < n && strcmp(want[i].name, it.name) != 0) i++;
        cr_expect(i < n, "%s is not a published name", it.name);
        if (i < n)
            cr_expect(it.shape.ndim == want[i].shape.ndim &&
                          memcmp(it.shape.dim, want[i].shape.dim,
                                 (size_t)it.shape.ndim * sizeof it.shape.dim[0]) == 0,
                      "%s has another shape", it.name);
    }
    cr_expect_eq(found, n);
}

Test(models, names_and_shapes)
{
    enum { V = 11, D = 12, F = 20, H = 3, R = 2 };
    const named ls[] = {
        { "in_emb.weight", { 2, { V, D } } },
        { "out_emb.weight", { 2, { V, D } } },
        { "out_emb.bias", { 1, { V } } },
        { "pos_emb.inv_freq", { 1, { D / 2 } } },
        { "layers.0.attn.proj_query.weight", { 2, { D, D } } },
        { "layers.0.attn.proj_query.bias", { 1, { D } } },
        { "layers.0.attn.proj_key.weight", { 2, { D, D } } },
        { "layers.0.attn.proj_key.bias", { 1, { D } } },
        { "layers.0.attn.proj_val.weight", { 2, { D, D } } },
        { "layers.0.attn.proj_val.bias", { 1, { D } } },
        { "layers.0.attn.proj_out.weight", { 2, { D, D } } },
        { "layers.0.attn.proj_out.bias", { 1, { D } } },
        { "layers.0.attn.dconv_1.weight", { 2, { H * R, D } } },
        { "layers.0.attn.dconv_1.bias", { 1, { H * R } } },
        { "layers.0.attn.r_net.weight", { 2, { D, D } } },
        { "layers.0.attn.r_net_chunk.weight", { 2, { D, D } } },
        { "layers.0.attn.r_net_chunk.bias", { 1, { D } } },
        { "layers.0.attn.r_w_bias", { 5, { 1, H, 1, 1, D / H } } },
        { "layers.0.attn.r_r_bias", { 4, { 1, H, 1, D / H } } },
        { "layers.0.attn.dual_ln_win.weight", { 1, { D } } },
        { "layers.0.attn.dual_ln_win.bias", { 1, { D } } },
        { "layers.0.attn.dual_ln_dproj.weight", { 1, { D } } },
        { "layers.0.attn.dual_ln_dproj.bias", { 1, { D } } },
        { "layers.0.norm1.weight", { 1, { D } } },
        { "layers.0.norm1.bias", { 1, { D } } },
        { "layers.0.norm2.weight", { 1, { D } } },
        { "layers.0.norm2.bias", { 1, { D } } },
        { "layers.0.ff.fc1.weight", { 2, { F, D } } },
        { "layers.0.ff.fc1.bias", { 1, { F } } },
        { "layers.0.ff.fc2.weight", { 2, { D, F } } },
        { "layers.0.ff.fc2.bias", { 1, { D } } },
    };
    const named xl[] = {
        { "r_w_bias", { 2, { H, 5 } } },
        { "r_r_bias", { 2, { H, 5 } } },
        { "word_emb.emb_layers.0.weight", { 2, { V, D } } },
        { "crit.out_layers.0.weight", { 2, { V, D } } },
        { "crit.out_layers.0.bias", { 1, { V } } },
        { "pos_emb.inv_freq", { 1, { D / 2 } } },
        { "layers.0.dec_attn.qkv_net.weight", { 2, { 3 * H * 5, D } } },
        { "layers.0.dec_attn.o_net.weight", { 2, { D, H * 5 } } },
        { "layers.0.dec_attn.r_net.weight", { 2, { H * 5, D } } },
        { "layers.0.dec_attn.layer_norm.weight", { 1, { D } } },
        { "layers.0.dec_attn.layer_norm.bias", { 1, { D } } },
        { "layers.0.pos_ff.CoreNet.0.weight", { 2, { F, D } } },
        { "layers.0.pos_ff.CoreNet.0.bias", { 1, { F } } },
        { "layers.0.pos_ff.CoreNet.3.weight", { 2, { D, F } } },
        { "layers.0.pos_ff.CoreNet.3.bias", { 1, { D } } },
        { "layers.0.pos_ff.layer_norm.weight", { 1, { D } } },
        { "layers.0.pos_ff.layer_norm.bias", { 1, { D } } },
    };
    static tp_ls_lm lm;
    static tp_txl txl;
    tp_device *dev = device_open(NULL);
    tp_params *P = tp_params_new(dev, NULL), *Q = tp_params_new(dev, NULL);
    tp_ls_lm_init(
        P, &lm, "",
        (tp_ls_lm_cfg){ .vocab = V,
                        .dim = D,
                        .hidden = F,
                        .layers = 1,
                        .mem_len = 8,
                        .ls = { .attn = { .heads = H, .chunk = 4, .rank = R, .window = 8 } },
                        .bias = true });
    check_names(P, ls, sizeof ls / sizeof *ls);
    tp_model_txl.init(Q, &txl, "",
                      &(tp_txl_cfg){ .vocab = V,
                                     .dim = D,
                                     .hidden = F,
                                     .d_head = 5,
                                     .layers = 1,
                                     .heads = H,
                                     .mem_len = 8 });
    check_names(Q, xl, sizeof xl / sizeof *xl);
    tp_params_free(Q);
    tp_params_free(P);
    tp_device_close(dev);
}

static void fill_tokens(int32_t *x, int n, int vocab)
{
    uint32_t state = 12345;
    for (int i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (int32_t)((state >> 8) % (uint32_t)vocab);
    }
}

/* An ablation has only the parameters that it uses, and each of them gets a gradient. */
Test(models, ablations)
{
    enum { M = 32 };
    static const struct {
        const char *name;
        tp_ls_cfg ls; /* options in addition to rank 2, window 8 */
        const char *absent[8];
    } rows[] = {
        { "all", { .attn = { .rank = 2, .window = 8 } }, { NULL } },
        { "window only",
          { .attn = { .rank = 0, .window = 8 } },
          { "dconv_1.weight", "dconv_1.bias", "r_net_chunk.weight", "r_net_chunk.bias",
            "dual_ln_dproj.weight", "dual_ln_dproj.bias" } },
        { "projection only",
          { .attn = { .rank = 2, .window = 0 } },
          { "r_net.weight", "r_w_bias", "r_r_bias", "dual_ln_win.weight", "dual_ln_win.bias" } },
        { "projection only, masked, local norm",
          { .attn = { .rank = 2, .window = 0, .masked = true }, .ln_local = true },
          { "r_net.weight", "r_w_bias", "r_r_bias" } },
        { "no DualLN",
          { .attn = { .rank = 2, .window = 8 }, .raw_kv = true },
          { "dual_ln_win.weight", "dual_ln_win.bias", "dual_ln_dproj.weight",
            "dual_ln_dproj.bias" } },
    };
    static tp_ls_lm lm;
    int32_t x[M + 1];
    fill_tokens(x, M + 1, 11);
    tp_device *D = device_open(&(tp_device_opts){ .threads = 1 });
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tp_params *P = tp_params_new(D, NULL), *all = tp_params_new(D, NULL);
        tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .train = true });
        tp_ls_lm_state s = { 0 };
        tp_ls_lm_cfg c = { .vocab = 11, .dim = 16, .hidden = 8, .layers = 1, .mem_len = M };
        c.ls = (tp_ls_cfg){ .attn = { .heads = 2, .chunk = 4, .rank = 2, .window = 8 } };
        tp_ls_lm_init(all, &lm, "", c);
        c.ls = rows[i].ls;
        c.ls.attn.heads = 2;
        c.ls.attn.chunk = 4;
        tp_ls_lm_init(P, &lm, "", c);
        int64_t missing = 0;
        for (int k = 0; k < 8 && rows[i].absent[k]; k++) {
            char name[64];
            snprintf(name, sizeof name, "layers.0.attn.%s", rows[i].absent[k]);
            cr_expect(!tp_given(tp_find(P, name)), "%s: %s", rows[i].name, name);
            missing += tp_numel(tp_find(all, name));
        }
        cr_expect_eq(tp_params_count(P), tp_params_count(all) - missing, "%s", rows[i].name);
        for (int k = 0; k < 2; k++) {
            tp_reset(T);
            const tp_tensor in = tp_from(T, TP_I32, TP_SHAPE(1, M), x);
            const tp_tensor out = tp_from(T, TP_I32, TP_SHAPE(1, M), x + 1);
            tp_backward(T, tp_cross_entropy(T, tp_ls_lm_forward(T, &lm, &s, in), out, TP_MEAN));
        }
        cr_expect(tp_ok(T), "%s: %s", rows[i].name, tp_why(T));
        for (tp_param_info it = { 0 }; tp_next_param(P, &it);) {
            if (it.buffer || it.alias_of) continue;
            cr_expect(it.has_grad, "%s: %s has no gradient", rows[i].name, it.name);
        }
        tp_tape_free(T);
        tp_params_free(all);
        tp_params_free(P);
    }
    tp_device_close(D);
}

/* ---- initialisation ---- */

/* The untrained model predicts the current token, so the loss is well above ln 208 = 5.34. */
Test(models, first_loss)
{
    enum { M = 64, V = 208 };
    static tp_ls_lm lm;
    int32_t x[M + 1];
    tp_device *D = device_open(&(tp_device_opts){ .threads = 2 });
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 1 });
    tp_tape *T = tp_tape_new(D, NULL);
    tp_ls_lm_state s = { 0 };
    tp_ls_lm_cfg c = tp_ls_lm_small(V);
    c.mem_len = c.ls.attn.window = M;
    tp_ls_lm_init(P, &lm, "", c);
    fill_tokens(x, M + 1, V);
    tp_record(T, false);
    const tp_tensor in = tp_from(T, TP_I32, TP_SHAPE(1, M), x);
    const tp_tensor out = tp_from(T, TP_I32, TP_SHAPE(1, M), x + 1);
    const double loss =
        tp_item(T, tp_cross_entropy(T, tp_ls_lm_forward(T, &lm, &s, in), out, TP_MEAN));
    cr_expect(tp_ok(T), "%s", tp_why(T));
    cr_expect(loss > 7.1 && loss < 7.7, "first loss %g", loss);
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
}

/* ---- bf16 ---- */

/* The loss of the third segment, a gradient's norm, and a decoder's first logit, computed in f32 or
 * bf16. */
static void train_in(tp_dtype compute, double out[3])
{
    enum { M = 32, V = 19 };
    static tp_ls_lm lm;
    int32_t x[3 * M + 1];
    float logits[V];
    tp_ls_lm_state s = { 0 };
    tp_device *D = device_open(&(tp_device_opts){ .threads = 1 });
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 4 });
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = compute, .train = true });
    tp_ls_lm_cfg c = tp_ls_lm_tiny(V);
    c.layers = 2;
    c.dropout = c.emb_dropout = 0.1;
    tp_ls_lm_init(P, &lm, "", c);
    fill_tokens(x, 3 * M + 1, V);
    for (int k = 0; k < 3; k++) {
        tp_reset(T);
        const tp_tensor in = tp_from(T, TP_I32, TP_SHAPE(1, M), x + k * M);
        const tp_tensor y = tp_from(T, TP_I32, TP_SHAPE(1, M), x + k * M + 1);
        const tp_tensor loss = tp_cross_entropy(T, tp_ls_lm_forward(T, &lm, &s, in), y, TP_MEAN);
        tp_backward(T, loss);
        out[0] = tp_item(T, loss);
    }
    out[1] = tp_item(T, tp_clip_grad_norm(P, 0.0));
    tp_ls_lm_decoder *d = tp_ls_lm_decoder_new(T, &lm, M);
    cr_expect(tp_ls_lm_decode(d, 1, logits));
    out[2] = (double)logits[1];
    cr_expect(tp_ok(T), "%s", tp_why(T));
    tp_ls_lm_decoder_free(d);
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
}

Test(models, bf16_follows_f32)
{
    static const char *const what[] = { "loss", "gradient norm", "logit of the decoder" };
    double full[3], half[3];
    train_in(TP_F32, full);
    train_in(TP_BF16, half);
    for (int i = 0; i < 3; i++)
        cr_expect(fabs(half[i] - full[i]) < 0.03 * fabs(full[i]) && half[i] != full[i],
                  "%s: %g in bf16, %g in f32", what[i], half[i], full[i]);
}
