/* robust_report.c - see the header. */
#include "robust_report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "names/class_json.h"
#include "pictures/picture.h"
#include "reports/plain_text.h"

enum { SEVERITIES = TP_CORRUPT_SEVERITIES };

/* ---- means ---- */

/* Over the cells of one corruption (-1: all) at one severity (0: all). */
static double mean(const robustness *r, int corruption, int severity)
{
    double sum = 0;
    int n = 0;
    if (r->stopped) return NAN;
    for (int c = 0; c < TP_NCORRUPT; c++)
        for (int s = 0; s < SEVERITIES; s++) {
            if (corruption >= 0 && c != corruption) continue;
            if ((severity > 0 && s + 1 != severity) || isnan(r->top1[c][s])) continue;
            sum += r->top1[c][s];
            n++;
        }
    return n ? sum / n : NAN;
}

double robust_mean_of(const robustness *r, int corruption)
{
    return mean(r, corruption, 0);
}

double robust_mean_at(const robustness *r, int severity)
{
    return mean(r, -1, severity);
}

double robust_mean(const robustness *r)
{
    return mean(r, -1, 0);
}

/* Was a corruption measured at any severity? */
static bool measured(const robustness *r, int corruption)
{
    for (int s = 0; s < SEVERITIES; s++)
        if (!isnan(r->top1[corruption][s])) return true;
    return false;
}

/* ---- text ---- */

static void print_number(FILE *out, double x)
{
    if (isnan(x))
        fprintf(out, "%8s", "-");
    else
        fprintf(out, "%8.2f", x);
}

static void print_row(FILE *out, const char *name, const double top1[SEVERITIES], double all)
{
    fprintf(out, "%-16s", name);
    for (int s = 0; s < SEVERITIES; s++) print_number(out, top1[s]);
    print_number(out, all);
    fputc('\n', out);
}

static void print_table(FILE *out, const robustness *r)
{
    char line[1300];
    double at[SEVERITIES];
    fprintf(out, "%s%s: %lld images", r->stopped ? "stopped: " : "",
            plain_line(r->model, line, sizeof line), (long long)r->images);
    if (r->skipped > 0) fprintf(out, ", %lld could not be read", (long long)r->skipped);
    fprintf(out, ", top-1 %.2f %% without corruption\n%-16s", r->clean, "severity");
    for (int s = 1; s <= SEVERITIES; s++) fprintf(out, "%8d", s);
    fprintf(out, "%8s\n", "mean");
    for (int c = 1; c < TP_NCORRUPT; c++)
        if (measured(r, c))
            print_row(out, tp_corrupt_name((tp_corrupt)c), r->top1[c], robust_mean_of(r, c));
    for (int s = 0; s < SEVERITIES; s++) at[s] = robust_mean_at(r, s + 1);
    print_row(out, "mean", at, robust_mean(r));
}

void robust_print_all(FILE *out, const robustness *r, int n)
{
    char line[1300];
    fprintf(out,
            "\n%8s%10s%8s  model (top-1 in %%; kept: the mean corrupted one of the clean one)\n",
            "clean", "corrupted", "kept");
    for (int i = 0; i < n; i++) {
        const double all = robust_mean(&r[i]), kept = r[i].clean > 0 ? 100 * all / r[i].clean : NAN;
        print_number(out, r[i].clean);
        fprintf(out, "  ");
        print_number(out, all);
        print_number(out, kept);
        fprintf(out, "  %s\n", plain_line(r[i].model, line, sizeof line));
    }
}

/* ---- JSON ---- */

static json_t *row_of(const robustness *r, int c)
{
    json_t *list = json_array();
    bool done = list != NULL;
    for (int s = 0; s < SEVERITIES; s++)
        done = done && json_array_append_new(list, number_as_json(r->top1[c][s])) == 0;
    if (done)
        return json_pack("{s:s,s:o,s:o}", "name", tp_corrupt_name((tp_corrupt)c), "top1", list,
                         "mean", number_as_json(robust_mean_of(r, c)));
    json_decref(list);
    return NULL;
}

static bool print_json(FILE *out, const robustness *r)
{
    json_t *rows = json_array();
    bool done = rows != NULL;
    for (int c = 1; c < TP_NCORRUPT && done; c++)
        if (measured(r, c)) done = json_array_append_new(rows, row_of(r, c)) == 0;
    if (done)
        return print_json_line(
            out, json_pack("{s:o,s:I,s:I,s:b,s:o,s:o,s:o}", "model", text_as_json(r->model),
                           "images", (json_int_t)r->images, "skipped", (json_int_t)r->skipped,
                           "stopped", (int)r->stopped, "top1", number_as_json(r->clean),
                           "corruptions", rows, "mean", number_as_json(robust_mean(r))));
    json_decref(rows);
    return false;
}

bool robust_print(FILE *out, output_format format, const robustness *r)
{
    if (format == FORMAT_JSON) return print_json(out, r);
    print_table(out, r);
    return true;
}

/* ---- picture ---- */

enum { ACROSS = 4, PANELS = TP_NCORRUPT, WIDE = 220, HIGH = 160, POINTS = SEVERITIES + 1 };

/* The data that the picture points to. */
typedef struct drawing {
    double x[POINTS];
    double (*y)[PANELS][POINTS]; /* of each model */
    curve *of_panel;             /* [PANELS,models] */
    panel at[PANELS + ACROSS];   /* the last row may be part empty */
    double most;                 /* of all y */
} drawing;

/* Panel 0 shows the mean, panel k the k'th corruption that was measured; severity 0 is the image itself. */
static void fill_panel(drawing *d, const robustness *r, int n, int k, int corruption)
{
    for (int i = 0; i < n; i++) {
        double *y = d->y[i][k];
        y[0] = r[i].clean;
        for (int s = 1; s <= SEVERITIES; s++)
            y[s] = corruption ? r[i].top1[corruption][s - 1] : robust_mean_at(&r[i], s);
        for (int s = 0; s <= SEVERITIES; s++)
            if (y[s] > d->most) d->most = y[s];
        d->of_panel[k * n + i] = (curve){ "", POINTS, d->x, y };
    }
    d->at[k] = (panel){ .kind = PANEL_CURVES,
                        .title = corruption ? tp_corrupt_name((tp_corrupt)corruption)
                                            : "mean of all corruptions",
                        .width = WIDE,
                        .height = HIGH,
                        .curves = { .n = n, .at = d->of_panel + k * n, .whole = true } };
}

static bool allocate(drawing *d, int n)
{
    d->y = calloc((size_t)n, sizeof *d->y);
    d->of_panel = calloc((size_t)(n * PANELS), sizeof *d->of_panel);
    for (int s = 0; s < POINTS; s++) d->x[s] = s;
    return d->y && d->of_panel;
}

bool robust_draw(const robustness *r, int n, const corrupt_list *l, const char *images,
                 const char *path, char *why, size_t size)
{
    drawing d = { .most = 1 };
    char note[900];
    int panels = 1;
    bool done = allocate(&d, n);
    if (!done) snprintf(why, size, "out of memory");
    if (done) fill_panel(&d, r, n, 0, 0);
    for (int c = 1; c < TP_NCORRUPT && done; c++) {
        bool any = false;
        for (int s = 0; s < SEVERITIES; s++) any = any || l->at[c][s];
        if (any) fill_panel(&d, r, n, panels++, c);
    }
    const int across = panels < ACROSS ? panels : ACROSS, down = (panels + across - 1) / across;
    for (int k = 0; k < panels && done; k++) {
        d.at[k].curves.most = d.most;
        if (k % across == 0) d.at[k].up = "top-1, %";
        if (k + across >= panels) d.at[k].across = "severity";
    }
    for (int i = 0; i < n && done; i++) d.of_panel[(across - 1) * n + i].name = r[i].model;
    snprintf(note, sizeof note,
             "%.600s, %lld images. Severity 0: without corruption. The corruptions are those of "
             "tapegrad, not ImageNet-C's.",
             images, (long long)r[0].images);
    const picture p = { "Accuracy under corruption", note, down, across, d.at };
    done = done && picture_draw(NULL, &p, path, why, size);
    free(d.y);
    free(d.of_panel);
    return done;
}
