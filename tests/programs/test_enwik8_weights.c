/* test_enwik8_weights.c - the program enwik8 with published weights: they give their checkpoint's
 * results, and every bad use gives one clear message. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/file.h>

#include "support/checkpoint.h"
#include "support/enwik8.h"

TestSuite(enwik8_weights, .init = enwik8_begin, .fini = program_end, .timeout = 900);

/* Writes the weights of a checkpoint as the official code does: under its names, without a
 * description of the model; and its dictionary to dict.txt. */
static void publish(const char *from, const char *prefix)
{
    char name[512], text[2048];
    tp_file *F = tp_file_open(from);
    tp_writer *W = tp_writer_new("published.pt");
    for (int i = 0; i < tp_file_count(F); i++) {
        const tp_file_tensor *t = tp_file_at(F, i);
        if (strncmp(t->name, "optim.", 6) == 0 || strncmp(t->name, "state.", 6) == 0) continue;
        float *x = malloc((size_t)t->numel * sizeof *x);
        cr_assert(x && tp_file_read(F, t, TP_F32, x), "%s", tp_file_why(F));
        snprintf(name, sizeof name, "%s%s", prefix, t->name);
        tp_writer_add(W, name, TP_F32, t->shape, x, true);
        if (strcmp(t->name, "in_emb.weight") == 0) {
            snprintf(name, sizeof name, "%sout_emb.weight", prefix);
            tp_writer_add(W, name, TP_F32, t->shape, x, true);
        }
        free(x);
    }
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
    snprintf(text, sizeof text, "%s", tp_file_meta(F, "vocab"));
    tp_file_close(F);
    FILE *f = fopen("dict.txt", "w");
    cr_assert(f);
    for (char *s = strtok(strchr(text, ':') + 1, ","); s; s = strtok(NULL, ","))
        fprintf(f, "%s 7\n", s);
    fprintf(f, "madeupword0000 0\n");
    fclose(f);
}

/* Published weights give their checkpoint's results. name, train: flags of eval and of train. */
static void expect_same_results(const char *name, const char *train, const char *prefix)
{
    static char text[4096];
    int64_t n, m;
    succeed("train --data text --batch 2 --threads 1 --eval-tokens 200 --steps 2 --overwrite "
            "--run-dir run --preset tiny %s",
            train);
    publish("run/last.safetensors", prefix);
    succeed("eval --data text --checkpoint run/last.safetensors --protocol fast --threads 1");
    const double bpc = bpc_printed(&n);
    static const char *const dictionaries[] = { "", "--vocab dict.txt" };
    for (int i = 0; i < 2; i++) {
        succeed(
            "eval --data text --preset %s --weights published.pt --protocol fast --threads 1 %s",
            name, dictionaries[i]);
        cr_expect_float_eq(bpc_printed(&m), bpc, 1e-3, "%s: %s", name, out);
        cr_expect_eq(n, m);
    }
    const char *generate = "generate --length 9 --temperature 0 --threads 1 --prompt 'the river ' ";
    succeed("%s --checkpoint run/last.safetensors", generate);
    snprintf(text, sizeof text, "%.4000s", out);
    succeed("%s --preset %s --weights published.pt --vocab dict.txt", generate, name);
    cr_expect_str_eq(out, text);
    succeed("train --data text --batch 2 --threads 1 --eval-tokens 200 --steps 1 --overwrite "
            "--run-dir more --init published.pt --preset tiny %s",
            train);
    cr_expect_eq(update_in("more/last.safetensors"), 1);
}

Test(enwik8_weights, published_weights)
{
    expect_same_results("txl-tiny", "--model txl --style txl", "");
    expect_same_results("ls_lm-tiny", "", "model.decoder.model.");
    static const struct {
        const char *flags, *message;
    } cases[] = {
        { "", "name its model with --preset, as ls_lm-small" },
        { "--preset ls_lm-tiny", "its dictionary is needed: --data FILE" },
        { "--preset ls_lm-tiny --checkpoint x", "--weights and --checkpoint exclude each other" },
        { "--preset cvt-13 --data text", "--preset cvt-13 is no language model" },
        { "--preset ls_lm-tine --data text", "'ls_lm-tiny'" },
        { "--preset txl-tiny --vocab dict.txt", "has no 'word_emb.emb_layers.0.weight'" },
        { "--preset ls_lm-tiny --vocab none", "dictionary none: " },
        { "--preset ls_lm-tiny --vocab text", "dictionary text: line 1 ('" },
        { "--preset ls_lm-tiny --vocab short",
          "short 8: give the text that the model was trained" },
    };
    cr_assert(shell("head -n 2 dict.txt > short"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char command[256];
        snprintf(command, sizeof command, "generate --weights published.pt --threads 1 %s",
                 cases[i].flags);
        expect_refusal(command, 1, cases[i].message);
    }
    expect_refusal("generate --preset ls_lm-tiny", 1, "--preset belongs to published weights");
    expect_refusal("eval --data text --vocab dict.txt", 1, "--vocab belongs to published weights");
    expect_refusal("train --data text --vocab dict.txt --run-dir other", 1,
                   "--vocab is the dictionary of a publisher's weights");
    expect_refusal("train --data text --vocab short --init published.pt --run-dir other", 1,
                   "the dictionary of short 8");
}
