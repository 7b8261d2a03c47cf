/* lra_report.c - see the header. */
#include "lra_report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/file.h>

static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

json_t *lra_report_json(const lra_report *r)
{
    const doc_score *v = r->v;
    return json_pack("{s:s,s:I,s:o,s:o,s:I,s:o,s:b,s:f}", "part", r->part, "examples",
                     (json_int_t)v->count, "loss", number(doc_score_loss(v)), "accuracy",
                     number(doc_score_accuracy(v)), "official_examples", (json_int_t)v->whole_count,
                     "official_accuracy", number(doc_score_official(v)), "stopped", (int)r->stopped,
                     "seconds", r->seconds);
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
    json_t *all = lra_report_json(r);
    char *text = all ? json_dumps(all, JSON_REAL_PRECISION(9) | JSON_INDENT(2)) : NULL;
    json_decref(all);
    if (!text) snprintf(why, size, "out of memory");
    const bool done = text && tp_file_replace(path, text, strlen(text), why, size);
    free(text);
    return done;
}
