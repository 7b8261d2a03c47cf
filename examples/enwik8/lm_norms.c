/* lm_norms.c - `enwik8 norms`: norms of the keys and values of window and projections by layer
 * (Zhu et al. 2021, Figure 2). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/random.h>

#include "enwik8.h"
#include "inside/norms_report.h"
#include "reports/models.h"

typedef struct norms_options {
    lm_source c; /* first: the trained model's */
    norms_settings n;
    char *set; /* member changes of --fresh; NULL: none */
    int split;
    int64_t segments, seed;
} norms_options;

#define S norms_options

static const tp_option table[] = {
    TP_HEADING("MODEL AND TEXT"),
    TP_ROWS(tp_trained_options),
    TP_STRING("data", S, c.data, "FILE", 0, TEXT_FILE " If not given with --fresh: random tokens."),
    OPTIONS_PUBLISHED(S),
    OPTION_NORMS_FRESH(S, n),
    OPTION_MEMBERS(S, set, 0, "Changes members of the model of --fresh, as dual_ln=off"),
    TP_INT("seed", S, seed, 0, TP_BIG, 0, "Seed of --fresh weights and of random tokens."),
    TP_CHOICE("split", S, split, "train|valid|test", 0, "The part of the text that is read."),
    TP_INT("segments", S, segments, 1, 65536, 0,
           "Segments to average over, after those that fill the cache."),
    OPTIONS_NORMS_RESULTS(S, n),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_machine_options),
    { 0 },
};

static const tp_command manual = {
    .name = "enwik8 norms",
    .summary = "measures the norms of keys and values by layer",
    .synopsis = "--data FILE [--run-dir DIR | --checkpoint FILE] [flag ...]\n"
                "    enwik8 norms --fresh --preset NAME [--data FILE] [flag ...]\n"
                "    enwik8 norms --data FILE --preset NAME --weights FILE [flag ...]",
    .about =
        "Runs a Transformer-LS over a text, as one stream of training segments.\n\n" NORMS_ABOUT,
    .table = table,
    .more = "EXIT STATUS\n"
            "    0 success; 1 an error, such as an unknown preset; 2 a wrong command line\n\n"
            "EXAMPLES\n"
            "    enwik8 norms --fresh --preset ls_lm-small --picture before.png\n"
            "    enwik8 norms --data enwik8.zip --run-dir runs/phase1 --picture after.png\n",
};

/* ---- the tokens ---- */

typedef struct stream {
    tp_text *text;      /* NULL: random tokens */
    const int16_t *ids; /* of the text */
    tp_random random;
    int64_t vocab, at;
} stream;

static void next_segment(stream *x, int32_t *ids, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        ids[i] = x->text ? x->ids[x->at++] : (int32_t)tp_random_below(&x->random, x->vocab);
}

/* Segments that fill the cache. */
static int64_t warm_segments(const lm_file *f)
{
    return (tp_model_get(&f->cfg).cache + f->segment - 1) / f->segment;
}

static bool open_stream(stream *x, lm_file *f, const norms_options *o)
{
    const tp_vocab *vocab = o->n.fresh ? NULL : &f->vocab;
    int64_t n;
    *x = (stream){ .random = tp_random_stream((uint64_t)o->seed, "norms", 0, 0),
                   .vocab = tp_model_get(&f->cfg).outputs };
    if (!o->c.data)
        return o->n.fresh || tp_trained_fail(&f->t, "--data FILE is required: the text that the "
                                                    "model was trained on");
    x->text = tp_text_open(o->c.data, &(tp_text_opts){ .vocab = vocab });
    if (!tp_text_ok(x->text)) return tp_trained_fail(&f->t, "%s", tp_text_why(x->text));
    x->ids = tp_text_ids(x->text, (tp_part)o->split, &n);
    const int64_t needed = (warm_segments(f) + o->segments) * f->segment;
    if (n < needed)
        return tp_trained_fail(&f->t,
                               "%s: that part has %lld tokens, %lld are needed for %lld segments "
                               "of %lld after the cache",
                               o->c.data, (long long)n, (long long)needed, (long long)o->segments,
                               (long long)f->segment);
    if (!o->n.fresh) return true;
    tp_common_cfg c = tp_model_get(&f->cfg);
    c.outputs = tp_text_vocab(x->text)->size;
    tp_model_set(&f->cfg, &c);
    return true;
}

/* ---- the model ---- */

static bool find_model(lm_file *f, const norms_options *o)
{
    char why[2048];
    static const char *const set_by[TP_COMMON_KINDS] = { [TP_COMMON_OUTPUTS] =
                                                             "the dictionary of the text" };
    *f = (lm_file){ 0 };
    if (o->set && !o->n.fresh)
        return tp_trained_fail(
            &f->t, "--set: it changes the model of --fresh; that of a run is as it was trained");
    if (!o->n.fresh) return lm_file_open(f, &o->c);
    if (o->c.weights || o->c.t.checkpoint)
        return tp_trained_fail(&f->t, "--fresh and --%s exclude each other",
                               o->c.weights ? "weights" : "checkpoint");
    if (!o->c.preset) return tp_trained_fail(&f->t, "--fresh: name the model with --preset");
    if (!lm_find_model(&f->cfg, o->c.preset, why, sizeof why) ||
        (o->set && !model_set(&f->cfg, o->set, set_by, why, sizeof why)))
        return tp_trained_fail(&f->t, "%s", why);
    f->segment = tp_model_get(&f->cfg).cache;
    return f->segment > 0 ||
           tp_trained_fail(&f->t, "--fresh: segments are as long as the cache, which this model "
                                  "does not have; give it one with --set mem_len=N");
}

static bool load_model(lm_file *f, const norms_options *o)
{
    if (!o->n.fresh) return lm_file_load(f, &o->c.t.machine);
    tp_trained_open(&f->t, &o->c.t.machine, (uint64_t)o->seed, false);
    f->m = tp_net_new(f->t.P, "", &f->cfg);
    return tp_trained_ok(&f->t);
}

/* ---- running ---- */

static bool observe(lm_file *f, stream *x, const norms_options *o, norms *s)
{
    const int64_t M = f->segment, warm = warm_segments(f), n = warm + o->segments;
    tp_tape *T = f->t.T;
    void *state = tp_net_state_new(f->m);
    int32_t *ids = malloc((size_t)M * sizeof *ids);
    if (!ids || !state) tp_raise(T, TP_E_MEMORY, "out of memory");
    for (int64_t i = 0; ids && state && i < n && tp_ok(T) && !tp_stop_signal(); i++) {
        tp_reset(T);
        next_segment(x, ids, M);
        s->layer = 0;
        if (i == warm) tp_observe(T, norms_see, s);
        tp_net_forward(T, f->m, state, tp_from(T, TP_I32, TP_SHAPE(1, M), ids));
    }
    tp_observe(T, NULL, NULL);
    tp_net_state_free(f->m, T, state);
    free(ids);
    return tp_trained_ok(&f->t);
}

static bool measure(const norms_options *o, lm_file *f, stream *x)
{
    static norm_ratios r;
    static norms s;
    char model[700], inputs[300];
    if (!find_model(f, o) || !open_stream(x, f, o) || !load_model(f, o)) return false;
    memset(&r, 0, sizeof r);
    s = (norms){ .r = &r };
    tp_catch_signals();
    if (!observe(f, x, o, &s) || tp_stop_signal()) return false;
    if (o->n.fresh)
        snprintf(model, sizeof model, "%.200s%s%.300s with its initial weights", o->c.preset,
                 o->set ? ", " : "", o->set ? o->set : "");
    else
        snprintf(model, sizeof model, "%.600s", f->t.path);
    snprintf(inputs, sizeof inputs, "%lld segments of %lld %stokens", (long long)o->segments,
             (long long)f->segment, x->text ? "" : "random ");
    return norms_report(&s, &o->n, model, inputs, f->t.why, sizeof f->t.why);
}

static bool run(void *options, char *why, size_t size)
{
    lm_file f = { 0 };
    stream x = { 0 };
    const bool done = measure(options, &f, &x);
    snprintf(why, size, "%s", f.t.why);
    tp_text_close(x.text);
    lm_file_close(&f);
    return done;
}

int norms_main(int argc, char **argv)
{
    norms_options s = {
        .c.t = { .machine = { .device = strdup("cpu") }, .run_dir = strdup("runs/enwik8") },
        .split = TP_VALID,
        .segments = 4,
        .seed = 2,
    };
    return tp_command_main(&manual, argc, argv, &s, run);
}
