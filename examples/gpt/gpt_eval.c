/* gpt_eval.c - `gpt eval`: bits per byte and perplexity of text, window by window. */
#include <stdio.h>
#include <string.h>
#include <tapegrad/options.h>

#include "gpt.h"

typedef struct eval_settings {
    gpt_source c; /* first */
    text_source x;
    int part;
    int64_t tokens, batch, windows;
} eval_settings;

enum { PART_ALL, PART_VALID, PART_TRAIN };

#define S eval_settings

static const tp_option table[] = {
    TP_HEADING("MODEL AND TEXT"),
    OPTIONS_TRAINED(S),
    TP_STRING("data", S, x.paths, "FILE", 0,
              "The texts, as for 'gpt train': files, tar files, folders, separated by commas."),
    TP_CHOICE("documents", S, x.documents, "file|blank|line", 0, "Where a document ends."),
    TP_CHOICE("part", S, part, "all|valid|train", 0,
              "What is scored. valid and train: the parts of 'gpt train' with the same "
              "--documents, --held-out and --limit."),
    TP_NUM("held-out", S, x.held_out, 0.001, 0.499, 0, "Share of the tokens in the part valid."),
    TP_INT("limit", S, x.limit, 0, TP_BIG, 0, "Read only that many bytes of text; 0: all."),
    TP_STRING("cache", S, x.cache, "FILE", 0, "Keep the tokens in this file."),
    TP_INT("tokens", S, tokens, 0, 1 << 24, 0,
           "Tokens of a window; 0: as in training, or as many as the model has positions."),
    TP_INT("batch", S, batch, 1, 65536, 0, "Windows in a forward pass."),
    TP_INT("windows", S, windows, 0, TP_BIG, 0, "Score only the first N windows; 0: all."),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_machine_options),
    { 0 },
};

static const tp_command manual = {
    .name = "gpt eval",
    .summary = "measures bits per byte and perplexity of text",
    .synopsis = "--data FILE[,FILE ...] [--run-dir DIR | --checkpoint FILE] [flag ...]",
    .about =
        "Runs the model over windows that follow one another, each scored without the text before "
        "it, and prints bits per byte, the perplexity per token and tokens per second. Bits per "
        "byte divide by the bytes that the scored tokens stand for; tokens that end documents "
        "cost bits and stand for none.",
    .table = table,
    .more = "EXIT STATUS\n"
            "    0 success; 1 an error; 2 a wrong command line\n\n"
            "EXAMPLES\n"
            "    gpt eval --data novel.txt --run-dir runs/novel --part valid\n"
            "    gpt eval --data novel.txt --checkpoint gpt2/model.safetensors\n",
};

static void run_windows(gpt_file *f, const eval_settings *s, tp_loader *L, text_sum *sum)
{
    tp_clm_batch b;
    tp_ticker line = tp_ticker_start("windows", s->windows ? s->windows : tp_clm_loader_windows(L));
    for (int64_t n = 0; tp_clm_loader_next(L, &b) && !tp_stop_signal() && tp_ok(f->t.T);) {
        gpt_score(sum, f->t.T, f->m, f->vocab, &b);
        n += b.n;
        if (tp_ticker_due(&line))
            tp_ticker_draw(&line, n, "%.4f bits per byte  perplexity %.2f", gpt_bits_per_byte(sum),
                           gpt_perplexity(sum));
        if (s->windows > 0 && n >= s->windows) break;
    }
    tp_ticker_end(&line);
    if (!tp_loader_ok(L)) tp_trained_fail(&f->t, "%s", tp_loader_why(L));
}

static bool score(gpt_file *f, const eval_settings *s, const tp_corpus *C)
{
    const int64_t places = gpt_cfg(&f->cfg)->positions;
    text_sum sum = { 0 };
    if (s->tokens > places)
        return tp_trained_fail(&f->t, "--tokens %lld: the model has only %lld positions",
                               (long long)s->tokens, (long long)places);
    tp_loader *L = tp_clm_loader_new(
        C, &(tp_clm_loader_opts){ .batch = s->batch,
                                  .length = s->tokens ? s->tokens : f->window,
                                  .part = s->part == PART_VALID ? TP_VALID : TP_TRAIN });
    if (!tp_loader_ok(L))
        tp_trained_fail(&f->t, "%s", tp_loader_why(L));
    else if (gpt_file_load(f, &s->c.t.machine)) {
        tp_catch_signals();
        const double began = tp_seconds();
        run_windows(f, s, L, &sum);
        if (tp_trained_ok(&f->t) && trained_finite(&f->t, sum.nats))
            printf("%s%.0f tokens, %.0f bytes: %.4f bits per byte, perplexity %.3f, %.0f "
                   "tokens/s\n",
                   tp_stop_signal() ? "stopped after " : "", sum.targets, sum.bytes,
                   gpt_bits_per_byte(&sum), gpt_perplexity(&sum),
                   sum.targets / (tp_seconds() - began));
    }
    tp_loader_free(L);
    return tp_trained_ok(&f->t) && tp_trained_printed(&f->t);
}

static bool measure(gpt_file *f, eval_settings *s)
{
    char why[512] = "";
    if (!s->x.paths) return tp_trained_fail(&f->t, "--data FILE is required: the texts to score");
    if (!gpt_file_open(f, &s->c)) return false;
    if (s->part == PART_ALL) s->x.held_out = -1;
    s->x.threads = (int)s->c.t.machine.threads;
    tp_corpus *C = gpt_texts(&s->x, f->vocab, why, sizeof why);
    const bool done = why[0]            ? tp_trained_fail(&f->t, "%s", why)
                      : tp_corpus_ok(C) ? score(f, s, C)
                                        : tp_trained_fail(&f->t, "%s", tp_corpus_why(C));
    tp_corpus_close(C);
    return done;
}

static bool run(void *options, char *why, size_t size)
{
    gpt_file f = { 0 };
    const bool done = measure(&f, options);
    snprintf(why, size, "%s", f.t.why);
    gpt_file_close(&f);
    return done;
}

int gpt_eval_main(int argc, char **argv)
{
    eval_settings s = {
        .c.t = { .machine = { .device = strdup("cpu") }, .run_dir = strdup("runs/gpt") },
        .x.held_out = 0.05,
        .batch = 4,
    };
    return tp_command_main(&manual, argc, argv, &s, run);
}
