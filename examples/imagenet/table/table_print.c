/* table_print.c - shows a table of image models as text, Markdown and JSON. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "table/table.h"

/* A number, or a dash for NaN. */
static void print_number(FILE *out, int width, int digits, double x)
{
    if (isnan(x))
        fprintf(out, " %*s", width, "-");
    else
        fprintf(out, " %*.*f", width, digits, x);
}

static void print_row(FILE *out, const training_row *r, double paper, int width)
{
    fprintf(out, "%-*s %8.2f", width, r->name, TRAINING_MEAN(r, test[TEST_TOP1]));
    print_number(out, 6, 2, TRAINING_DEVIATION(r, test[TEST_TOP1]));
    print_number(out, 6, 2, paper);
    fprintf(out, " %8.2f %10.0f %5d %8.0f %9.1f %9.1f\n", TRAINING_MEAN(r, test[TEST_TOP5]),
            TRAINING_MEAN(r, parameters), r->runs, TRAINING_MEAN(r, updates),
            TRAINING_MEAN(r, seconds), TRAINING_MEAN(r, memory) / 1e6);
}

void table_print_text(const image_table *t, FILE *out)
{
    int width = 5;
    for (int i = 0; i < t->rows; i++)
        if ((int)strlen(t->row[i].name) > width) width = (int)strlen(t->row[i].name);
    fprintf(out, "%-*s %8s %6s %6s %8s %10s %5s %8s %9s %9s\n", width, "model", "top-1", "+-",
            "paper", "top-5", "parameters", "seeds", "updates", "seconds", "MB");
    for (int i = 0; i < t->rows; i++)
        if (t->row[i].runs > 0) print_row(out, &t->row[i], t->of[i].paper, width);
}

/* "75.98 +- 0.05" */
static void print_cell(FILE *out, double mean, double deviation)
{
    fprintf(out, " %.2f", mean);
    if (!isnan(deviation)) fprintf(out, " ± %.2f", deviation);
    fputs(" |", out);
}

void table_print_markdown(const image_table *t, FILE *out)
{
    fputs("| model | top-1, % | paper | top-5, % | parameters | seeds | updates | seconds | MB |\n"
          "|---|---|---|---|---|---|---|---|---|\n",
          out);
    for (int i = 0; i < t->rows; i++) {
        const training_row *r = &t->row[i];
        if (r->runs == 0) continue;
        fprintf(out, "| `%s` |", r->name);
        print_cell(out, TRAINING_MEAN(r, test[TEST_TOP1]), TRAINING_DEVIATION(r, test[TEST_TOP1]));
        print_number(out, 1, 2, t->of[i].paper);
        fputs(" |", out);
        print_cell(out, TRAINING_MEAN(r, test[TEST_TOP5]), TRAINING_DEVIATION(r, test[TEST_TOP5]));
        fprintf(out, " %.0f | %d | %.0f | %.1f | %.1f |\n", TRAINING_MEAN(r, parameters), r->runs,
                TRAINING_MEAN(r, updates), TRAINING_MEAN(r, seconds),
                TRAINING_MEAN(r, memory) / 1e6);
    }
}

json_t *table_json(void *table, int row, int run)
{
    const image_table *t = table;
    const training *x = &t->row[row].run[run];
    json_t *paper = isnan(t->of[row].paper) ? json_null() : json_real(t->of[row].paper);
    return json_pack("{s:s,s:s,s:i,s:f,s:f,s:f,s:f,s:f,s:o,s:f,s:f,s:f,s:f,s:f}", "model",
                     t->row[row].name, "preset", t->of[row].preset, "seed", run + 1, "top1",
                     x->test[TEST_TOP1], "top5", x->test[TEST_TOP5], "loss", x->test[TEST_LOSS],
                     "best_valid_top1", x->valid, "last_valid_top1", x->last, "paper_top1", paper,
                     "updates", x->updates, "seconds", x->seconds, "memory", x->memory, "process",
                     x->process, "parameters", x->parameters);
}
