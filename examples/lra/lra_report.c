/* lra_report.c - see the header. */
#include "lra_report.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <tapegrad/file.h>

static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

json_t *lra_report_json(const lra_report *r)
{
    const score *v = r->v;
    return json_pack("{s:s,s:I,s:o,s:o,s:I,s:o,s:b,s:f}", "part", r->part, "examples",
                     (json_int_t)v->count, "loss", number(score_loss(v)), "accuracy",
                     number(score_accuracy(v)), "official_examples", (json_int_t)v->whole_count,
                     "official_accuracy", number(score_official(v)), "stopped", (int)r->stopped,
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
    const score *v = r->v;
    if (json) return print_json(out, r);
    fprintf(out, "%s%lld %s examples: loss %.4f, accuracy %.2f %%",
            r->stopped ? "stopped after " : "", (long long)v->count, r->part, score_loss(v),
            score_accuracy(v));
    if (v->whole_count > 0 && v->whole_count < v->count)
        fprintf(out, "; %.2f %% of the first %lld, in whole batches", score_official(v),
                (long long)v->whole_count);
    return fprintf(out, "; %.0f examples/s\n", (double)v->count / r->seconds) > 0;
}

bool lra_report_write(const lra_report *r, const char *path, char *why, size_t size)
{
    char draft[4500];
    snprintf(draft, sizeof draft, "%s.part", path);
    FILE *f = fopen(draft, "w");
    bool done = f && print_json(f, r) && fflush(f) == 0;
    if (f) done = fclose(f) == 0 && done;
    if (done && rename(draft, path) == 0) return true;
    snprintf(why, size, "%s cannot be written: %s; %s", path, strerror(errno),
             tp_file_advice(errno));
    if (f) remove(draft);
    return false;
}
