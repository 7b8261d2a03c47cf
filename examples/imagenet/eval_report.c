/* eval_report.c - see the header. Classes are sorted by accuracy, the worst first. */
#include "eval_report.h"

#include <math.h>
#include <stdlib.h>

#include "names/class_json.h"
#include "reports/plain_text.h"

/* A row of the confusion matrix. */
typedef struct class_score {
    int64_t label, images, right;
    int64_t other, mistaken; /* the most frequent wrong prediction, and how often; -1, 0: none */
} class_score;

static class_score score_of(const int64_t *row, int64_t classes, int64_t label)
{
    class_score s = { .label = label, .right = row[label], .other = -1 };
    for (int64_t c = 0; c < classes; c++) {
        s.images += row[c];
        if (c == label || row[c] <= s.mistaken) continue;
        s.mistaken = row[c];
        s.other = c;
    }
    return s;
}

/* By accuracy; then classes with more images come first, then those with lower numbers. */
static int worse(const void *a, const void *b)
{
    const class_score *x = a, *y = b;
    const double p = score_percent(x->right, x->images), q = score_percent(y->right, y->images);
    if (p != q) return p < q ? -1 : 1;
    if (x->images != y->images) return x->images > y->images ? -1 : 1;
    return (x->label > y->label) - (x->label < y->label);
}

/* The classes that have images; the caller frees them. NULL without memory. */
static class_score *by_class(const eval_report *r, int64_t *n)
{
    class_score *all = malloc((size_t)r->classes * sizeof *all);
    *n = 0;
    for (int64_t c = 0; all && c < r->classes; c++) {
        const class_score s = score_of(r->v->confusion + c * r->classes, r->classes, c);
        if (s.images > 0) all[(*n)++] = s;
    }
    if (all) qsort(all, (size_t)*n, sizeof *all, worse);
    return all;
}

/* ---- text ---- */

static const char *shown(const class_names *names, int64_t label, char *buf, size_t size)
{
    char line[1024];
    const class_words w = class_words_at(names, label);
    plain_line(w.name, line, sizeof line);
    snprintf(buf, size, w.wnid[0] ? "%s (%s)" : "%s", line, w.wnid);
    return buf;
}

/* Names that are longer than this do not widen their column. */
enum { WIDEST = 48, NAME = 1100 };

static int name_column(const eval_report *r, const class_score *all, int64_t n)
{
    int widest = 5;
    char name[NAME];
    for (int64_t i = 0; i < n; i++) {
        const int columns = plain_columns(shown(r->names, all[i].label, name, sizeof name));
        if (columns > widest && columns <= WIDEST) widest = columns;
    }
    return widest;
}

static bool print_classes(FILE *out, const eval_report *r)
{
    int64_t n;
    class_score *all = by_class(r, &n);
    if (!all) return false;
    const int widest = name_column(r, all, n);
    fprintf(out, "   top-1    images  %-*s  mistaken for\n", widest, "class");
    for (int64_t i = 0; i < n; i++) {
        const class_score *s = all + i;
        char name[NAME], other[NAME];
        const int pad = widest - plain_columns(shown(r->names, s->label, name, sizeof name));
        fprintf(out, "%6.2f %%  %8lld  %s", score_percent(s->right, s->images),
                (long long)s->images, name);
        if (s->other >= 0)
            fprintf(out, "%*s  %5.2f %% %s", pad > 0 ? pad : 0, "",
                    score_percent(s->mistaken, s->images),
                    shown(r->names, s->other, other, sizeof other));
        fputc('\n', out);
    }
    free(all);
    return true;
}

static void print_calibration(FILE *out, const calibration_result *c)
{
    fprintf(out,
            "calibration: ECE %.2f %%, adaptive %.2f %%, NLL %.4f, Brier score %.4f; mean "
            "probability %.2f %%\n",
            100 * c->ece, 100 * c->adaptive, c->nll, c->brier, 100 * c->confidence);
    if (c->scaled)
        fprintf(out,
                "temperature %.3f fitted to one half of the images; on the other half ECE %.2f %% "
                "instead of %.2f %%, NLL %.4f instead of %.4f\n",
                c->temperature, 100 * c->ece_after, 100 * c->ece_before, c->nll_after,
                c->nll_before);
}

static bool print_text(FILE *out, const eval_report *r)
{
    const score *v = r->v;
    const double n = (double)v->count;
    if (r->corrupt) fprintf(out, "%s %d: ", tp_corrupt_name(r->corrupt), r->severity);
    fprintf(out, "%s%lld images: loss %.4f, top-1 %.2f %%, top-5 %.2f %%, %.0f images/s",
            r->stopped ? "stopped after " : "", (long long)v->count, v->loss / n,
            score_percent(v->top1, v->count), score_percent(v->top5, v->count), n / r->seconds);
    if (v->skipped > 0) fprintf(out, ", %lld could not be read", (long long)v->skipped);
    fputc('\n', out);
    if (r->calibration) print_calibration(out, r->calibration);
    return !r->by_class || print_classes(out, r);
}

/* ---- JSON ---- */

static json_t *json_of(const class_names *names, const class_score *s)
{
    json_t *row = class_as_json(names, s->label);
    bool done =
        json_object_set_new(row, "images", json_integer(s->images)) == 0 &&
        json_object_set_new(row, "top1", json_real(score_percent(s->right, s->images))) == 0;
    if (done && s->other >= 0) {
        json_t *other = class_as_json(names, s->other);
        done = json_object_set_new(other, "images", json_integer(s->mistaken)) == 0;
        done = json_object_set_new(row, "mistaken_for", other) == 0 && done;
    }
    if (done) return row;
    json_decref(row);
    return NULL;
}

static bool add_classes(json_t *line, const eval_report *r)
{
    int64_t n;
    json_t *list = json_array();
    class_score *all = by_class(r, &n);
    bool done = list && all;
    for (int64_t i = 0; done && i < n; i++)
        done = json_array_append_new(list, json_of(r->names, all + i)) == 0;
    free(all);
    return json_object_set_new(line, "classes", list) == 0 && done;
}

/* A list of bins; NULL: out of memory. */
static json_t *json_bins(const calibration_bin bin[CALIBRATION_BINS])
{
    json_t *list = json_array();
    bool done = list != NULL;
    for (int k = 0; k < CALIBRATION_BINS && done; k++) {
        const double n = bin[k].examples > 0 ? (double)bin[k].examples : NAN;
        done = json_array_append_new(
                   list, json_pack("{s:I,s:o,s:o}", "images", (json_int_t)bin[k].examples,
                                   "confidence", number_as_json(100 * bin[k].confidence / n),
                                   "top1", number_as_json(100 * (double)bin[k].right / n))) == 0;
    }
    if (done) return list;
    json_decref(list);
    return NULL;
}

static bool add_calibration(json_t *line, const calibration_result *c)
{
    json_t *o = json_pack("{s:o,s:o,s:o,s:o,s:o,s:o}", "ece", number_as_json(100 * c->ece),
                          "adaptive_ece", number_as_json(100 * c->adaptive), "nll",
                          number_as_json(c->nll), "brier", number_as_json(c->brier), "confidence",
                          number_as_json(100 * c->confidence), "bins", json_bins(c->bin));
    bool done = json_object_set_new(line, "calibration", o) == 0;
    if (done && c->scaled)
        done =
            json_object_set_new(
                o, "scaled",
                json_pack("{s:o,s:o,s:o,s:o,s:o}", "temperature", number_as_json(c->temperature),
                          "ece", number_as_json(100 * c->ece_after), "ece_before",
                          number_as_json(100 * c->ece_before), "nll", number_as_json(c->nll_after),
                          "nll_before", number_as_json(c->nll_before))) == 0;
    return done;
}

static bool print_json(FILE *out, const eval_report *r)
{
    const score *v = r->v;
    json_t *line =
        json_pack("{s:I,s:o,s:o,s:o,s:I,s:b,s:o}", "images", (json_int_t)v->count, "loss",
                  number_as_json(v->loss / (double)v->count), "top1",
                  json_real(score_percent(v->top1, v->count)), "top5",
                  json_real(score_percent(v->top5, v->count)), "skipped", (json_int_t)v->skipped,
                  "stopped", (int)r->stopped, "seconds", json_real(r->seconds));
    bool done = line != NULL;
    if (done && r->corrupt)
        done = json_object_set_new(line, "corruption", json_string(tp_corrupt_name(r->corrupt))) ==
                   0 &&
               json_object_set_new(line, "severity", json_integer(r->severity)) == 0;
    if (done && r->calibration) done = add_calibration(line, r->calibration);
    if (done && r->by_class) done = add_classes(line, r);
    if (done) return print_json_line(out, line);
    json_decref(line);
    return false;
}

bool eval_report_print(FILE *out, output_format format, const eval_report *r)
{
    return format == FORMAT_JSON ? print_json(out, r) : print_text(out, r);
}
