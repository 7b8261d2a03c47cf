/* eval.c - `imdb eval`: accuracy, loss, F1, area under the ROC curve and calibration of a trained
 * classifier on one part of its texts. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "imdb.h"
#include "reports/calibration.h"
#include "reports/json_lines.h"
#include "reports/plain_text.h"

typedef struct eval_settings {
    tp_trained_settings t;
    text_data d;
    char *tokenizer, *reliability;
    int part, format, packed;
    int64_t batch, limit, length, groups;
} eval_settings;

/* v and all after it: set at the end. */
typedef struct evaluation {
    const eval_settings *s;
    text_file *f;
    tp_documents *X;
    text_result *result; /* [texts] */
    int64_t *confusion;  /* [classes,classes]: label, prediction */
    calibration calibration;
    tp_ticker line;

    doc_score v;
    calibration_result c;
    double auc; /* NaN unless there are two classes */
    int groups;
    length_group group[MOST_GROUPS];
    double seconds;
} evaluation;

/* ---- groups of texts by length ---- */

static int by_length(const void *a, const void *b)
{
    const text_result *x = a, *y = b;
    if (x->scored != y->scored) return x->scored ? -1 : 1;
    return (x->length > y->length) - (x->length < y->length);
}

int length_groups(text_result *r, int64_t n, int groups, length_group out[MOST_GROUPS])
{
    int64_t count = 0;
    if (n > 0) qsort(r, (size_t)n, sizeof *r, by_length);
    while (count < n && r[count].scored) count++;
    if (groups > count) groups = (int)count;
    for (int g = 0; g < groups; g++) {
        const int64_t first = g * count / groups, end = (g + 1) * count / groups;
        out[g] = (length_group){ .shortest = r[first].length, .longest = r[end - 1].length };
        for (int64_t i = first; i < end; i++) {
            out[g].count++;
            out[g].right += r[i].right;
            out[g].loss += r[i].loss;
        }
    }
    return groups;
}

static double percent(int64_t part, int64_t of)
{
    return of > 0 ? 100.0 * (double)part / (double)of : (double)NAN;
}

double accuracy_error(int64_t right, int64_t count)
{
    const double p = percent(right, count);
    return sqrt(p * (100 - p) / (double)count);
}

static tp_class_score class_scores(const evaluation *e)
{
    return tp_class_score_mean((int32_t)e->f->cfg.classes, e->confusion, TP_MACRO);
}

/* NaN without memory or with other than two classes. */
static double area_under_curve(const evaluation *e)
{
    const int64_t n = tp_documents_count(e->X);
    double *odds = malloc(((size_t)n + 1) * sizeof *odds), area = (double)NAN;
    bool *positive = malloc((size_t)n + 1);
    int64_t scored = 0;
    for (int64_t i = 0; odds && positive && i < n; i++) {
        if (!e->result[i].scored) continue;
        odds[scored] = e->result[i].odds;
        positive[scored++] = e->result[i].positive;
    }
    if (odds && positive && e->f->cfg.classes == 2) area = tp_auc(scored, odds, positive);
    free(odds);
    free(positive);
    return area;
}

static const char *const parts[] = { "training", "validation", "test" };

/* ---- text ---- */

enum { MOST_SHOWN = 16 }; /* classes of the largest printed matrix */

static void print_groups(FILE *out, const evaluation *e)
{
    fprintf(out, "\n%-16s %8s %18s %8s\n", "tokens", "texts", "accuracy", "loss");
    for (int i = 0; i < e->groups; i++) {
        const length_group *g = &e->group[i];
        char range[48];
        snprintf(range, sizeof range, "%lld-%lld", (long long)g->shortest, (long long)g->longest);
        fprintf(out, "%-16s %8lld %9.2f +- %4.2f %% %8.4f\n", range, (long long)g->count,
                percent(g->right, g->count), accuracy_error(g->right, g->count),
                g->loss / (double)g->count);
    }
}

static void print_confusions(FILE *out, const evaluation *e)
{
    const int64_t C = e->f->cfg.classes;
    char number[32], name[24];
    if (C > MOST_SHOWN) return;
    fprintf(out, "\n%-24s", "true class, predicted:");
    for (int64_t k = 0; k < C; k++)
        fprintf(out, " %10.10s",
                plain_line(class_list_at(&e->f->classes, k, number), name, sizeof name));
    for (int64_t i = 0; i < C; i++) {
        fprintf(out, "\n%-24.24s",
                plain_line(class_list_at(&e->f->classes, i, number), name, sizeof name));
        for (int64_t k = 0; k < C; k++) fprintf(out, " %10lld", (long long)e->confusion[i * C + k]);
    }
    fprintf(out, "\n");
}

static void print_calibration(FILE *out, const calibration_result *c)
{
    fprintf(out, "\ncalibration: ECE %.2f %%, Brier score %.4f, mean probability %.2f %%",
            100 * c->ece, c->brier, 100 * c->confidence);
    if (c->scaled)
        fprintf(out, "; with temperature %.2f ECE %.2f %% in place of %.2f %% on the other half",
                c->temperature, 100 * c->ece_after, 100 * c->ece_before);
    fprintf(out, "\n");
}

static void print_text(FILE *out, const evaluation *e)
{
    const doc_score *v = &e->v;
    fprintf(out, "%s%lld %s texts: loss %.4f, accuracy %.2f +- %.2f %%; %.0f texts/s\n",
            tp_stop_signal() ? "stopped after " : "", (long long)v->count, parts[e->s->part],
            doc_score_loss(v), doc_score_accuracy(v), accuracy_error(v->right, v->count),
            (double)v->count / e->seconds);
    const tp_class_score s = class_scores(e);
    fprintf(out, "means of the classes: precision %.4f, recall %.4f, F1 %.4f", s.precision,
            s.recall, s.f1);
    if (!isnan(e->auc)) fprintf(out, "; area under the ROC curve %.4f", e->auc);
    fprintf(out, "\n");
    if (e->groups > 1) print_groups(out, e);
    print_confusions(out, e);
    if (e->c.examples > 0) print_calibration(out, &e->c);
}

/* ---- JSON ---- */

static json_t *groups_json(const evaluation *e)
{
    json_t *all = json_array();
    for (int i = 0; i < e->groups; i++) {
        const length_group *g = &e->group[i];
        json_array_append_new(
            all, json_pack("{s:I,s:I,s:I,s:o,s:o,s:o}", "shortest", (json_int_t)g->shortest,
                           "longest", (json_int_t)g->longest, "texts", (json_int_t)g->count,
                           "accuracy", number_as_json(percent(g->right, g->count)), "error",
                           number_as_json(accuracy_error(g->right, g->count)), "loss",
                           number_as_json(g->loss / (double)g->count)));
    }
    return all;
}

static json_t *names_json(const evaluation *e)
{
    json_t *all = json_array();
    char number[32];
    for (int64_t i = 0; i < e->f->cfg.classes; i++)
        json_array_append_new(all, text_as_json(class_list_at(&e->f->classes, i, number)));
    return all;
}

static json_t *confusion_json(const evaluation *e)
{
    json_t *rows = json_array();
    for (int64_t i = 0; i < e->f->cfg.classes; i++) {
        json_t *row = json_array();
        for (int64_t k = 0; k < e->f->cfg.classes; k++)
            json_array_append_new(row, json_integer(e->confusion[i * e->f->cfg.classes + k]));
        json_array_append_new(rows, row);
    }
    return rows;
}

static json_t *calibration_json(const calibration_result *c)
{
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "ece", number_as_json(c->ece),
                     "adaptive_ece", number_as_json(c->adaptive), "nll", number_as_json(c->nll),
                     "brier", number_as_json(c->brier), "temperature",
                     number_as_json(c->scaled ? c->temperature : NAN), "ece_before",
                     number_as_json(c->scaled ? c->ece_before : NAN), "ece_after",
                     number_as_json(c->scaled ? c->ece_after : NAN), "nll_after",
                     number_as_json(c->scaled ? c->nll_after : NAN));
}

static json_t *report_json(const evaluation *e)
{
    const doc_score *v = &e->v;
    const tp_class_score s = class_scores(e);
    return json_pack(
        "{s:s,s:I,s:o,s:o,s:o,s:f,s:f,s:f,s:o,s:o,s:o,s:o,s:o,s:b,s:f}", "part", parts[e->s->part],
        "texts", (json_int_t)v->count, "loss", number_as_json(doc_score_loss(v)), "accuracy",
        number_as_json(doc_score_accuracy(v)), "error",
        number_as_json(accuracy_error(v->right, v->count)), "precision", s.precision, "recall",
        s.recall, "f1", s.f1, "auc", number_as_json(e->auc), "lengths", groups_json(e), "classes",
        names_json(e), "confusion", confusion_json(e), "calibration", calibration_json(&e->c),
        "stopped", tp_stop_signal() != 0, "seconds", e->seconds);
}

/* Prints text or a JSON object. False if memory or the stream fails. */
static bool report(FILE *out, bool json, const evaluation *e)
{
    if (json) return print_json_line(out, report_json(e));
    print_text(out, e);
    return !ferror(out);
}

/* ---- the command ---- */

enum { WHOLE = 1 << 20 }; /* tokens of a text measured uncut */

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
    TP_INT("groups", S, groups, 1, MOST_GROUPS, 0,
           "Score texts apart by their length before they are cut, in that many groups of equally "
           "many texts."),
    TP_CHOICE("format", S, format, "table|json", 0, "Text for people, or a JSON object."),
    TP_STRING("reliability", S, reliability, "FILE", 0,
              "Draw the reliability diagram, .png or .svg. Needs gnuplot."),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_machine_options),
    { 0 },
};

static const char manual_more[] =
    "FORMAT\n"
    "    json  {\"part\", \"texts\", \"loss\", \"accuracy\" (percent),\n"
    "          \"error\" (its standard error), \"precision\", \"recall\", \"f1\" (means of\n"
    "          the classes), \"auc\" (of the second of two classes, else null),\n"
    "          \"lengths\": [{\"shortest\", \"longest\", \"texts\", \"accuracy\", \"error\",\n"
    "                      \"loss\"}, ...],\n"
    "          \"classes\": [NAME, ...], \"confusion\": [[N, ...], ...] (true, predicted class),\n"
    "          \"calibration\": {\"ece\", \"adaptive_ece\", \"nll\", \"brier\",\n"
    "                          \"temperature\", ...},\n"
    "          \"stopped\" (by a signal), \"seconds\"}\n\n"
    "EXIT STATUS\n"
    "    0 success; 1 an error; 2 a wrong command line\n\n"
    "EXAMPLES\n"
    "    imdb eval --data aclImdb\n"
    "    imdb eval --data aclImdb --run-dir runs/ls --groups 10 --reliability reliability.png\n";

static const tp_command manual = {
    .name = "imdb eval",
    .summary = "measures accuracy, loss and calibration of a trained classifier",
    .synopsis = "--data FILE [--run-dir DIR | --checkpoint FILE] [flag ...]",
    .about =
        "Runs the model of a checkpoint over labelled texts and prints the mean cross entropy, "
        "how often the right class is predicted, with its standard error, the same by length of "
        "the texts, the means of the classes' precision, recall and F1, of two classes the area "
        "under the ROC curve, which classes are taken for which, and how well probabilities agree "
        "with accuracy.",
    .table = table,
    .more = manual_more,
};

static void note(void *env, int64_t text, int32_t label, const float *logits)
{
    evaluation *e = env;
    text_result *r = &e->result[text];
    const int64_t C = e->f->cfg.classes;
    const int32_t best = (int32_t)doc_best(logits, C);
    tp_confusion_add((int32_t)C, e->confusion, 1, &label, &best);
    r->odds = C == 2 ? (double)logits[1] - (double)logits[0] : 0.0;
    r->positive = label == 1;
    r->right = best == label;
    r->loss = doc_cross_entropy(logits, C, label);
    r->scored = true;
    calibration_note(&e->calibration, text, label, logits, C);
}

static bool tick(void *env, const doc_score *s)
{
    evaluation *e = env;
    if (tp_ticker_due(&e->line))
        tp_ticker_draw(&e->line, s->count, "accuracy %.2f %%  %.0f texts/s", doc_score_accuracy(s),
                       (double)s->count / (tp_seconds() - e->line.began));
    return !tp_stop_signal();
}

static bool print(evaluation *e)
{
    char why[5000];
    e->c = calibration_of(&e->calibration);
    e->auc = area_under_curve(e);
    e->groups = length_groups(e->result, tp_documents_count(e->X), (int)e->s->groups, e->group);
    e->seconds = tp_seconds() - e->line.began;
    if (e->calibration.no_memory || (!report(stdout, e->s->format == 1, e) && !ferror(stdout)))
        return tp_trained_fail(&e->f->t, "out of memory");
    if (!tp_trained_printed(&e->f->t)) return false;
    return !e->s->reliability ||
           calibration_draw(&e->c, e->f->t.path, "texts", e->s->reliability, why, sizeof why) ||
           tp_trained_fail(&e->f->t, "%s", why);
}

static bool evaluate(evaluation *e)
{
    const eval_settings *s = e->s;
    tp_trained *t = &e->f->t;
    tp_catch_signals();
    e->line = tp_ticker_start("texts", tp_documents_count(e->X));
    bool done = text_score(&e->v, t->T, &e->f->m, e->X,
                           (text_batching){ .batch = s->batch, .packed = s->packed },
                           (doc_watch){ note, tick, e });
    tp_ticker_end(&e->line);
    if (!done)
        tp_trained_fail(t, "%s", e->v.why);
    else
        done = trained_finite(t, e->v.loss) && print(e);
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

/* Reports that a published file names its classes differently. */
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

/* A checkpoint stores its classes' names. A published file may have other names or none; the texts'
 * names then replace them in the same order, if their number matches. */
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

/* Measures the texts before they are cut. */
static bool measure_lengths(evaluation *e)
{
    const int64_t n = tp_documents_count(e->X);
    const int64_t classes = e->f->cfg.classes;
    e->result = calloc((size_t)n + 1, sizeof *e->result);
    e->confusion = calloc((size_t)(classes * classes), sizeof *e->confusion);
    if (!e->result || !e->confusion) return tp_trained_fail(&e->f->t, "out of memory");
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
    free(e.confusion);
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
