/* text_report.c - see the header. */
#include "text_report.h"

#include <math.h>
#include <stdlib.h>

#include "reports/json_lines.h"
#include "reports/plain_text.h"

enum { MOST_SHOWN = 16 }; /* classes of a matrix that is printed for people */

/* ---- groups ---- */

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

/* ---- text ---- */

static void print_groups(FILE *out, const text_report *r)
{
    fprintf(out, "\n%-16s %8s %18s %8s\n", "tokens", "texts", "accuracy", "loss");
    for (int i = 0; i < r->groups; i++) {
        const length_group *g = &r->group[i];
        char range[48];
        snprintf(range, sizeof range, "%lld-%lld", (long long)g->shortest, (long long)g->longest);
        fprintf(out, "%-16s %8lld %9.2f +- %4.2f %% %8.4f\n", range, (long long)g->count,
                percent(g->right, g->count), accuracy_error(g->right, g->count),
                g->loss / (double)g->count);
    }
}

static void print_confusions(FILE *out, const text_report *r)
{
    const int64_t C = r->v->classes;
    char number[32], name[24];
    if (C > MOST_SHOWN) return;
    fprintf(out, "\n%-24s", "true class, predicted:");
    for (int64_t k = 0; k < C; k++)
        fprintf(out, " %10.10s",
                plain_line(class_list_at(r->classes, k, number), name, sizeof name));
    for (int64_t i = 0; i < C; i++) {
        fprintf(out, "\n%-24.24s",
                plain_line(class_list_at(r->classes, i, number), name, sizeof name));
        for (int64_t k = 0; k < C; k++)
            fprintf(out, " %10lld", (long long)r->v->confusion[i * C + k]);
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

static void print_text(FILE *out, const text_report *r)
{
    const text_score *v = r->v;
    fprintf(out, "%s%lld %s texts: loss %.4f, accuracy %.2f +- %.2f %%; %.0f texts/s\n",
            r->stopped ? "stopped after " : "", (long long)v->count, r->part, text_score_loss(v),
            text_score_accuracy(v), accuracy_error(v->right, v->count),
            (double)v->count / r->seconds);
    if (r->groups > 1) print_groups(out, r);
    print_confusions(out, r);
    if (r->c->examples > 0) print_calibration(out, r->c);
}

/* ---- JSON ---- */

static json_t *groups_json(const text_report *r)
{
    json_t *all = json_array();
    for (int i = 0; i < r->groups; i++) {
        const length_group *g = &r->group[i];
        json_array_append_new(
            all, json_pack("{s:I,s:I,s:I,s:o,s:o,s:o}", "shortest", (json_int_t)g->shortest,
                           "longest", (json_int_t)g->longest, "texts", (json_int_t)g->count,
                           "accuracy", number_as_json(percent(g->right, g->count)), "error",
                           number_as_json(accuracy_error(g->right, g->count)), "loss",
                           number_as_json(g->loss / (double)g->count)));
    }
    return all;
}

static json_t *names_json(const text_report *r)
{
    json_t *all = json_array();
    char number[32];
    for (int64_t i = 0; i < r->v->classes; i++)
        json_array_append_new(all, text_as_json(class_list_at(r->classes, i, number)));
    return all;
}

static json_t *confusion_json(const text_score *v)
{
    json_t *rows = json_array();
    for (int64_t i = 0; i < v->classes; i++) {
        json_t *row = json_array();
        for (int64_t k = 0; k < v->classes; k++)
            json_array_append_new(row, json_integer(v->confusion[i * v->classes + k]));
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

static json_t *report_json(const text_report *r)
{
    const text_score *v = r->v;
    return json_pack("{s:s,s:I,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:b,s:f}", "part", r->part, "texts",
                     (json_int_t)v->count, "loss", number_as_json(text_score_loss(v)), "accuracy",
                     number_as_json(text_score_accuracy(v)), "error",
                     number_as_json(accuracy_error(v->right, v->count)), "lengths", groups_json(r),
                     "classes", names_json(r), "confusion", confusion_json(v), "calibration",
                     calibration_json(r->c), "stopped", (int)r->stopped, "seconds", r->seconds);
}

bool text_report_print(FILE *out, bool json, const text_report *r)
{
    if (json) return print_json_line(out, report_json(r));
    print_text(out, r);
    return !ferror(out);
}
