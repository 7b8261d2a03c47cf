/* test_models_config.c - impossible configurations of the language models, and their files. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <tapegrad/lm.h>
#include <tapegrad/resnet.h>

#include "support/device.h"
#include "support/folder.h"

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
        { "n_head = 0 must be 1 to 16777216", 0, 16, 1, 64, 128, 256, 208, 4, 0 },
        { "is odd", 1, 16, 1, 64, 127, 256, 208, 4, 0 },
        { "chunk_size = 0 must be 1 to 16777216", 4, 0, 1, 64, 128, 256, 208, 4, 0 },
        { "chunk_rank = -1 must be 0 to 16777216", 4, 16, -1, 64, 128, 256, 208, 4, 0 },
        { "window_len = -1 must be 0 to 16777216", 4, 16, 1, -1, 128, 256, 208, 4, 0 },
        { "would see nothing", 4, 16, 0, 0, 128, 256, 208, 4, 0 },
        { "16 does not divide the cache of 250", 4, 16, 1, 64, 128, 250, 208, 4, 0 },
        { "32 rows is shorter than the window of 64", 4, 16, 1, 64, 128, 32, 208, 4, 0 },
        { "unless empty caches are masked", 4, 16, 1, 64, 128, 0, 208, 4, 0 },
        { "mem_len = -16 must be 0 to 16777216", 4, 16, 1, 64, 128, -16, 208, 4, 0 },
        { "d_model = 4611686018427387904 must be", 1, 16, 1, 64, INT64_MAX / 2 + 1, 256, 208, 4,
          0 },
        { "mem_len = 33554432 must be", 4, 16, 1, 64, 128, 1 << 25, 208, 4, 0 },
        { "4 heads of rank 16777216, together", 4, 16, 1 << 24, 64, 128, 256, 208, 4, 0 },
        { "chunk_size = 33554432 must be", 4, 1 << 25, 1, 64, 128, 256, 208, 4, 0 },
        { "vocab_size = 16777217 must be 1 to 16777216", 4, 16, 1, 64, 128, 256, (1 << 24) + 1, 4,
          0 },
        { "vocab_size = 0 must be", 4, 16, 1, 64, 128, 256, 0, 4, 0 },
        { "n_layer = 0 must be 1 to 128", 4, 16, 1, 64, 128, 256, 208, 0, 0 },
        { "n_layer = 129 must be 1 to 128", 4, 16, 1, 64, 128, 256, 208, 129, 0 },
        { "dropout must be in [0,1)", 4, 16, 1, 64, 128, 256, 208, 4, 1.0 },
        { "dropout must be in [0,1)", 4, 16, 1, 64, 128, 256, 208, 4, (double)NAN },
    };
    static tp_ls_lm lm;
    tp_device *D = device_open(NULL);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tp_ls_lm_cfg c = tp_ls_lm_tiny(rows[i].vocab);
        c.dim = rows[i].dim;
        c.mem_len = rows[i].mem_len;
        c.layers = rows[i].layers;
        c.dropout = rows[i].dropout;
        c.ls.attn.heads = rows[i].heads;
        c.ls.attn.chunk = rows[i].chunk;
        c.ls.attn.rank = rows[i].rank;
        c.ls.attn.window = rows[i].window;
        tp_params *P = tp_params_new(D, NULL);
        tp_ls_lm_init(P, &lm, "", c);
        cr_expect(!tp_params_ok(P) && strstr(tp_params_why(P), rows[i].text), "'%s' has no '%s'",
                  tp_params_why(P), rows[i].text);
        tp_tape *T = tp_tape_new(D, NULL);
        tp_ls_lm_state s = { 0 };
        tp_ls_lm_forward(T, &lm, &s, tp_from(T, TP_I32, TP_SHAPE(1, 2), (int32_t[]){ 0, 0 }));
        cr_expect(strstr(tp_why(T), rows[i].text), "forward: '%s' has no '%s'", tp_why(T),
                  rows[i].text);
        tp_tape_free(T);
        tp_params_free(P);
    }
    tp_device_close(D);
}

/* The products of these sizes overflow. */
Test(models, impossible_sizes_of_transformer_xl)
{
    const struct {
        const char *text;
        int64_t dim, hidden, d_head;
        int heads;
    } rows[] = {
        { "d_model = 4611686018427387904 must be", INT64_MAX / 2 + 1, 512, 64, 8 },
        { "d_inner = 9223372036854775807 must be", 512, INT64_MAX, 64, 8 },
        { "d_head = 8589934592 must be", 512, 512, INT64_C(1) << 33, INT32_MAX },
        { "n_head = 2147483647 must be", 512, 512, 64, INT32_MAX },
        { "16777216 heads of width 64, together", 512, 512, 64, 1 << 24 },
    };
    char why[256];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tp_txl_cfg c = { .vocab = 208, .layers = 12, .mem_len = 512 };
        c.dim = rows[i].dim;
        c.hidden = rows[i].hidden;
        c.d_head = rows[i].d_head;
        c.heads = rows[i].heads;
        cr_expect(!tp_model_txl.check(&c, why, sizeof why), "%s", rows[i].text);
        cr_expect(strstr(why, rows[i].text), "'%s' has no '%s'", why, rows[i].text);
    }
}

static const char *one_file(void)
{
    return in_folder("config.safetensors");
}

Test(models, configurations_in_files, .init = make_folder, .fini = remove_folder)
{
    char why[256] = "";
    tp_ls_lm_cfg c, d;
    tp_txl_cfg x, y;
    tp_model_cfg large;
    cr_assert(tp_model_preset(&large, "ls_lm-large-text8", why, sizeof why), "%s", why);
    memcpy(&c, &large.at, sizeof c);
    cr_assert(tp_model_preset(&large, "txl-large", why, sizeof why), "%s", why);
    memcpy(&x, &large.at, sizeof x);
    c.ls.attn.masked = c.ls.project_first = true;
    c.ls.attn.clamp = 7;
    c.ls.window_heads = 3;
    c.dropout = 0.1 + 0.2;
    c.ls.attn.dropout = 0.05;
    x.same_length = true;
    x.clamp = 1000;

    tp_writer *W = tp_writer_new(one_file());
    tp_model_write_cfg(&tp_model_ls_lm, &c, W);
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
    tp_file *F = tp_file_open(one_file());
    cr_expect(tp_model_read_cfg(&tp_model_ls_lm, &d, F, why, sizeof why), "%s", why);
    cr_expect(d.vocab == 32 && d.layers == 30 && d.dim == 512 && d.ls.attn.clamp == 7 && d.pre_ln &&
              d.gelu && !d.bias && d.ls.attn.masked && d.ls.project_first && !d.ls.attn.segment &&
              !d.ls.ln_local && d.dropout == c.dropout && d.ls.attn.dropout == 0.05 &&
              d.ls.attn.window == 512 && d.ls.window_heads == 3);
    cr_expect(!tp_model_read_cfg(&tp_model_txl, &y, F, why, sizeof why));
    cr_expect(strstr(why, "'transformer-ls-lm', not 'transformer-xl'"), "%s", why);
    tp_file_close(F);

    W = tp_writer_new(one_file());
    tp_model_write_cfg(&tp_model_txl, &x, W);
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
    F = tp_file_open(one_file());
    cr_expect(tp_model_read_cfg(&tp_model_txl, &y, F, why, sizeof why), "%s", why);
    cr_expect(y.d_head == 128 && y.same_length && y.clamp == 1000 && y.att_dropout == 0.15);
    tp_file_close(F);
}

/* Members added later are written only if they differ from their defaults, so files without them
 * stay unchanged and are read as before. */
Test(models, optional_members, .init = make_folder, .fini = remove_folder)
{
    for (int set = 0; set < 2; set++) {
        char why[256] = "";
        tp_model_cfg c[2], d;
        cr_assert(tp_model_preset(&c[0], "ls_lm-tiny-enwik8", why, sizeof why), "%s", why);
        cr_assert(tp_model_preset(&c[1], "resnet-18", why, sizeof why), "%s", why);
        if (set) ((tp_ls_lm_cfg *)(void *)c[0].at.bytes)->ls.attn.dropout = 0.25;
        if (set) ((tp_resnet_cfg *)(void *)c[1].at.bytes)->frozen_norm = true;
        for (int i = 0; i < 2; i++) {
            tp_writer *W = tp_writer_new(one_file());
            tp_model_write(&c[i], W);
            cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
            tp_writer_free(W);
            tp_file *F = tp_file_open(one_file());
            cr_expect_eq(tp_file_meta(F, i ? "frozen_norm" : "dropatt") != NULL, set);
            cr_expect(tp_model_read(&d, F, why, sizeof why), "%s", why);
            if (i)
                cr_expect_eq(((tp_resnet_cfg *)(void *)d.at.bytes)->frozen_norm, set);
            else
                cr_expect_eq(((tp_ls_lm_cfg *)(void *)d.at.bytes)->ls.attn.dropout, 0.25 * set);
            tp_file_close(F);
        }
    }
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
        { "dropatt", "1.5", "dropatt must be in [0,1), not 1.5" },
        { "window", "sideways", "neither 'token' nor 'segment'" },
        { "chunk_size", "7", "7 does not divide" },
        { "model", NULL, "no model configuration" },
        { "n_head", NULL, "lacks 'n_head'" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char why[256] = "";
        tp_ls_lm_cfg c = tp_ls_lm_tiny(208);
        tp_writer *W = tp_writer_new(one_file()),
                  *V = tp_writer_new(in_folder("changed.safetensors"));
        tp_model_write_cfg(&tp_model_ls_lm, &c, W);
        cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
        tp_writer_free(W);
        tp_file *F = tp_file_open(one_file());
        const char *key, *value;
        for (int k = 0; tp_file_meta_at(F, k, &key, &value); k++) {
            const bool changed = strcmp(key, rows[i].key) == 0;
            if (!changed || rows[i].value) tp_writer_meta(V, key, changed ? rows[i].value : value);
        }
        if (!tp_file_meta(F, rows[i].key)) tp_writer_meta(V, rows[i].key, rows[i].value);
        cr_assert(tp_writer_commit(V), "%s", tp_writer_why(V));
        tp_writer_free(V);
        tp_file_close(F);
        F = tp_file_open(in_folder("changed.safetensors"));
        cr_expect(!tp_model_read_cfg(&tp_model_ls_lm, &c, F, why, sizeof why), "%s accepted",
                  rows[i].key);
        cr_expect(strstr(why, rows[i].text), "'%s' has no '%s'", why, rows[i].text);
        tp_file_close(F);
    }
}
