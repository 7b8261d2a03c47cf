/* test_models.c - the language models from outside: counts, names and shapes, the untrained loss,
 * costs, configurations in files, carried state, and what happens to impossible requests. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/models.h>

#include "support_device.h"
#include "support_folder.h"

/* ---- counts and names ---- */

static const tp_model_info *find(const char *name)
{
    for (int i = 0; tp_model_at(i); i++)
        if (strcmp(tp_model_at(i)->name, name) == 0) return tp_model_at(i);
    return NULL;
}

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
        const tp_model_info *m = find(counts[i].name);
        cr_assert(m, "%s", counts[i].name);
        tp_params *P = tp_params_new(D, NULL);
        m->declare(P, m->variant);
        cr_expect(tp_params_ok(P), "%s: %s", m->name, tp_params_why(P));
        cr_expect(tp_params_count(P) == counts[i].count, "%s: %lld", m->name,
                  (long long)tp_params_count(P));
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
    static tp_lm lm;
    static tp_txl txl;
    tp_device *dev = device_open(NULL);
    tp_params *P = tp_params_new(dev, NULL), *Q = tp_params_new(dev, NULL);
    tp_lm_init(P, &lm, "",
               (tp_lm_cfg){ .vocab = V,
                            .dim = D,
                            .hidden = F,
                            .layers = 1,
                            .mem_len = 8,
                            .ls = { .heads = H, .chunk = 4, .rank = R, .window = 8 },
                            .use_bias = true });
    check_names(P, ls, sizeof ls / sizeof *ls);
    tp_txl_init(Q, &txl, "",
                (tp_txl_cfg){ .vocab = V,
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

/* What an ablation does not use is not there; what is there gets a gradient. */
Test(models, ablations)
{
    enum { M = 32 };
    static const struct {
        const char *name;
        tp_ls_cfg ls; /* options beside rank 2, window 8 */
        const char *absent[8];
    } rows[] = {
        { "all", { .rank = 2, .window = 8 }, { NULL } },
        { "window only",
          { .rank = 0, .window = 8 },
          { "dconv_1.weight", "dconv_1.bias", "r_net_chunk.weight", "r_net_chunk.bias",
            "dual_ln_dproj.weight", "dual_ln_dproj.bias" } },
        { "projection only",
          { .rank = 2, .window = 0 },
          { "r_net.weight", "r_w_bias", "r_r_bias", "dual_ln_win.weight", "dual_ln_win.bias" } },
        { "projection only, masked, local norm",
          { .rank = 2, .window = 0, .masked = true, .ln_local = true },
          { "r_net.weight", "r_w_bias", "r_r_bias" } },
        { "no DualLN",
          { .rank = 2, .window = 8, .no_dual_ln = true },
          { "dual_ln_win.weight", "dual_ln_win.bias", "dual_ln_dproj.weight",
            "dual_ln_dproj.bias" } },
    };
    static tp_lm lm;
    int32_t x[M + 1];
    fill_tokens(x, M + 1, 11);
    tp_device *D = device_open(&(tp_device_opts){ .threads = 1 });
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tp_params *P = tp_params_new(D, NULL), *all = tp_params_new(D, NULL);
        tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .train = true });
        tp_lm_state s = { 0 };
        tp_lm_cfg c = { .vocab = 11, .dim = 16, .hidden = 8, .layers = 1, .mem_len = M };
        c.ls = (tp_ls_cfg){ .heads = 2, .chunk = 4, .rank = 2, .window = 8 };
        tp_lm_init(all, &lm, "", c);
        c.ls = rows[i].ls;
        c.ls.heads = 2;
        c.ls.chunk = 4;
        tp_lm_init(P, &lm, "", c);
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
            tp_backward(T, tp_cross_entropy(T, tp_lm_forward(T, &lm, &s, in), out, TP_MEAN));
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

/* The untrained model predicts the current token again: well above ln 208 = 5.34. */
Test(models, first_loss)
{
    enum { M = 512, V = 208 };
    static tp_lm lm;
    int32_t x[M + 1];
    tp_device *D = device_open(&(tp_device_opts){ .threads = 2 });
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 1 });
    tp_tape *T = tp_tape_new(D, NULL);
    tp_lm_state s = { 0 };
    tp_lm_cfg c = tp_lm_small(V);
    c.mem_len = M;
    tp_lm_init(P, &lm, "", c);
    fill_tokens(x, M + 1, V);
    tp_record(T, false);
    const tp_tensor in = tp_from(T, TP_I32, TP_SHAPE(1, M), x);
    const tp_tensor out = tp_from(T, TP_I32, TP_SHAPE(1, M), x + 1);
    const double loss =
        tp_item(T, tp_cross_entropy(T, tp_lm_forward(T, &lm, &s, in), out, TP_MEAN));
    cr_expect(tp_ok(T), "%s", tp_why(T));
    cr_expect(loss > 7.1 && loss < 7.7, "first loss %g", loss);
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
}

/* ---- cost ---- */

/* Forward MFLOP a token (2 a multiply-add), as the specification's section 9 tabulates them. */
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
    const tp_lm_cfg small = tp_lm_small(208), large = tp_lm_large(208);
    const tp_txl_cfg full = tp_txl_base(208);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int64_t M = rows[i].tokens, L = rows[i].cache;
        const double per = 2.0 / (double)M / 1e6;
        cr_expect_float_eq(tp_lm_flops(&small, M, L).macs * per, rows[i].small, 0.06);
        cr_expect_float_eq(tp_lm_flops(&large, M, L).macs * per, rows[i].large, 0.5);
        cr_expect_float_eq(tp_txl_flops(&full, M, L).macs * per, rows[i].full, 0.5);
    }
}

/* Bytes that a recorded forward pass adds to what a reset tape holds. */
static double measure(tp_device *D, const tp_lm_cfg *ls, const tp_txl_cfg *xl, int M)
{
    static tp_lm lm;
    static tp_txl txl;
    int32_t x[256] = { 0 };
    tp_params *P = tp_params_new(D, NULL);
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .train = true });
    tp_lm_state s = { 0 };
    tp_txl_state t = { 0 };
    size_t before = 0;

    if (ls)
        tp_lm_init(P, &lm, "", *ls);
    else
        tp_txl_init(P, &txl, "", *xl);
    for (int k = 0; k < 3; k++) {
        tp_reset(T);
        before = tp_device_stats(D).live_bytes;
        const tp_tensor in = tp_from(T, TP_I32, TP_SHAPE(1, M), x);
        if (ls)
            tp_lm_forward(T, &lm, &s, in);
        else
            tp_txl_forward(T, &txl, &t, in);
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
        tp_ls_cfg ls; /* rank and window, if given; options */
    } rows[] = {
        { true, false, true, TP_RECOMPUTE_NONE, { 0 } },
        { true, true, true, TP_RECOMPUTE_NONE, { 0 } },
        { false, false, false, TP_RECOMPUTE_NONE, { 0 } },
        { true, false, true, TP_RECOMPUTE_ATTENTION, { 0 } },
        { true, false, true, TP_RECOMPUTE_BLOCK, { 0 } },
        { true, false, true, TP_RECOMPUTE_NONE, { .rank = 0, .window = 64 } },
        { true, true, true, TP_RECOMPUTE_NONE, { .rank = 0, .window = 64 } },
        { true, false, true, TP_RECOMPUTE_NONE, { .rank = 2, .window = 0 } },
        { true, false, true, TP_RECOMPUTE_NONE, { .rank = 2, .ln_local = true } },
        { true, false, true, TP_RECOMPUTE_NONE, { .rank = 1, .window = 64, .no_dual_ln = true } },
        { true, true, true, TP_RECOMPUTE_NONE, { .rank = 1, .window = 64, .no_dual_ln = true } },
    };
    tp_device *D = device_open(&(tp_device_opts){ .threads = 1 });
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tp_lm_cfg c = {
            .vocab = 64, .dim = 128, .hidden = 512, .layers = 4, .mem_len = 256, .ls = rows[i].ls
        };
        if (c.ls.rank == 0 && c.ls.window == 0) c.ls.rank = 1, c.ls.window = 64;
        c.ls.heads = 4;
        c.ls.chunk = 16;
        c.pre_ln = rows[i].pre_ln;
        c.gelu = rows[i].gelu;
        c.ls.project_first = rows[i].project_first;
        c.recompute = rows[i].recompute;
        const double caches = 4.0 * 256 * 128 * sizeof(float); /* the new ones, copies */
        const double want = tp_lm_activations(&c, M, 256), got = measure(D, &c, NULL, M) - caches;
        cr_expect(fabs(got / want - 1.0) < 0.02, "row %zu: %g bytes, closed form %g", i, got, want);

        const tp_txl_cfg x = { .vocab = 64,
                               .dim = 128,
                               .hidden = 512,
                               .d_head = 32,
                               .layers = 4,
                               .heads = 4,
                               .mem_len = 128,
                               .pre_ln = rows[i].pre_ln,
                               .recompute = rows[i].recompute };
        const double xl = tp_txl_activations(&x, M, 128), held = measure(D, NULL, &x, M);
        cr_expect(fabs(held / xl - 1.0) < 0.02, "Transformer-XL, row %zu: %g bytes, closed form %g",
                  i, held, xl);
    }
    tp_device_close(D);
}

/* ---- configurations ---- */

Test(models, impossible_configurations)
{
    const struct {
        const char *text;
        int heads, chunk, rank, window;
        int64_t dim, mem_len, vocab;
        int layers;
        double dropout;
    } rows[] = {
        { "does not divide into 5 heads", 5, 16, 1, 64, 128, 256, 208, 4, 0 },
        { "does not divide into 0 heads", 0, 16, 1, 64, 128, 256, 208, 4, 0 },
        { "is odd", 1, 16, 1, 64, 127, 256, 208, 4, 0 },
        { "chunk length must be", 4, 0, 1, 64, 128, 256, 208, 4, 0 },
        { "chunk rank must be", 4, 16, -1, 64, 128, 256, 208, 4, 0 },
        { "window cannot hold -1", 4, 16, 1, -1, 128, 256, 208, 4, 0 },
        { "would see nothing", 4, 16, 0, 0, 128, 256, 208, 4, 0 },
        { "16 does not divide the cache of 250", 4, 16, 1, 64, 128, 250, 208, 4, 0 },
        { "32 rows is shorter than the window of 64", 4, 16, 1, 64, 128, 32, 208, 4, 0 },
        { "unless empty caches are masked", 4, 16, 1, 64, 128, 0, 208, 4, 0 },
        { "cache of -16 rows", 4, 16, 1, 64, 128, -16, 208, 4, 0 },
        { "the width is 4611686018427387904", 1, 16, 1, 64, INT64_MAX / 2 + 1, 256, 208, 4, 0 },
        { "memory of 33554432 rows", 4, 16, 1, 64, 128, 1 << 25, 208, 4, 0 },
        { "heads of rank 2147483647", 4, 16, INT32_MAX, 64, 128, 256, 208, 4, 0 },
        { "chunks of 33554432", 4, 1 << 25, 1, 64, 128, 256, 208, 4, 0 },
        { "vocabulary has 16777217", 4, 16, 1, 64, 128, 256, (1 << 24) + 1, 4, 0 },
        { "vocabulary has 0", 4, 16, 1, 64, 128, 256, 0, 4, 0 },
        { "0 layers", 4, 16, 1, 64, 128, 256, 208, 0, 0 },
        { "129 layers", 4, 16, 1, 64, 128, 256, 208, 129, 0 },
        { "dropout must be in [0,1)", 4, 16, 1, 64, 128, 256, 208, 4, 1.0 },
        { "dropout must be in [0,1)", 4, 16, 1, 64, 128, 256, 208, 4, (double)NAN },
    };
    static tp_lm lm;
    tp_device *D = device_open(NULL);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tp_lm_cfg c = tp_lm_tiny(rows[i].vocab);
        c.dim = rows[i].dim;
        c.mem_len = rows[i].mem_len;
        c.layers = rows[i].layers;
        c.dropout = rows[i].dropout;
        c.ls.heads = rows[i].heads;
        c.ls.chunk = rows[i].chunk;
        c.ls.rank = rows[i].rank;
        c.ls.window = rows[i].window;
        tp_params *P = tp_params_new(D, NULL);
        tp_lm_init(P, &lm, "", c);
        cr_expect(!tp_params_ok(P) && strstr(tp_params_why(P), rows[i].text), "'%s' has no '%s'",
                  tp_params_why(P), rows[i].text);
        tp_params_free(P);
    }
    tp_device_close(D);
}

/* Sizes whose products would not fit. */
Test(models, impossible_sizes_of_transformer_xl)
{
    const struct {
        const char *text;
        int64_t dim, hidden, d_head;
        int heads;
    } rows[] = {
        { "the width is 4611686018427387904", INT64_MAX / 2 + 1, 512, 64, 8 },
        { "feed-forward width is 9223372036854775807", 512, INT64_MAX, 64, 8 },
        { "2147483647 heads of width 8589934592", 512, 512, INT64_C(1) << 33, INT32_MAX },
        { "2147483647 heads of width 64", 512, 512, 64, INT32_MAX },
    };
    char why[256];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tp_txl_cfg c = tp_txl_base(208);
        c.dim = rows[i].dim;
        c.hidden = rows[i].hidden;
        c.d_head = rows[i].d_head;
        c.heads = rows[i].heads;
        const char *found = tp_txl_cfg_check(&c, why, sizeof why);
        cr_expect(found && strstr(found, rows[i].text), "'%s' has no '%s'", found ? found : "",
                  rows[i].text);
    }
}

static const char *one_file(void)
{
    return in_folder("config.safetensors");
}

Test(models, configurations_in_files, .init = make_folder, .fini = remove_folder)
{
    char why[256] = "";
    tp_lm_cfg c = tp_lm_large(32), d;
    tp_txl_cfg x = tp_txl_large(204), y;
    c.ls.masked = c.ls.project_first = true;
    c.ls.clamp = 7;
    c.dropout = 0.1 + 0.2;
    x.same_length = true;
    x.clamp = 1000;

    tp_writer *W = tp_writer_new(one_file());
    tp_lm_cfg_write(&c, W);
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
    tp_file *F = tp_file_open(one_file());
    cr_expect(tp_lm_cfg_read(&d, F, why, sizeof why), "%s", why);
    cr_expect(d.vocab == 32 && d.layers == 30 && d.dim == 512 && d.ls.clamp == 7 && d.pre_ln &&
              d.gelu && !d.use_bias && d.ls.masked && d.ls.project_first && !d.ls.segment &&
              !d.ls.ln_local && d.dropout == c.dropout && d.ls.window == 512);
    cr_expect(!tp_txl_cfg_read(&y, F, why, sizeof why));
    cr_expect(strstr(why, "'transformer-ls-lm', not 'transformer-xl'"), "%s", why);
    tp_file_close(F);

    W = tp_writer_new(one_file());
    tp_txl_cfg_write(&x, W);
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
    F = tp_file_open(one_file());
    cr_expect(tp_txl_cfg_read(&y, F, why, sizeof why), "%s", why);
    cr_expect(y.d_head == 128 && y.same_length && y.clamp == 1000 && y.att_dropout == 0.15);
    tp_file_close(F);
}

Test(models, broken_configurations_in_files, .init = make_folder, .fini = remove_folder)
{
    const struct {
        const char *key, *value, *text;
    } rows[] = {
        { "n_layer", "x", "n_layer" },
        { "n_layer", "5000000000", "out of range" },
        { "pre_ln", "2", "out of range" },
        { "dropout", "nan", "dropout" },
        { "window", "sideways", "neither 'token' nor 'segment'" },
        { "chunk_size", "7", "7 does not divide" },
        { "model", NULL, "no model configuration" },
        { "n_head", NULL, "lacks 'n_head'" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char why[256] = "";
        tp_lm_cfg c = tp_lm_tiny(208);
        tp_writer *W = tp_writer_new(one_file()),
                  *V = tp_writer_new(in_folder("changed.safetensors"));
        tp_lm_cfg_write(&c, W);
        cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
        tp_writer_free(W);
        tp_file *F = tp_file_open(one_file());
        const char *key, *value;
        for (int k = 0; tp_file_meta_at(F, k, &key, &value); k++) {
            const bool changed = strcmp(key, rows[i].key) == 0;
            if (!changed || rows[i].value) tp_writer_meta(V, key, changed ? rows[i].value : value);
        }
        cr_assert(tp_writer_commit(V), "%s", tp_writer_why(V));
        tp_writer_free(V);
        tp_file_close(F);
        F = tp_file_open(in_folder("changed.safetensors"));
        cr_expect(!tp_lm_cfg_read(&c, F, why, sizeof why), "%s accepted", rows[i].key);
        cr_expect(strstr(why, rows[i].text), "'%s' has no '%s'", why, rows[i].text);
        tp_file_close(F);
    }
}

/* Loss of the third segment, a gradient's norm, and the first logit that a decoder gives, computed
 * in f32 or bf16. */
static void train_in(tp_dtype compute, double out[3])
{
    enum { M = 32, V = 19 };
    static tp_lm lm;
    int32_t x[3 * M + 1];
    float logits[V];
    tp_lm_state s = { 0 };
    tp_device *D = device_open(&(tp_device_opts){ .threads = 1 });
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 4 });
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = compute, .train = true });
    tp_lm_cfg c = tp_lm_tiny(V);
    c.layers = 2;
    c.dropout = c.emb_dropout = 0.1;
    tp_lm_init(P, &lm, "", c);
    fill_tokens(x, 3 * M + 1, V);
    for (int k = 0; k < 3; k++) {
        tp_reset(T);
        const tp_tensor in = tp_from(T, TP_I32, TP_SHAPE(1, M), x + k * M);
        const tp_tensor y = tp_from(T, TP_I32, TP_SHAPE(1, M), x + k * M + 1);
        const tp_tensor loss = tp_cross_entropy(T, tp_lm_forward(T, &lm, &s, in), y, TP_MEAN);
        tp_backward(T, loss);
        out[0] = tp_item(T, loss);
    }
    out[1] = tp_item(T, tp_clip_grad_norm(P, 0.0));
    tp_lm_decoder *d = tp_lm_decoder_new(T, &lm, M);
    cr_expect(tp_lm_decode(d, 1, logits));
    out[2] = (double)logits[1];
    cr_expect(tp_ok(T), "%s", tp_why(T));
    tp_lm_decoder_free(d);
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

/* ---- segments, caches, state ---- */

typedef struct rig {
    tp_device *D;
    tp_params *P;
    tp_tape *T;
    tp_lm lm;
} rig;

static void open_rig(rig *r, bool masked)
{
    r->D = device_open(&(tp_device_opts){ .threads = 1 });
    r->P = tp_params_new(r->D, &(tp_params_opts){ .seed = 2 });
    r->T = tp_tape_new(r->D, NULL);
    tp_lm_init(
        r->P, &r->lm, "",
        (tp_lm_cfg){ .vocab = 13,
                     .dim = 16,
                     .hidden = 24,
                     .layers = 2,
                     .mem_len = 16,
                     .ls = { .heads = 2, .chunk = 4, .rank = 1, .window = 8, .masked = masked },
                     .pre_ln = true,
                     .gelu = true });
    cr_assert(tp_params_ok(r->P), "%s", tp_params_why(r->P));
}

static void close_rig(rig *r)
{
    tp_tape_free(r->T);
    tp_params_free(r->P);
    tp_device_close(r->D);
}

/* Logits [B,n,13] of tokens from..from+n-1 of a fixed stream. */
static bool step(rig *r, tp_lm_state *s, int64_t B, int from, int n, float *logits)
{
    int32_t x[256];
    for (int i = 0; i < B * n; i++) x[i] = (from + i) * (from + i) % 13;
    tp_reset(r->T);
    const tp_tensor in = tp_from(r->T, TP_I32, TP_SHAPE(B, n), x);
    const tp_tensor y = tp_lm_forward(r->T, &r->lm, s, in);
    return logits ? tp_read(r->T, y, logits, (size_t)(B * n * 13) * sizeof *logits) : tp_ok(r->T);
}

Test(models, padding_is_invisible_to_real_positions)
{
    static rig r;
    float whole[16 * 13], part[10 * 13];
    tp_lm_state a = { 0 }, b = { 0 };
    open_rig(&r, false);
    cr_assert(step(&r, &a, 1, 0, 16, whole) && step(&r, &b, 1, 0, 10, part), "%s", tp_why(r.T));
    for (int i = 0; i < 10 * 13; i++) cr_expect_float_eq(part[i], whole[i], 1e-5f);
    cr_expect_eq(tp_dim(b.cache[0], 1), 16);
    close_rig(&r);
}

Test(models, masked_caches_grow_from_nothing)
{
    static rig r;
    tp_lm_state s = { 0 };
    const int64_t rows[] = { 8, 16, 16 };
    open_rig(&r, true);
    for (int k = 0; k < 3; k++) {
        cr_assert(step(&r, &s, 1, 8 * k, 8, NULL), "%s", tp_why(r.T));
        cr_expect_eq(tp_dim(s.cache[0], 1), rows[k]);
    }
    close_rig(&r);
}

/* A cache that is partly real equals its real rows alone. */
Test(models, masked_rows_may_as_well_not_be_there)
{
    enum { L = 16, REAL = 8, M = 8, DIM = 16 };
    static rig r;
    float h[M * DIM], cache[L * DIM], y[2][M * DIM];
    double w[DIM / 2], pe[8 * DIM];
    open_rig(&r, true);
    for (int i = 0; i < M * DIM; i++) h[i] = sinf((float)i);
    for (int i = 0; i < L * DIM; i++) cache[i] = cosf((float)(i * i));
    tp_frequencies(DIM / 2, w);
    tp_sinusoid(8, DIM / 2, w, 0, pe);
    for (int k = 0; k < 2; k++) {
        tp_tape *T = r.T;
        const int64_t rows = k ? REAL : L;
        const tp_tensor all = tp_from(T, TP_F32, TP_SHAPE(1, L, DIM), cache);
        const tp_tensor table = tp_cast(T, tp_from(T, TP_F64, TP_SHAPE(8, DIM), pe), TP_F32);
        const tp_ls_context ctx = { table, tp_slice(T, table, 0, 0, (rows + M) / 4), REAL };
        const tp_tensor out =
            tp_ls_attn_forward(T, &r.lm.layer[0].attn, tp_from(T, TP_F32, TP_SHAPE(1, M, DIM), h),
                               tp_slice(T, all, 1, L - rows, rows), ctx);
        cr_assert(tp_read(T, out, y[k], sizeof y[k]), "%s", tp_why(T));
    }
    for (int i = 0; i < M * DIM; i++) cr_expect_float_eq(y[0][i], y[1][i], 1e-6f);
    close_rig(&r);
}

Test(models, states_in_files_continue_exactly, .init = make_folder, .fini = remove_folder)
{
    static rig r;
    float straight[2 * 8 * 13], resumed[2 * 8 * 13];
    tp_lm_state s = { 0 }, t = { 0 };
    open_rig(&r, false);
    cr_assert(step(&r, &s, 2, 0, 8, NULL), "%s", tp_why(r.T));
    tp_writer *W = tp_writer_new(in_folder("state.safetensors"));
    cr_assert(tp_lm_state_write(r.T, &r.lm, &s, W) && tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
    cr_assert(step(&r, &s, 2, 50, 8, straight), "%s", tp_why(r.T));

    tp_file *F = tp_file_open(in_folder("state.safetensors"));
    cr_assert(tp_lm_state_read(r.T, &r.lm, &t, F), "%s", tp_why(r.T));
    tp_file_close(F);
    cr_assert(step(&r, &t, 2, 50, 8, resumed), "%s", tp_why(r.T));
    for (int i = 0; i < 2 * 8 * 13; i++) cr_expect(straight[i] == resumed[i], "logit %d", i);

    /* of another model, whose cache is longer */
    F = tp_file_open(in_folder("state.safetensors"));
    r.lm.cfg.mem_len = 32;
    cr_expect(!tp_lm_state_read(r.T, &r.lm, &t, F));
    cr_expect(strstr(tp_why(r.T), "state.cache.0 is of another shape"), "%s", tp_why(r.T));
    tp_file_close(F);
    close_rig(&r);
}

Test(models, impossible_segments)
{
    static rig r;
    tp_lm_state s = { 0 };
    open_rig(&r, false);
    cr_expect(!step(&r, &s, 1, 0, 12, NULL), "longer than the window and no multiple");
    cr_expect(strstr(tp_why(r.T), "segment of 12 rows is longer than the window of 8"), "%s",
              tp_why(r.T));
    tp_clear(r.T);
    tp_lm_state_clear(r.T, &s);
    cr_expect(step(&r, &s, 1, 0, 8, NULL), "%s", tp_why(r.T));
    cr_expect(!step(&r, &s, 2, 0, 8, NULL), "another batch");
    cr_expect(strstr(tp_why(r.T), "holds 1 streams, the tokens are 2"), "%s", tp_why(r.T));
    tp_clear(r.T);
    tp_lm_state_clear(r.T, &s);
    cr_expect(step(&r, &s, 2, 0, 8, NULL), "cleared: %s", tp_why(r.T));
    tp_lm_forward(r.T, &r.lm, &s, tp_from(r.T, TP_I32, TP_SHAPE(1), &(int32_t){ 0 }));
    cr_expect(strstr(tp_why(r.T), "tokens must be [batch,length]"), "%s", tp_why(r.T));
    close_rig(&r);
}
