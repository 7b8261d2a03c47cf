/* table_results.c - shows the table of attentions as text and JSON, beside the paper's figures. */
#include <jansson.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <tapegrad/train.h>

#include "lra_table.h"

/* Tables 1 and 9 of the paper: accuracy and GFLOPs for listops, text and retrieval. */
static const struct published {
    const char *attention;
    double accuracy[3], gflops[3];
} published[] = {
    { "softmax", { 37.1, 65.4, 82.3 }, { 1.21, 4.57, 9.14 } },
    { "reformer", { 36.4, 64.9, 78.6 }, { 0.27, 0.58, 1.15 } },
    { "linformer", { 37.4, 56.1, 79.4 }, { 0.41, 0.81, 1.62 } },
    { "performer", { 32.8, 65.2, 81.7 }, { 0.41, 0.82, 1.63 } },
    { "nystrom", { 37.3, 65.8, 81.3 }, { 0.61, 1.02, 2.03 } },
    { "ls", { 37.5, 66.0, 81.8 }, { 0.20, 0.40, 0.80 } },
    { "dp", { 37.8, 66.3, 81.9 }, { 0.15, 0.69, 2.17 } },
    { "ls-best", { 38.4, 68.4, 82.0 }, { 0.16, 0.29, 2.17 } },
};

static const struct published *published_of(const char *attention)
{
    for (size_t i = 0; i < sizeof published / sizeof *published; i++)
        if (strcmp(published[i].attention, attention) == 0) return &published[i];
    return NULL;
}

/* A task's column; -1: none published. */
static int column_of(const char *task)
{
    for (int i = 0; i < 3; i++)
        if (strcmp(tp_task_at(i)->name, task) == 0) return i;
    return -1;
}

/* ---- text ---- */

/* A published number, or a dash. */
static void print_published(FILE *out, const double *x, int width, int digits)
{
    if (x)
        fprintf(out, " %*.*f", width, digits, *x);
    else
        fprintf(out, " %*s", width, "-");
}

static void print_row(FILE *out, const training_row *r, int column)
{
    const struct published *p = column < 0 ? NULL : published_of(r->name);
    fprintf(out, "%-13s %8.2f", r->name, TRAINING_MEAN(r, test[TEST_ACCURACY]));
    if (r->runs > 1)
        fprintf(out, " %6.2f", TRAINING_DEVIATION(r, test[TEST_ACCURACY]));
    else
        fprintf(out, " %6s", "-");
    print_published(out, p ? &p->accuracy[column] : NULL, 6, 1);
    fprintf(out, " %8.4f", TRAINING_MEAN(r, gflops));
    print_published(out, p ? &p->gflops[column] : NULL, 6, 2);
    fprintf(out, " %10.0f %5d %8.0f %9.1f %9.1f\n", TRAINING_MEAN(r, parameters), r->runs,
            TRAINING_MEAN(r, updates), TRAINING_MEAN(r, seconds), TRAINING_MEAN(r, memory) / 1e6);
}

void table_print(const lra_table *t, FILE *out)
{
    const int column = column_of(t->task);
    fprintf(out, "%-13s %8s %6s %6s %8s %6s %10s %5s %8s %9s %9s\n", t->task, "accuracy", "+-",
            "paper", "GFLOP", "paper", "parameters", "seeds", "updates", "seconds", "MB");
    for (int i = 0; i < t->rows; i++)
        if (t->row[i].runs > 0) print_row(out, &t->row[i], column);
}

/* ---- JSON ---- */

json_t *table_json(void *table, int row, int run)
{
    const lra_table *t = table;
    const training *x = &t->row[row].run[run];
    return json_pack("{s:s,s:s,s:i,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f}", "task", t->task,
                     "attention", t->row[row].name, "seed", run + 1, "accuracy",
                     x->test[TEST_ACCURACY], "official_accuracy", x->test[TEST_OFFICIAL],
                     "valid_accuracy", x->valid, "updates", x->updates, "seconds", x->seconds,
                     "memory", x->memory, "process", x->process, "parameters", x->parameters,
                     "gflops", x->gflops);
}
