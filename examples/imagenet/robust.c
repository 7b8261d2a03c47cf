/* robust.c - `imagenet robust`: top-1 by corruption and severity, as tables, JSON and a picture. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "corrupt_list.h"
#include "image_commands.h"
#include "image_file.h"
#include "names/class_json.h"
#include "pictures/annotate.h"
#include "pictures/picture.h"
#include "predictions.h"
#include "reports/plain_text.h"
#include "score.h"

/* ---- the results ---- */

/* A model's results, in percent; NAN: not measured. */
typedef struct robustness {
    char model[600];
    int64_t images, skipped;
    bool stopped; /* by a signal, before everything was measured */
    double clean, top1[TP_NCORRUPT][TP_CORRUPT_SEVERITIES];
} robustness;

enum { SEVERITIES = TP_CORRUPT_SEVERITIES };

/* ---- means ---- */

/* Over one corruption's cells (-1: all) at one severity (0: all). */
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

/* Means over measured cells: of a corruption, of a severity (from 1), of all; NAN: none, or
 * stopped. */
static double robust_mean_of(const robustness *r, int corruption)
{
    return mean(r, corruption, 0);
}

static double robust_mean_at(const robustness *r, int severity)
{
    return mean(r, -1, severity);
}

static double robust_mean(const robustness *r)
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

static void robust_print_all(FILE *out, const robustness *r, int n)
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

/* Prints one model as a table or a line of JSON. False: out of memory. */
static bool robust_print(FILE *out, output_format format, const robustness *r)
{
    if (format == FORMAT_JSON) return print_json(out, r);
    print_table(out, r);
    return true;
}

/* ---- picture ---- */

enum { ACROSS = 4, PANELS = TP_NCORRUPT, WIDE = 220, HIGH = 160, POINTS = SEVERITIES + 1 };

/* The picture's data. */
typedef struct drawing {
    double x[POINTS];
    double (*y)[PANELS][POINTS]; /* by model */
    curve *of_panel;             /* [PANELS,models] */
    panel at[PANELS + ACROSS];   /* the last row may have gaps */
    double most;                 /* of all y */
} drawing;

/* Panel 0 shows the mean, panel k the k'th measured corruption; severity 0 is the clean image. */
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

/* Draws n models: the mean over corruptions and each corruption, by severity. images: their
 * description. False with the reason in why. */
static bool robust_draw(const robustness *r, int n, const corrupt_list *l, const char *images,
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

/* ---- the command ---- */

typedef struct robust_options {
    image_common c;
    tp_words runs;
    char *corrupt, *picture;
    int layout, split, format;
    int64_t size, shapes, images, workers;
    double crop_ratio;
    bool strict;
} robust_options;

#define S robust_options

static const tp_option table[] = {
    TP_HEADING("MODELS AND IMAGES"),
    TP_ARGUMENTS(S, runs, "RUN ...", "Folders of runs; if not given: runs/imagenet."),
    TP_ROWS(tp_trained_options),
    OPTION_WEIGHTS(S),
    OPTION_PRESET(S),
    OPTIONS_SCORED(S),
    TP_INT("images", S, images, 0, TP_BIG, 0,
           "Score only N images, evenly spread over the set; 0: all."),
    OPTIONS_SCORING(S),
    TP_HEADING("CORRUPTION AND REPORT"),
    TP_STRING_OF("corrupt", S, corrupt, "LIST", corrupt_list_word, 0,
                 "all, or corruptions and severities separated by commas: jpeg,gaussian-blur:3."),
    TP_INT("seed", S, c.seed, 0, TP_BIG, 0, "Seed of the random corruptions."),
    TP_CHOICE("format", S, format, "table|json", 0,
              "Text for people, or a JSON object per line and model."),
    TP_STRING(
        "picture", S, picture, "FILE", 0,
        "Draw the accuracy of all models by severity as FILE.png or FILE.svg. Needs gnuplot."),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_machine_options),
    TP_INT("workers", S, workers, 1, 256, 0, "Threads that decode and corrupt images."),
    { 0 },
};

static const char manual_more[] =
    "CORRUPTIONS, at severities 1 to 5 (lengths: fractions of the side)\n"
    "    gaussian-noise  Gaussian noise, standard deviation 0.05 to 0.3 of the range of values\n"
    "    shot-noise      80 to 5 photons in a white value\n"
    "    impulse-noise   2 to 27 % of the values black or white\n"
    "    gaussian-blur   standard deviation 0.006 to 0.034\n"
    "    defocus-blur    disk of radius 0.01 to 0.05\n"
    "    motion-blur     line of length 0.03 to 0.17 in a random direction\n"
    "    pixelate        cells with sides of 2 to 8 pixels\n"
    "    jpeg            quality 30 to 5\n"
    "    contrast        0.6 to 0.12 of the contrast\n"
    "    brightness      0.1 to 0.5 of the range of values added\n"
    "    darkness        values times 0.7 to 0.16\n"
    "    saturation      saturation times 1.6 to 8\n"
    "    grey            saturation times 0.7 to 0\n\n"
    "EXIT STATUS\n"
    "    0 success; 1 an error, such as an unknown preset; 2 a wrong command line\n\n"
    "EXAMPLES\n"
    "    imagenet robust runs/cvt-ls runs/cvt --data imagenette2 --picture robust.svg\n"
    "    imagenet robust runs/cvt --data imagenette2 --corrupt jpeg,contrast:5 --images 500\n";

static const tp_command manual = {
    .name = "imagenet robust",
    .summary = "measures trained models on corrupted images",
    .synopsis = "[RUN ...] [--data DIR] [--corrupt LIST] [--picture FILE] [flag ...]\n"
                "    imagenet robust --data DIR --preset NAME --weights FILE [flag ...]",
    .about =
        "Corrupts the images after resizing and cropping, as the model sees them, and prints "
        "top-1 for each corruption and severity, the means, and the share of the clean accuracy "
        "that is kept. Several models are compared. The program computes the corruptions itself; "
        "they are not those of ImageNet-C, so the numbers cannot be compared with its mCE. Equal "
        "seeds give equal images for any number of threads.",
    .table = table,
    .more = manual_more,
};

enum { MODELS = 9 };

/* The command's state; it evaluates models in turn. */
typedef struct robust {
    const robust_options *s;
    corrupt_list cells;
    robustness r[MODELS];
    int n;
    image_file f; /* the open model ... */
    class_names names;
    eval_set set; /* ... its images ... */
    tp_ticker line;
    int64_t before; /* ... images of the finished cells */
    char cell[64];
} robust;

static void bad_image(void *env, const char *name, const char *why)
{
    const robust *t = env;
    if (t->before == 0) eval_skipped(manual.name, name, why); /* once, not per corruption */
}

static bool tick(void *env, const score *v)
{
    robust *t = env;
    if (tp_ticker_due(&t->line))
        tp_ticker_draw(&t->line, t->before + v->count, "%s  top-1 %.2f %%", t->cell,
                       100.0 * (double)v->top1 / (double)v->count);
    return !tp_stop_signal();
}

/* Top-1 in percent under a corruption; NAN: stopped by a signal. False with the reason in
 * f.t.why. */
static bool measure(robust *t, tp_corrupt c, int severity, double *top1)
{
    const robust_options *s = t->s;
    robustness *r = &t->r[t->n];
    tp_augment a = image_file_pipeline(&t->f, s->crop_ratio);
    score v;
    a.corrupt = c;
    a.severity = severity;
    snprintf(t->cell, sizeof t->cell, severity ? "%s %d" : "clean", tp_corrupt_name(c), severity);
    const bool done = eval_score(&v, &t->f, t->set.X,
                                 &(score_opts){ .augment = &a,
                                                .batch = s->c.batch,
                                                .workers = (int)s->workers,
                                                .seed = (uint64_t)s->c.seed,
                                                .strict = s->strict,
                                                .bad = bad_image,
                                                .go_on = tick,
                                                .label_of = t->set.label,
                                                .env = t });
    r->stopped = tp_stop_signal() != 0;
    *top1 = r->stopped ? NAN : score_percent(v.top1, v.count);
    if (c == TP_CORRUPT_NONE) {
        r->images = v.count;
        r->skipped = v.skipped;
    }
    t->before += tp_image_set_count(t->set.X);
    score_free(&v);
    return done;
}

static bool measure_all(robust *t)
{
    robustness *r = &t->r[t->n];
    const int64_t images = tp_image_set_count(t->set.X);
    t->before = 0;
    t->line = tp_ticker_start("images", images * (1 + t->cells.cells));
    bool done = measure(t, TP_CORRUPT_NONE, 0, &r->clean);
    for (int c = 0; c < TP_NCORRUPT; c++)
        for (int s = 0; s < TP_CORRUPT_SEVERITIES; s++) {
            r->top1[c][s] = NAN;
            if (!t->cells.at[c][s] || !done || r->stopped) continue;
            done = measure(t, (tp_corrupt)c, s + 1, &r->top1[c][s]);
        }
    tp_ticker_end(&t->line);
    return done;
}

static bool open_model(robust *t, const char *run)
{
    const robust_options *s = t->s;
    image_common c = s->c;
    const eval_source from = { .command = manual.name,
                               .data = s->c.data,
                               .layout = (tp_layout)s->layout,
                               .part = (tp_part)s->split,
                               .shapes = s->shapes,
                               .most = s->images };
    if (run) {
        c.t.run_dir = (char *)(uintptr_t)run;
        c.t.checkpoint = NULL;
        if (c.weights) c.weights = c.preset = NULL; /* a preset without weights fails below */
    }
    if (!image_file_named(&t->f, &c, s->size, NULL, &t->names)) return false;
    title_model(&t->f, run ? NULL : s->c.preset, t->r[t->n].model, sizeof t->r[t->n].model);
    return eval_set_open(&t->set, &from, &t->f, &t->names);
}

/* run: a folder; NULL: the model of --run-dir, --checkpoint or --weights. */
static bool model(robust *t, const char *run, char *why, size_t size)
{
    const robust_options *s = t->s;
    bool done = open_model(t, run) && measure_all(t);
    if (done && !isnan(t->r[t->n].clean)) {
        if (!robust_print(stdout, (output_format)s->format, &t->r[t->n]) && !ferror(stdout))
            done = tp_trained_fail(&t->f.t, "out of memory");
        done = tp_trained_printed(&t->f.t) && done;
        t->n++;
    }
    snprintf(why, size, "%s", t->f.t.why);
    eval_set_close(&t->set);
    class_names_free(&t->names);
    image_file_close(&t->f);
    return done;
}

static bool compare(robust *t, char *why, size_t size)
{
    const robust_options *s = t->s;
    char images[400];
    if (t->n > 1 && s->format == FORMAT_TABLE) robust_print_all(stdout, t->r, t->n);
    title_images(s->c.data, (tp_part)s->split, images, sizeof images);
    const int whole = t->n > 0 && t->r[t->n - 1].stopped ? t->n - 1 : t->n; /* not if stopped */
    return !s->picture || whole == 0 ||
           robust_draw(t->r, whole, &t->cells, images, s->picture, why, size);
}

static bool run(void *settings, char *why, size_t size)
{
    robust_options *s = settings;
    robust t = { .s = s };
    const bool own = s->c.t.run_dir || s->c.t.checkpoint || s->c.weights;
    if (!corrupt_list_read(&t.cells, s->corrupt, why, size)) return false;
    if (s->runs.n + own > MODELS) {
        snprintf(why, size, "at most %d models can be compared", MODELS);
        return false;
    }
    tp_catch_signals();
    bool done = true;
    if (own) done = model(&t, NULL, why, size);
    for (int i = 0; i < s->runs.n && done && !tp_stop_signal(); i++)
        done = model(&t, s->runs.at[i], why, size);
    if (!own && s->runs.n == 0) done = model(&t, "runs/imagenet", why, size);
    return done && compare(&t, why, size);
}

int robust_main(int argc, char **argv)
{
    robust_options s = {
        .c = { .t = { .machine = { .device = strdup("cpu") } }, .batch = 64 },
        .corrupt = strdup("all"),
        .split = TP_VALID,
        .shapes = 500,
        .workers = 2,
    };
    return tp_command_main(&manual, argc, argv, &s, run);
}
