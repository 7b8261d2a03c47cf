/* text_norms.c - `imdb norms`: norms of the keys and values of window and projections by layer of a
 * long-short RoBERTa (Zhu et al. 2021, Figure 2). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "imdb.h"
#include "inside/norms_report.h"

typedef struct norms_options {
    tp_trained_settings t; /* first: the trained model's */
    norms_settings n;
    text_data d;
    char *preset, *tokenizer;
    int part;
    int64_t batch, limit, length, seed;
} norms_options;

#define S norms_options

static const tp_option table[] = {
    TP_HEADING("MODEL AND TEXTS"),
    TP_ROWS(tp_trained_options),
    OPTION_TEXTS(S, d, 0),
    OPTIONS_COLUMNS(S, d, 0),
    TP_STRING("tokenizer", S, tokenizer, "PATH", 0, "The vocabulary; not given: the checkpoint's."),
    TP_CHOICE("part", S, part, "train|valid|test", 0, "The part of the texts that is read."),
    TP_INT("limit", S, limit, 1, TP_BIG, 0, "Texts to average over."),
    TP_INT("length", S, length, 0, 1 << 20, 0,
           "Tokens of a text; longer texts are cut; 0: as many as the model takes."),
    TP_INT("batch", S, batch, 1, 65536, 0, "Batch size, in texts."),
    OPTION_NORMS_FRESH(S, n),
    TP_STRING_OF("preset", S, preset, "NAME", model_preset_known, 0,
                 "The model of --fresh, which reads random tokens."),
    TP_INT("seed", S, seed, 0, TP_BIG, 0, "Seed of --fresh weights and of random tokens."),
    OPTIONS_NORMS_RESULTS(S, n),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_machine_options),
    { 0 },
};

static const tp_command manual = {
    .name = "imdb norms",
    .summary = "measures the norms of keys and values by layer",
    .synopsis = "--data PATH [--run-dir DIR | --checkpoint FILE] [flag ...]\n"
                "    imdb norms --fresh --preset NAME [flag ...]",
    .about = "Runs a classifier with long-short attention over texts.\n\n" NORMS_ABOUT
             " Padding does not count.",
    .table = table,
    .more = "EXIT STATUS\n"
            "    0 success; 1 an error, such as an unknown preset; 2 a wrong command line\n\n"
            "EXAMPLES\n"
            "    imdb norms --fresh --preset roberta_ls-mini --picture before.png\n"
            "    imdb norms --data aclImdb --run-dir runs/imdb --picture after.png\n",
};

/* ---- initial weights ---- */

static bool open_fresh(text_file *f, const norms_options *o)
{
    char why[1024];
    if (o->d.path || o->t.checkpoint)
        return tp_trained_fail(&f->t, "--fresh and --%s exclude each other",
                               o->d.path ? "data" : "checkpoint");
    if (!o->preset) return tp_trained_fail(&f->t, "--fresh: name the model with --preset");
    if (!model_preset(&f->cfg, o->preset, why, sizeof why))
        return tp_trained_fail(&f->t, "%s", why);
    if (o->length > 0) f->cfg.length = o->length;
    const tp_model_cfg c = tp_model_cfg_of(&tp_model_roberta, &f->cfg);
    if (!tp_model_check(&c, why, sizeof why))
        return tp_trained_fail(&f->t, "--length %lld: %s", (long long)o->length, why);
    tp_trained_open(&f->t, &o->t.machine, (uint64_t)o->seed, false);
    f->m.cfg = f->cfg;
    f->m.net = tp_net_new(f->t.P, "", &c);
    return tp_trained_ok(&f->t);
}

/* ---- texts ---- */

static bool not_stopped(void *env, const doc_score *s)
{
    (void)env;
    (void)s;
    return !tp_stop_signal();
}

static bool observe(text_file *f, const norms_options *o, norms *s)
{
    const int64_t length = o->length ? o->length : f->cfg.length;
    text_data d = o->d;
    doc_score v;
    d.tail = text_file_tail(f, length);
    tp_documents *X = texts_open(&d, f->vocab,
                                 (text_view){ .part = (tp_part)o->part,
                                              .length = length,
                                              .limit = o->limit,
                                              .classes = f->published ? NULL : &f->classes });
    bool done = (tp_documents_ok(X) || tp_trained_fail(&f->t, "%s", tp_documents_why(X))) &&
                text_file_load(f, &o->t.machine);
    if (done) {
        tp_observe(f->t.T, norms_see, s);
        done = text_score(&v, f->t.T, &f->m, X, (text_batching){ .batch = o->batch },
                          (doc_watch){ .go_on = not_stopped }) ||
               tp_trained_fail(&f->t, "%s", v.why);
        tp_observe(f->t.T, NULL, NULL);
    }
    tp_documents_close(X);
    return done;
}

static bool measure(const norms_options *o, text_file *f)
{
    static norm_ratios r;
    static norms s;
    char model[700], inputs[300];
    memset(&r, 0, sizeof r);
    if (o->preset && !o->n.fresh)
        return tp_trained_fail(&f->t, "--preset is the model of --fresh; that of a run is its own");
    if (!o->n.fresh && !o->d.path)
        return tp_trained_fail(&f->t, "--data FILE is required: the texts and their classes");
    if (o->n.fresh ? !open_fresh(f, o) : !text_file_open(f, &o->t, o->tokenizer, o->length))
        return false;
    s = (norms){ .r = &r, .class_first = true, .layers = f->cfg.layers };
    tp_catch_signals();
    if (o->n.fresh) {
        if (!norms_of_noise(&s, f->t.T, f->m.net, o->batch, (uint64_t)o->seed))
            return tp_trained_ok(&f->t);
        snprintf(model, sizeof model, "%.600s with its initial weights", o->preset);
        snprintf(inputs, sizeof inputs, "%lld texts of random tokens", (long long)o->batch);
    } else {
        if (!observe(f, o, &s) || tp_stop_signal()) return false;
        snprintf(model, sizeof model, "%.600s", f->t.path);
        snprintf(inputs, sizeof inputs, "up to %lld texts of %.200s", (long long)o->limit,
                 o->d.path);
    }
    return norms_report(&s, &o->n, model, inputs, f->t.why, sizeof f->t.why);
}

static bool run(void *options, char *why, size_t size)
{
    text_file f = { 0 };
    const bool done = measure(options, &f);
    snprintf(why, size, "%s", f.t.why);
    text_file_close(&f);
    return done;
}

int imdb_norms_main(int argc, char **argv)
{
    norms_options s = {
        .t = { .machine = { .device = strdup("cpu") }, .run_dir = strdup("runs/imdb") },
        .part = TP_TEST,
        .batch = 4,
        .limit = 32,
        .seed = 1,
    };
    return tp_command_main(&manual, argc, argv, &s, run);
}
