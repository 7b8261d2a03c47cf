/* predictions.c - prints the likeliest classes as a table, JSON or CSV. */
#include "predictions.h"

#include <langinfo.h>
#include <locale.h>
#include <math.h>
#include <string.h>

#include "names/class_json.h"
#include "reports/plain_text.h"
#include "score.h"

bool predictions_of(const float *logits, int64_t classes, int n, prediction *best)
{
    int32_t label[PREDICTIONS_MOST];
    double sum = 0;
    score_top(logits, classes, n, label);
    const double top = (double)logits[label[0]];
    for (int64_t c = 0; c < classes; c++) sum += exp((double)logits[c] - top);
    for (int k = 0; k < n; k++)
        best[k] = (prediction){ label[k], exp((double)logits[label[k]] - top) / sum };
    return isfinite(sum);
}

void predictions_begin(FILE *out, output_format format)
{
    if (format == FORMAT_CSV) fputs("image,rank,class,wnid,name,probability\r\n", out);
}

/* ---- table ---- */

enum { BAR = 20 }; /* columns at probability 1 */

/* Bars use block characters if the locale has them. */
static const char *block(void)
{
    static const char *text;
    if (!text) {
        setlocale(LC_CTYPE, "");
        text = strcmp(nl_langinfo(CODESET), "UTF-8") == 0 ? "\xe2\x96\x88" : "#";
    }
    return text;
}

static void print_table(FILE *out, const class_names *names, const predicted *p)
{
    char line[4 * sizeof(class_words)], where[4200];
    fprintf(out, "%s\n", plain_line(p->path, where, sizeof where));
    for (int k = 0; k < p->n; k++) {
        const class_words w = class_words_at(names, p->best[k].label);
        const int length = (int)lround(BAR * p->best[k].p);
        fprintf(out, "%3d  %6.2f %%  ", k + 1, 100 * p->best[k].p);
        for (int i = 0; i < BAR; i++) fputs(i < length ? block() : " ", out);
        fprintf(out, "  %s", plain_line(w.name, line, sizeof line));
        fprintf(out, w.wnid[0] ? " (%s)\n" : "\n", w.wnid);
    }
}

/* ---- JSON and CSV ---- */

static json_t *rows(const class_names *names, const predicted *p)
{
    json_t *list = json_array();
    for (int k = 0; k < p->n; k++) {
        json_t *row = class_as_json(names, p->best[k].label);
        if (json_object_set_new(row, "probability", json_real(p->best[k].p)) == 0 &&
            json_array_append(list, row) == 0) {
            json_decref(row);
            continue;
        }
        json_decref(row);
        json_decref(list);
        return NULL;
    }
    return list;
}

static json_t *numbers(const float *x, int64_t n)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < n; i++)
        if (json_array_append_new(list, number_as_json((double)x[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static bool print_json(FILE *out, const class_names *names, const predicted *p)
{
    json_t *line =
        json_pack("{s:o,s:o}", "image", text_as_json(p->path), "predictions", rows(names, p));
    if (line && p->logits &&
        json_object_set_new(line, "logits", numbers(p->logits, p->classes)) != 0) {
        json_decref(line);
        return false;
    }
    return print_json_line(out, line);
}

static void print_csv(FILE *out, const class_names *names, const predicted *p)
{
    for (int k = 0; k < p->n; k++) {
        const class_words w = class_words_at(names, p->best[k].label);
        plain_csv(out, p->path);
        fprintf(out, ",%d,%d,%s,", k + 1, (int)p->best[k].label, w.wnid);
        plain_csv(out, w.name);
        fprintf(out, ",%.9g\r\n", p->best[k].p);
    }
}

bool predictions_print(FILE *out, output_format format, const class_names *names,
                       const predicted *p)
{
    switch (format) {
    case FORMAT_TABLE: print_table(out, names, p); break;
    case FORMAT_JSON: return print_json(out, names, p);
    case FORMAT_CSV: print_csv(out, names, p); break;
    }
    return true;
}
