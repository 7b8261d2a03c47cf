/* lra_eval.c - `lra eval`: accuracy and loss of a trained encoder on one part of a task, as text,
 * JSON or, after training, a file. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lra.h"
#include "reports/json_lines.h"
#include "reports/models.h"

/* ---- reports ---- */

json_t *lra_report_json(const lra_report *r)
{
    const doc_score *v = r->v;
    return json_pack("{s:s,s:I,s:o,s:o,s:I,s:o,s:b,s:f}", "part", r->part, "examples",
                     (json_int_t)v->count, "loss", number_as_json(doc_score_loss(v)), "accuracy",
                     number_as_json(doc_score_accuracy(v)), "official_examples",
                     (json_int_t)v->whole_count, "official_accuracy",
                     number_as_json(doc_score_official(v)), "stopped", (int)r->stopped, "seconds",
                     r->seconds);
}

static bool print_json(FILE *out, const lra_report *r)
{
    json_t *line = lra_report_json(r);
    const bool done = line && json_dumpf(line, out, JSON_REAL_PRECISION(9)) == 0;
    json_decref(line);
    return done && fputc('\n', out) != EOF;
}

bool lra_report_print(FILE *out, bool json, const lra_report *r)
{
    const doc_score *v = r->v;
    if (json) return print_json(out, r);
    fprintf(out, "%s%lld %s examples: loss %.4f, accuracy %.2f %%",
            r->stopped ? "stopped after " : "", (long long)v->count, r->part, doc_score_loss(v),
            doc_score_accuracy(v));
    if (v->whole_count > 0 && v->whole_count < v->count)
        fprintf(out, "; %.2f %% of the first %lld, in whole batches", doc_score_official(v),
                (long long)v->whole_count);
    return fprintf(out, "; %.0f examples/s\n", (double)v->count / r->seconds) > 0;
}

bool lra_report_write(const lra_report *r, const char *path, char *why, size_t size)
{
    return json_replace(path, lra_report_json(r), JSON_REAL_PRECISION(9) | JSON_INDENT(2), why,
                        size);
}

/* ---- the command ---- */

typedef struct eval_settings {
    tp_trained_settings t;
    task_data d; /* only its path */
    int part, damage, format, packed;
    bool whole;
    int64_t batch, limit;
} eval_settings;

#define S eval_settings

static const tp_option table[] = {
    TP_HEADING("MODEL AND DOCUMENTS"),
    TP_ROWS(tp_trained_options),
    OPTION_DATA(S, d, 0),
    TP_CHOICE("part", S, part, "train|valid|test", 0, "The part of the documents that is scored."),
    TP_INT("limit", S, limit, 0, TP_BIG, 0, "Score only that many examples; 0: all."),
    TP_INT(
        "batch", S, batch, 1, 65536, 0,
        "Batch size, in examples. The official protocol drops a smaller last batch; both figures "
        "are printed where they differ."),
    TP_CHOICE(
        "packed", S, packed, "no|yes|as-trained", 0,
        "Are documents packed without padding, where the attention allows it? Scores differ only "
        "by rounding."),
    TP_CHOICE("damage", S, damage, "none|insert|delete", 0,
              "text, retrieval: insert ten punctuation marks into each document, or delete all of "
              "them, as 'lra perturb' does; not for --part train."),
    TP_FLAG("whole", S, whole, 0, "Insert marks only between characters of UTF-8."),
    TP_CHOICE("format", S, format, "table|json", 0, "Text for people, or a JSON object."),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_machine_options),
    { 0 },
};

static const tp_command manual = {
    .name = "lra eval",
    .summary = "measures accuracy and loss of a trained encoder",
    .synopsis = "[--data PATH] [--run-dir DIR | --checkpoint FILE] [flag ...]",
    .about =
        "Runs the model of a checkpoint over one part of its task and prints the mean cross "
        "entropy and how often the right class is predicted. Documents are read as in training; "
        "those that the program drew for it are drawn again.",
    .table = table,
    .more = "EXIT STATUS\n"
            "    0 success; 1 an error; 2 a wrong command line\n\n"
            "EXAMPLES\n"
            "    lra eval\n"
            "    lra eval --data aclImdb --run-dir runs/text --damage delete\n",
};

static bool tick(void *env, const doc_score *s)
{
    tp_ticker *t = env;
    if (tp_ticker_due(t))
        tp_ticker_draw(t, s->count, "accuracy %.2f %%  %.0f examples/s", doc_score_accuracy(s),
                       (double)s->count / (tp_seconds() - t->began));
    return !tp_stop_signal();
}

static bool evaluate(const eval_settings *s, lra_file *f, const tp_documents *X)
{
    static const char *const parts[] = { "training", "validation", "test" };
    encoder_batching how;
    doc_score v;
    if (!lra_file_batching(f, s->batch, s->packed, &how)) return false;
    tp_catch_signals();
    tp_ticker t = tp_ticker_start("examples", tp_documents_count(X));
    const bool done =
        encoder_score(&v, f->t.T, &f->m, X, how, (doc_watch){ .go_on = tick, .env = &t });
    tp_ticker_end(&t);
    if (!done) return tp_trained_fail(&f->t, "%s", v.why);
    if (!trained_finite(&f->t, v.loss)) return false;
    const lra_report r = { .v = &v,
                           .part = parts[s->part],
                           .seconds = tp_seconds() - t.began,
                           .stopped = tp_stop_signal() != 0 };
    if (!lra_report_print(stdout, s->format == 1, &r) && !ferror(stdout))
        return tp_trained_fail(&f->t, "out of memory");
    return tp_trained_printed(&f->t);
}

static bool measure(const eval_settings *s, lra_file *f)
{
    if (!lra_file_open(f, &s->t, s->d.path)) return false;
    const tp_task *task = task_of(&f->d);
    if (s->damage && strcmp(task->name, "text") != 0 && strcmp(task->name, "retrieval") != 0)
        return tp_trained_fail(&f->t, "--damage is for text and retrieval, not for %s", task->name);
    tp_documents *X = task_open(&f->d, (task_view){ .part = (tp_part)s->part,
                                                    .damage = (tp_damage)s->damage,
                                                    .whole = s->whole,
                                                    .limit = s->limit });
    const bool done = (tp_documents_ok(X) || tp_trained_fail(&f->t, "%s", tp_documents_why(X))) &&
                      lra_file_load(f, &s->t.machine) && evaluate(s, f, X);
    tp_documents_close(X);
    return done;
}

static bool run(void *settings, char *why, size_t size)
{
    lra_file f = { 0 };
    const bool done = measure(settings, &f);
    snprintf(why, size, "%s", f.t.why);
    lra_file_close(&f);
    return done;
}

static bool check(const void *settings, char *why, size_t size)
{
    const eval_settings *s = settings;
    if (s->damage == 0 || s->part != TP_TRAIN) return true;
    snprintf(why, size, "--damage is not for --part train: training documents are never damaged");
    return false;
}

int lra_eval_main(int argc, char **argv)
{
    tp_command command = manual;
    eval_settings s = {
        .t = { .machine = { .device = strdup("cpu") }, .run_dir = strdup("runs/lra") },
        .part = TP_TEST,
        .batch = 32,
        .packed = PACKED_AS_TRAINED,
    };
    command.check = check;
    return tp_command_main(&command, argc, argv, &s, run);
}
