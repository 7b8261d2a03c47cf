/* lra_perturb.c - `lra perturb`: test accuracy of trained encoders, clean and after inserting or
 * deleting punctuation (Zhu et al. 2021, Table 2). */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lra.h"
#include "reports/json_lines.h"
#include "reports/models.h"
#include "reports/plain_text.h"

enum { DAMAGES = 3 };

typedef struct perturb_settings {
    tp_machine_settings machine;
    tp_words runs;
    task_data d; /* only its path */
    int format;
    bool whole;
    int64_t batch, limit;
} perturb_settings;

#define S perturb_settings

static const tp_option table[] = {
    TP_HEADING("MODELS AND DOCUMENTS"),
    TP_ARGUMENTS(S, runs, "DIR ...", "Folders of runs of text or retrieval; checkpoints too."),
    OPTION_DATA(S, d, 0),
    TP_INT("limit", S, limit, 0, TP_BIG, 0, "Score only that many examples; 0: all."),
    TP_INT("batch", S, batch, 1, 65536, 0, "Batch size, in examples."),
    TP_FLAG("whole", S, whole, 0,
            "Insert marks only between characters of UTF-8, which then stay valid."),
    TP_CHOICE("format", S, format, "table|json", 0,
              "Text for people, or a JSON object for each run."),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_machine_options),
    { 0 },
};

static const tp_command manual = {
    .name = "lra perturb",
    .summary = "measures accuracy on damaged documents",
    .synopsis = "--data PATH DIR ... [flag ...]",
    .about =
        "Runs the best model of each run over the test part three times: as it is, with ten "
        "punctuation marks inserted at ten places of each document, and with all punctuation "
        "deleted. Documents are damaged before they are cut. The places of a document depend on "
        "its number alone, so that all models see the same damage.",
    .table = table,
    .more = "EXIT STATUS\n"
            "    0 success; 1 an error; 2 a wrong command line\n\n"
            "EXAMPLES\n"
            "    lra perturb --data aclImdb runs/linformer runs/dp runs/ls-best\n",
};

/* Table 2 of the paper: clean, insertion, deletion. */
static const struct published {
    const char *attention, *task;
    double accuracy[DAMAGES];
} published[] = {
    { "linformer", "text", { 56.12, 55.94, 54.91 } },
    { "dp", "text", { 66.28, 63.16, 58.95 } },
    { "ls-linformer", "text", { 59.63, 56.69, 56.29 } },
    { "ls-best", "text", { 68.40, 66.34, 62.62 } },
    { "linformer", "retrieval", { 79.37, 53.66, 51.75 } },
    { "dp", "retrieval", { 81.86, 70.01, 64.98 } },
    { "ls-linformer", "retrieval", { 79.68, 52.83, 52.13 } },
    { "ls-best", "retrieval", { 81.95, 69.93, 64.19 } },
};

static const struct published *published_of(const char *attention, const char *task)
{
    for (size_t i = 0; i < sizeof published / sizeof *published; i++)
        if (strcmp(published[i].attention, attention) == 0 && strcmp(published[i].task, task) == 0)
            return &published[i];
    return NULL;
}

/* ---- measuring ---- */

typedef struct progress {
    tp_ticker line;
    int64_t before; /* examples of earlier passes */
} progress;

static bool tick(void *env, const doc_score *s)
{
    progress *p = env;
    if (tp_ticker_due(&p->line))
        tp_ticker_draw(&p->line, p->before + s->count, "accuracy %.2f %%", doc_score_accuracy(s));
    return !tp_stop_signal();
}

static bool measure(const perturb_settings *s, lra_file *f, doc_score v[DAMAGES])
{
    progress p = { 0 };
    encoder_batching how;
    bool done = lra_file_batching(f, s->batch, PACKED_AS_TRAINED, &how);
    for (int k = 0; k < DAMAGES && done && !tp_stop_signal(); k++) {
        tp_documents *X = task_open(&f->d, (task_view){ .part = TP_TEST,
                                                        .damage = (tp_damage)k,
                                                        .whole = s->whole,
                                                        .limit = s->limit });
        const int64_t n = tp_documents_count(X);
        done = tp_documents_ok(X) || tp_trained_fail(&f->t, "%s", tp_documents_why(X));
        if (k == 0) p.line = tp_ticker_start("examples", DAMAGES * n);
        p.before = k * n;
        if (done &&
            !encoder_score(&v[k], f->t.T, &f->m, X, how, (doc_watch){ .go_on = tick, .env = &p }))
            done = tp_trained_fail(&f->t, "%s", v[k].why);
        tp_documents_close(X);
        done = done && trained_finite(&f->t, v[k].loss);
    }
    tp_ticker_end(&p.line);
    return done;
}

/* ---- printing ---- */

static bool print_row(const perturb_settings *s, const lra_file *f, const char *run,
                      const doc_score v[DAMAGES])
{
    const struct published *p = published_of(f->attention, task_of(&f->d)->name);
    if (s->format == 1) {
        json_t *row =
            json_pack("{s:o,s:s,s:s,s:I,s:f,s:f,s:f}", "run", text_as_json(run), "attention",
                      f->attention, "task", task_of(&f->d)->name, "examples",
                      (json_int_t)v[0].count, "clean", doc_score_accuracy(&v[0]), "insert",
                      doc_score_accuracy(&v[1]), "delete", doc_score_accuracy(&v[2]));
        const bool done = row && json_dumpf(row, stdout, JSON_REAL_PRECISION(9)) == 0;
        json_decref(row);
        if (!done) return false;
    } else {
        char line[300];
        printf("%-24s %-14s", plain_line(run, line, sizeof line), f->attention);
        for (int k = 0; k < DAMAGES; k++) printf(" %8.2f", doc_score_accuracy(&v[k]));
        if (p) printf("   %6.2f %6.2f %6.2f", p->accuracy[0], p->accuracy[1], p->accuracy[2]);
    }
    putchar('\n');
    return fflush(stdout) == 0;
}

static void print_head(const perturb_settings *s)
{
    if (s->format == 0)
        printf("%-24s %-14s %8s %8s %8s   %s\n", "run", "attention", "clean", "insert", "delete",
               "paper");
}

/* A run's folder or a checkpoint. */
static bool open_run(const perturb_settings *s, lra_file *f, char *run)
{
    const size_t n = strlen(run);
    const bool file = n > 12 && strcmp(run + n - 12, ".safetensors") == 0;
    const tp_trained_settings at = { .machine = s->machine,
                                     .run_dir = run,
                                     .checkpoint = file ? run : NULL };
    if (!lra_file_open(f, &at, s->d.path)) return false;
    const char *task = task_of(&f->d)->name;
    return strcmp(task, "text") == 0 || strcmp(task, "retrieval") == 0 ||
           tp_trained_fail(&f->t, "%s is of the task %s: only text and retrieval have punctuation",
                           f->t.path, task);
}

static bool one_run(const perturb_settings *s, char *run, bool first, char *why, size_t size)
{
    lra_file f = { 0 };
    doc_score v[DAMAGES] = { { 0 } };
    bool done = open_run(s, &f, run) && lra_file_load(&f, &s->machine) && measure(s, &f, v);
    if (done && !tp_stop_signal()) {
        if (first) print_head(s);
        done = print_row(s, &f, run, v) ||
               tp_trained_fail(&f.t, "standard output: %s", strerror(errno));
    }
    snprintf(why, size, "%s", f.t.why);
    lra_file_close(&f);
    return done;
}

static bool run_all(void *settings, char *why, size_t size)
{
    const perturb_settings *s = settings;
    bool done = true;
    tp_catch_signals();
    for (int i = 0; i < s->runs.n && done && !tp_stop_signal(); i++)
        done = one_run(s, s->runs.at[i], i == 0, why, size);
    return done;
}

static bool check(const void *settings, char *why, size_t size)
{
    const perturb_settings *s = settings;
    if (s->runs.n == 0)
        snprintf(why, size, "name the folders of the runs to measure");
    else if (!s->d.path)
        snprintf(why, size, "--data PATH is required: the reviews or pairs of the test part");
    else
        return true;
    return false;
}

int lra_perturb_main(int argc, char **argv)
{
    tp_command command = manual;
    perturb_settings s = { .machine = { .device = strdup("cpu") }, .batch = 32 };
    command.check = check;
    return tp_command_main(&command, argc, argv, &s, run_all);
}
