/* eval.c - `imdb eval`: accuracy, loss and calibration of a trained classifier on one part of its texts. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "imdb_commands.h"
#include "text_file.h"
#include "text_report.h"
#include "tokenizer.h"

typedef struct eval_settings {
    tp_trained_settings t;
    text_data d;
    char *tokenizer, *reliability;
    int part, format, packed;
    int64_t batch, limit, length, groups;
} eval_settings;

enum { WHOLE = 1 << 20 }; /* tokens of a text whose length is measured */

#define S eval_settings

static const tp_option table[] = {
    TP_HEADING("MODEL AND TEXTS"),
    TP_ROWS(tp_trained_options),
    OPTION_TEXTS(S, d, 0),
    OPTION_TOKENIZER(S, tokenizer, 0),
    OPTIONS_COLUMNS(S, d, 0),
    TP_CHOICE("part", S, part, "train|valid|test", 0, "The part of the texts that is scored."),
    TP_INT("hold-back", S, d.hold_back, 0, 1000000, 0,
           "Which texts are --part valid; as in training."),
    TP_INT("limit", S, limit, 0, TP_BIG, 0,
           "Score only that many texts, of a folder equally many of each class; 0: all."),
    TP_INT("length", S, length, 0, WHOLE, 0, "Tokens to which texts are cut; 0: the model's."),
    TP_INT("batch", S, batch, 1, 65536, 0, "Batch size, in texts."),
    TP_CHOICE("packed", S, packed, "no|yes", 0,
              "Are texts packed without padding? Scores differ only by rounding."),
    TP_HEADING("RESULTS"),
    TP_INT(
        "groups", S, groups, 1, MOST_GROUPS, 0,
        "Score texts apart by their length before they are cut, in that many groups of equally many "
        "texts."),
    TP_CHOICE("format", S, format, "table|json", 0, "Text for people, or a JSON object."),
    TP_STRING("reliability", S, reliability, "FILE", 0,
              "Draw the reliability diagram, .png or .svg. Needs gnuplot."),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_machine_options),
    { 0 },
};

static const tp_command manual = {
    .name = "imdb eval",
    .summary = "measures accuracy, loss and calibration of a trained classifier",
    .synopsis = "--data FILE [--run-dir DIR | --checkpoint FILE] [flag ...]",
    .about =
        "Runs the model of a checkpoint over labelled texts and prints the mean cross entropy, how often "
        "the right class is predicted, with its standard error, the same by length of the texts, which "
        "classes are taken for which, and how well probabilities agree with accuracy.",
    .table = table,
    .more =
        "FORMAT\n"
        "    json  {\"part\", \"texts\", \"loss\", \"accuracy\" (percent), \"error\" (its standard error),\n"
        "          \"lengths\": [{\"shortest\", \"longest\", \"texts\", \"accuracy\", \"error\", \"loss\"}, ...],\n"
        "          \"classes\": [NAME, ...], \"confusion\": [[N, ...], ...] (true class, predicted class),\n"
        "          \"calibration\": {\"ece\", \"adaptive_ece\", \"nll\", \"brier\", \"temperature\", ...},\n"
        "          \"stopped\" (by a signal), \"seconds\"}\n\n"
        "EXIT STATUS\n"
        "    0 success; 1 an error; 2 a wrong command line\n\n"
        "EXAMPLES\n"
        "    imdb eval --data aclImdb\n"
        "    imdb eval --data aclImdb --run-dir runs/ls --groups 10 --reliability reliability.png\n",
};

typedef struct evaluation {
    const eval_settings *s;
    text_file *f;
    tp_documents *X;
    text_result *result; /* [texts] */
    calibration calibration;
    tp_ticker line;
} evaluation;

static void note(void *env, int64_t text, int32_t label, const float *logits)
{
    evaluation *e = env;
    text_result *r = &e->result[text];
    const int64_t C = e->f->cfg.classes;
    r->right = text_best(logits, C) == label;
    r->loss = text_cross_entropy(logits, C, label);
    r->scored = true;
    calibration_note(&e->calibration, text, label, logits, C);
}

static bool tick(void *env, const text_score *s)
{
    evaluation *e = env;
    if (tp_ticker_due(&e->line))
        tp_ticker_draw(&e->line, s->count, "accuracy %.2f %%  %.0f texts/s", text_score_accuracy(s),
                       (double)s->count / (tp_seconds() - e->line.began));
    return !tp_stop_signal();
}

static bool print(evaluation *e, const text_score *v)
{
    static const char *const parts[] = { "training", "validation", "test" };
    const calibration_result c = calibration_of(&e->calibration);
    length_group group[MOST_GROUPS];
    char why[5000];
    const text_report r = { .v = v,
                            .classes = &e->f->classes,
                            .c = &c,
                            .group = group,
                            .groups = length_groups(e->result, tp_documents_count(e->X),
                                                    (int)e->s->groups, group),
                            .part = parts[e->s->part],
                            .seconds = tp_seconds() - e->line.began,
                            .stopped = tp_stop_signal() != 0 };
    if (e->calibration.no_memory ||
        (!text_report_print(stdout, e->s->format == 1, &r) && !ferror(stdout)))
        return tp_trained_fail(&e->f->t, "out of memory");
    if (!tp_trained_printed(&e->f->t)) return false;
    return !e->s->reliability ||
           calibration_draw(&c, e->f->t.path, "texts", e->s->reliability, why, sizeof why) ||
           tp_trained_fail(&e->f->t, "%s", why);
}

static bool evaluate(evaluation *e)
{
    const eval_settings *s = e->s;
    tp_trained *t = &e->f->t;
    text_score v;
    tp_catch_signals();
    e->line = tp_ticker_start("texts", tp_documents_count(e->X));
    bool done = text_score_run(&v, t->T, &e->f->m, e->X,
                               (text_batching){ .batch = s->batch, .packed = s->packed },
                               (text_watch){ note, tick, e });
    tp_ticker_end(&e->line);
    if (!done)
        tp_trained_fail(t, "%s", v.why);
    else if (!isfinite(v.loss))
        done = tp_trained_fail(
            t, "the loss is %g: the weights in %s are bad, or --dtype is too narrow for them",
            v.loss, t->path);
    else
        done = print(e, &v);
    text_score_free(&v);
    return done;
}

static tp_documents *open_texts(evaluation *e, int64_t length)
{
    const text_view v = { .part = (tp_part)e->s->part,
                          .length = length,
                          .limit = e->s->limit,
                          .classes = &e->f->classes };
    text_data d = e->s->d;
    d.tail = text_file_tail(e->f, length);
    tp_documents *X = texts_open(&d, e->f->vocab, v);
    if (!tp_documents_ok(X)) tp_trained_fail(&e->f->t, "%s", tp_documents_why(X));
    if (length != WHOLE && tp_documents_note(X)[0])
        tp_command_complain(manual.name, tp_documents_note(X));
    return X;
}

/* Says that a published classifier has other names than the texts. */
static void note_other_names(const class_list *model, const class_list *texts, const char *path)
{
    char line[800];
    const int most = model->n < texts->n ? model->n : texts->n;
    int n = snprintf(line, sizeof line,
                     "%.200s names its classes otherwise; in the order of both:", path);
    for (int i = 0; i < most && n < 600; i++)
        n += snprintf(line + n, sizeof line - (size_t)n, "%s %.40s = %.40s", i ? "," : "",
                      texts->name[i], model->name[i]);
    tp_command_complain(manual.name, line);
}

/* A checkpoint knows the classes of its texts. Those of a published file may be called otherwise, or may have no names:
 * then they are those of the texts in the same order, if these are as many. */
static bool open_all_texts(evaluation *e)
{
    text_file *f = e->f;
    const int64_t length = e->s->length ? e->s->length : f->cfg.length;
    e->X = open_texts(e, length);
    const bool named = tp_documents_ok(e->X);
    if (!f->published || (named && f->classes.n > 0)) return named;
    class_list model = f->classes;
    char why[sizeof f->t.why];
    f->classes = (class_list){ 0 };
    if (!named) {
        memcpy(why, f->t.why, sizeof why);
        f->t.why[0] = '\0';
        tp_documents_close(e->X);
        e->X = open_texts(e, length);
    }
    bool done = tp_documents_ok(e->X);
    if (done && !class_list_of(&f->classes, e->X)) done = tp_trained_fail(&f->t, "out of memory");
    if (done && !named && f->classes.n != model.n) done = tp_trained_fail(&f->t, "%s", why);
    if (done && !named) note_other_names(&model, &f->classes, f->t.path);
    class_list_free(&model);
    return done;
}

/* The lengths of the texts before they were cut. */
static bool measure_lengths(evaluation *e)
{
    const int64_t n = tp_documents_count(e->X);
    e->result = calloc((size_t)n + 1, sizeof *e->result);
    if (!e->result) return tp_trained_fail(&e->f->t, "out of memory");
    tp_documents *whole = open_texts(e, WHOLE);
    const bool done = tp_documents_ok(whole) && tp_documents_count(whole) == n;
    for (int64_t i = 0; i < n && done; i++) tp_documents_ids(whole, i, 0, &e->result[i].length);
    tp_documents_close(whole);
    return done || tp_trained_fail(&e->f->t, "%s has changed while it was read", e->s->d.path);
}

static bool measure(evaluation *e)
{
    const eval_settings *s = e->s;
    text_file *f = e->f;
    if (!text_file_open(f, &s->t, s->tokenizer, s->length)) return false;
    if (!open_all_texts(e)) return false;
    if (tp_documents_classes(e->X) > f->cfg.classes)
        return tp_trained_fail(&f->t, "the texts have %d classes, the model in %s has %lld",
                               tp_documents_classes(e->X), f->t.path, (long long)f->cfg.classes);
    return measure_lengths(e) && text_file_load(f, &s->t.machine) && evaluate(e);
}

static bool run(void *settings, char *why, size_t size)
{
    text_file f = { 0 };
    evaluation e = { .s = settings, .f = &f };
    const bool done = measure(&e);
    snprintf(why, size, "%s", f.t.why);
    tp_documents_close(e.X);
    free(e.result);
    calibration_free(&e.calibration);
    text_file_close(&f);
    return done;
}

static bool check(const void *settings, char *why, size_t size)
{
    const eval_settings *s = settings;
    if (s->d.path) return true;
    snprintf(why, size, "--data FILE is required: the texts and their classes");
    return false;
}

int imdb_eval_main(int argc, char **argv)
{
    tp_command command = manual;
    eval_settings s = {
        .t = { .machine = { .device = strdup("cpu") }, .run_dir = strdup("runs/imdb") },
        .part = TP_TEST,
        .batch = 32,
        .packed = 1,
        .groups = 5,
    };
    command.check = check;
    return tp_command_main(&command, argc, argv, &s, run);
}
