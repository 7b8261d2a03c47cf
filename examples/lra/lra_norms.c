/* lra_norms.c - `lra norms`: norms of the keys and values of window and projections by layer (Zhu
 * et al. 2021, Figure 2). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inside/norms_report.h"
#include "lra.h"
#include "reports/models.h"

typedef struct norms_options {
    tp_trained_settings t; /* first: the trained model's */
    norms_settings n;
    char *preset, *set, *data;
    int part;
    int64_t batch, limit, seed;
} norms_options;

#define S norms_options

static const tp_option table[] = {
    TP_HEADING("MODEL AND DOCUMENTS"),
    TP_ROWS(tp_trained_options),
    TP_STRING("data", S, data, "PATH", 0,
              "The task's files, for a run that was trained on files. --fresh: random tokens."),
    TP_CHOICE("part", S, part, "train|valid|test", 0, "The part of the documents that is read."),
    TP_INT("limit", S, limit, 1, TP_BIG, 0, "Examples to average over."),
    TP_INT("batch", S, batch, 1, 65536, 0, "Batch size, in examples."),
    OPTION_NORMS_FRESH(S, n),
    TP_STRING_OF("preset", S, preset, "NAME", lra_preset_known, 0,
                 "The model of --fresh, lra-TASK-ATTENTION."),
    OPTION_MEMBERS(S, set, 0, "Changes members of the model of --fresh, as dual_ln=0"),
    TP_INT("seed", S, seed, 0, TP_BIG, 0, "Seed of --fresh weights and of random tokens."),
    OPTIONS_NORMS_RESULTS(S, n),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_machine_options),
    { 0 },
};

static const tp_command manual = {
    .name = "lra norms",
    .summary = "measures the norms of keys and values by layer",
    .synopsis = "[--data PATH] [--run-dir DIR | --checkpoint FILE] [flag ...]\n"
                "    lra norms --fresh --preset NAME [flag ...]",
    .about = "Runs an encoder with long-short attention over documents.\n\n" NORMS_ABOUT
             " Padding does not count.",
    .table = table,
    .more = "EXIT STATUS\n"
            "    0 success; 1 an error, such as an unknown preset; 2 a wrong command line\n\n"
            "EXAMPLES\n"
            "    lra norms --fresh --preset lra-text-ls --picture before.png\n"
            "    lra norms --data aclImdb --run-dir runs/text --picture after.png\n",
};

/* ---- initial weights ---- */

static bool open_fresh(lra_file *f, const norms_options *o)
{
    char why[2048];
    tp_model_cfg c;
    if (o->data || o->t.checkpoint)
        return tp_trained_fail(&f->t, "--fresh and --%s exclude each other",
                               o->data ? "data" : "checkpoint");
    if (!o->preset) return tp_trained_fail(&f->t, "--fresh: name the model with --preset");
    if (!tp_model_preset(&c, o->preset, why, sizeof why) ||
        (o->set && !model_set(&c, o->set, NULL, why, sizeof why)))
        return tp_trained_fail(&f->t, "%s", why);
    if (c.model != &tp_model_lra)
        return tp_trained_fail(&f->t,
                               "--preset %.80s is no model of the Long Range Arena; --help "
                               "lists them",
                               o->preset);
    memcpy(&f->cfg, &c.at, sizeof f->cfg);
    tp_trained_open(&f->t, &o->t.machine, (uint64_t)o->seed, false);
    encoder_init(f->t.P, &f->m, &f->cfg, (uint64_t)o->seed);
    return tp_trained_ok(&f->t);
}

/* ---- documents ---- */

static bool not_stopped(void *env, const doc_score *s)
{
    (void)env;
    (void)s;
    return !tp_stop_signal();
}

static bool observe(lra_file *f, const norms_options *o, norms *s)
{
    encoder_batching how;
    doc_score v;
    if (!lra_file_batching(f, o->batch, 0, &how)) return false;
    tp_documents *X = task_open(&f->d, (task_view){ .part = (tp_part)o->part, .limit = o->limit });
    bool done = (tp_documents_ok(X) || tp_trained_fail(&f->t, "%s", tp_documents_why(X))) &&
                lra_file_load(f, &o->t.machine);
    if (done) {
        tp_observe(f->t.T, norms_see, s);
        done = encoder_score(&v, f->t.T, &f->m, X, how, (doc_watch){ .go_on = not_stopped }) ||
               tp_trained_fail(&f->t, "%s", v.why);
        tp_observe(f->t.T, NULL, NULL);
    }
    tp_documents_close(X);
    return done;
}

static bool measure(const norms_options *o, lra_file *f)
{
    static const char *const parts[] = { "training", "validation", "test" };
    static norm_ratios r;
    static norms s;
    char model[700], inputs[300];
    memset(&r, 0, sizeof r);
    if (o->set && !o->n.fresh)
        return tp_trained_fail(
            &f->t, "--set: it changes the model of --fresh; that of a run is as it was trained");
    if (o->preset && !o->n.fresh)
        return tp_trained_fail(&f->t, "--preset is the model of --fresh; that of a run is its own");
    if (o->n.fresh ? !open_fresh(f, o) : !lra_file_open(f, &o->t, o->data)) return false;
    s = (norms){ .r = &r, .class_first = true, .layers = f->cfg.layers };
    tp_catch_signals();
    if (o->n.fresh) {
        if (!norms_of_noise(&s, f->t.T, f->m.net, o->batch, (uint64_t)o->seed))
            return tp_trained_ok(&f->t);
        snprintf(model, sizeof model, "%.200s%s%.300s with its initial weights", o->preset,
                 o->set ? ", " : "", o->set ? o->set : "");
        snprintf(inputs, sizeof inputs, "%lld documents of random tokens", (long long)o->batch);
    } else {
        if (!observe(f, o, &s) || tp_stop_signal()) return false;
        snprintf(model, sizeof model, "%.600s", f->t.path);
        snprintf(inputs, sizeof inputs, "up to %lld %s examples of %s", (long long)o->limit,
                 parts[o->part], task_of(&f->d)->name);
    }
    return norms_report(&s, &o->n, model, inputs, f->t.why, sizeof f->t.why);
}

static bool run(void *options, char *why, size_t size)
{
    lra_file f = { 0 };
    const bool done = measure(options, &f);
    snprintf(why, size, "%s", f.t.why);
    lra_file_close(&f);
    return done;
}

int lra_norms_main(int argc, char **argv)
{
    norms_options s = {
        .t = { .machine = { .device = strdup("cpu") }, .run_dir = strdup("runs/lra") },
        .part = TP_VALID,
        .batch = 8,
        .limit = 64,
        .seed = 1,
    };
    return tp_command_main(&manual, argc, argv, &s, run);
}
