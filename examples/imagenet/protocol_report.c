/* protocol_report.c - prints `imagenet eval --protocol`. */
#include <math.h>
#include <string.h>

#include <tapegrad/test_sets.h>

#include "names/class_json.h"
#include "protocol.h"
#include "score.h"

enum { SEVERITIES = PROTOCOL_SEVERITIES };

static double top1_of(const protocol_part *p)
{
    return score_percent(p->top1, p->images);
}

/* ---- ImageNet-C ---- */

/* Error of corruption c at a severity from 0, in percent; NAN: not measured. */
static double error_of(const protocol_result *r, int c, int severity)
{
    return 100 - top1_of(&r->part[SEVERITIES * c + severity]);
}

/* Requires all severities. */
static double mean_error(const protocol_result *r, int c)
{
    double sum = 0;
    for (int s = 0; s < SEVERITIES; s++) sum += error_of(r, c, s);
    return sum / SEVERITIES;
}

static bool measured(const protocol_result *r, int c)
{
    for (int s = 0; s < SEVERITIES; s++)
        if (!isnan(error_of(r, c, s))) return true;
    return false;
}

/* Returns the mCE and sets each CE, in percent, NAN if a folder is missing or the model has other
 * classes; *mean: mean error without AlexNet's. */
static double mce_of(const protocol_result *r, double ce[PROTOCOL_CORRUPTIONS], double *mean)
{
    double error[TP_CORRUPTIONS][TP_SEVERITIES], relative[TP_CORRUPTIONS];
    *mean = 0;
    for (int c = 0; c < PROTOCOL_CORRUPTIONS; c++) ce[c] = NAN;
    for (int c = 0; c < TP_CORRUPTIONS; c++) {
        for (int s = 0; s < SEVERITIES; s++) error[c][s] = error_of(r, c, s) / 100;
        *mean += mean_error(r, c) / TP_CORRUPTIONS;
    }
    const double mce = 100 * tp_corruption_errors((const double(*)[TP_SEVERITIES])error, relative);
    for (int c = 0; c < TP_CORRUPTIONS && r->imagenet; c++) ce[c] = 100 * relative[c];
    return r->imagenet ? mce : NAN;
}

static void put(FILE *out, double x)
{
    if (isnan(x))
        fprintf(out, "%8s", "-");
    else
        fprintf(out, "%8.2f", x);
}

static void say_missing(FILE *out, const protocol_result *r)
{
    int n = 0;
    for (int c = 0; c < TP_CORRUPTIONS; c++)
        for (int s = 0; s < SEVERITIES; s++) {
            if (!isnan(error_of(r, c, s))) continue;
            if (n++ == 0)
                fprintf(out, "no %s: %s/%d is missing", r->imagenet ? "mCE" : "mean error",
                        protocol_corruption(c), s + 1);
        }
    if (n > 1) fprintf(out, ", and %d more", n - 1);
    if (n > 0) fputc('\n', out);
}

static void print_corruptions(FILE *out, const protocol_result *r)
{
    double ce[PROTOCOL_CORRUPTIONS], mean;
    const double mce = mce_of(r, ce, &mean);
    fprintf(out, "%-18s", "top-1 error, %");
    for (int s = 1; s <= SEVERITIES; s++) fprintf(out, "%8d", s);
    fprintf(out, "%8s%s\n", "mean", r->imagenet ? "      CE" : "");
    for (int c = 0; c < PROTOCOL_CORRUPTIONS; c++) {
        if (!measured(r, c)) continue;
        fprintf(out, "%-18s", protocol_corruption(c));
        for (int s = 0; s < SEVERITIES; s++) put(out, error_of(r, c, s));
        put(out, mean_error(r, c));
        if (r->imagenet) put(out, ce[c]);
        fputc('\n', out);
    }
    if (!isnan(mce)) fprintf(out, "mCE %.2f %%, ", mce);
    if (!isnan(mean)) fprintf(out, "mean error %.2f %%\n", mean);
    say_missing(out, r);
    if (!r->imagenet) fputs("no mCE: AlexNet's errors are for ImageNet's 1000 classes\n", out);
}

/* ---- ImageNet-9 ---- */

static double variation(const protocol_result *r, const char *name)
{
    for (int i = 0; i < r->parts; i++)
        if (strcmp(r->part[i].name, name) == 0) return top1_of(&r->part[i]);
    return NAN;
}

static double background_gap(const protocol_result *r)
{
    return variation(r, "mixed_same") - variation(r, "mixed_rand");
}

static void print_variations(FILE *out, const protocol_result *r)
{
    fprintf(out, "%-12s%8s%10s\n", "variation", "images", "top-1, %");
    for (int i = 0; i < r->parts; i++) {
        fprintf(out, "%-12s%8lld  ", r->part[i].name, (long long)r->part[i].images);
        put(out, top1_of(&r->part[i]));
        fputc('\n', out);
    }
    int missing = 0;
    for (int i = 0; i < PROTOCOL_VARIATIONS; i++) {
        const char *name = protocol_variation(i);
        if (isnan(variation(r, name))) fprintf(out, "%s%s", missing++ ? ", " : "missing: ", name);
    }
    if (missing > 0) fputc('\n', out);
    if (isnan(background_gap(r)))
        fputs("no background gap: it needs mixed_same and mixed_rand\n", out);
    else
        fprintf(out, "background gap %.2f points (mixed_same - mixed_rand)\n", background_gap(r));
}

/* ---- all of them ---- */

static void print_text(FILE *out, const protocol_result *r)
{
    const protocol_part *p = &r->part[0];
    int64_t images = 0, skipped = 0;
    for (int i = 0; i < r->parts; i++) {
        images += r->part[i].images + r->part[i].unlabelled;
        skipped += r->part[i].skipped;
    }
    switch (r->which) {
    case PROTOCOL_REAL:
        fprintf(out,
                "ImageNet-ReaL: %lld images, %lld more without a label: top-1 %.2f %%, top-5 %.2f "
                "%%; %.2f %% by the single label of all",
                (long long)p->images, (long long)p->unlabelled, top1_of(p),
                score_percent(p->top5, p->images), score_percent(p->plain, p->of_plain));
        break;
    case PROTOCOL_V2:
        fprintf(out, "ImageNet-V2: %lld images: top-1 %.2f %%, top-5 %.2f %%", (long long)p->images,
                top1_of(p), score_percent(p->top5, p->images));
        break;
    case PROTOCOL_A:
    case PROTOCOL_R:
        fprintf(out, "ImageNet-%c: %lld images: top-1 %.2f %% among %lld classes",
                r->which == PROTOCOL_A ? 'A' : 'R', (long long)p->images, top1_of(p),
                (long long)r->classes);
        break;
    case PROTOCOL_IN9: print_variations(out, r); break;
    default: print_corruptions(out, r);
    }
    fprintf(out,
            r->which == PROTOCOL_IN9 || r->which == PROTOCOL_C ? "%.0f images/s"
                                                               : ", %.0f images/s",
            (double)images / r->seconds);
    if (skipped > 0) fprintf(out, ", %lld could not be read", (long long)skipped);
    fputc('\n', out);
}

/* ---- JSON ---- */

/* Sets a value of an object and releases it. False: out of memory. */
static bool set(json_t *o, const char *key, json_t *value)
{
    return json_object_set_new(o, key, value) == 0;
}

/* A set of one folder. */
static json_t *json_part(const protocol_result *r, const char *name)
{
    const protocol_part *p = &r->part[0];
    json_t *o = json_pack("{s:s,s:I,s:I,s:o}", "protocol", name, "images", (json_int_t)p->images,
                          "skipped", (json_int_t)p->skipped, "top1", number_as_json(top1_of(p)));
    bool done = o != NULL;
    if (r->which == PROTOCOL_REAL)
        done = done && set(o, "unlabelled", json_integer(p->unlabelled)) &&
               set(o, "single_label_top1", number_as_json(score_percent(p->plain, p->of_plain)));
    if (r->which == PROTOCOL_REAL || r->which == PROTOCOL_V2)
        done = done && set(o, "top5", number_as_json(score_percent(p->top5, p->images)));
    else
        done = done && set(o, "classes", json_integer(r->classes));
    if (done) return o;
    json_decref(o);
    return NULL;
}

static json_t *json_variations(const protocol_result *r)
{
    json_t *list = json_array();
    bool done = list != NULL;
    for (int i = 0; i < r->parts && done; i++) {
        const protocol_part *p = &r->part[i];
        done = json_array_append_new(list, json_pack("{s:s,s:I,s:I,s:o}", "name", p->name, "images",
                                                     (json_int_t)p->images, "skipped",
                                                     (json_int_t)p->skipped, "top1",
                                                     number_as_json(top1_of(p)))) == 0;
    }
    if (done)
        return json_pack("{s:s,s:o,s:o}", "protocol", "in9", "variations", list, "background_gap",
                         number_as_json(background_gap(r)));
    json_decref(list);
    return NULL;
}

static json_t *json_corruption(const protocol_result *r, int c, double ce)
{
    json_t *errors = json_array();
    bool done = errors != NULL;
    int64_t skipped = 0;
    for (int s = 0; s < SEVERITIES && done; s++) {
        done = json_array_append_new(errors, number_as_json(error_of(r, c, s))) == 0;
        skipped += r->part[SEVERITIES * c + s].skipped;
    }
    if (done)
        return json_pack("{s:s,s:o,s:o,s:o,s:I}", "name", protocol_corruption(c), "error", errors,
                         "mean", number_as_json(mean_error(r, c)), "ce", number_as_json(ce),
                         "skipped", (json_int_t)skipped);
    json_decref(errors);
    return NULL;
}

static json_t *json_corruptions(const protocol_result *r)
{
    double ce[PROTOCOL_CORRUPTIONS], mean;
    const double mce = mce_of(r, ce, &mean);
    json_t *list = json_array();
    bool done = list != NULL;
    for (int c = 0; c < PROTOCOL_CORRUPTIONS && done; c++)
        if (measured(r, c)) done = json_array_append_new(list, json_corruption(r, c, ce[c])) == 0;
    if (done)
        return json_pack("{s:s,s:o,s:o,s:o}", "protocol", "c", "corruptions", list, "mce",
                         number_as_json(mce), "mean_error", number_as_json(mean));
    json_decref(list);
    return NULL;
}

static json_t *json_of(const protocol_result *r)
{
    switch (r->which) {
    case PROTOCOL_IN9: return json_variations(r);
    case PROTOCOL_C: return json_corruptions(r);
    case PROTOCOL_REAL: return json_part(r, "real");
    case PROTOCOL_V2: return json_part(r, "v2");
    case PROTOCOL_A: return json_part(r, "a");
    default: return json_part(r, "r");
    }
}

bool protocol_print(FILE *out, output_format format, const protocol_result *r)
{
    if (format == FORMAT_JSON) return print_json_line(out, json_of(r));
    print_text(out, r);
    return true;
}
