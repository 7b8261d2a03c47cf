/* image_eval.c - `imagenet eval`: loss and accuracy of a trained model, also by class. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "corrupt_list.h"
#include "image_commands.h"
#include "image_settings.h"
#include "names/class_json.h"
#include "names/class_names.h"
#include "pictures/annotate.h"
#include "pictures/confusion.h"
#include "predictions.h"
#include "protocol.h"
#include "reports/calibration.h"
#include "reports/plain_text.h"
#include "score.h"

/* ---- the report ---- */

typedef struct eval_report {
    const score *v;
    const class_names *names;
    int64_t classes;
    double seconds;
    tp_corrupt corrupt; /* the images' corruption */
    int severity;
    const calibration_result *calibration; /* NULL: not asked for */
    bool by_class, stopped;                /* stopped: by a signal, before the last image */
} eval_report;

/* A row of the confusion matrix. */
typedef struct class_score {
    int64_t label, images, right;
    int64_t other, mistaken; /* most frequent wrong prediction and its count; -1, 0: none */
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

/* Orders by accuracy; ties: more images first, then lower numbers. */
static int worse(const void *a, const void *b)
{
    const class_score *x = a, *y = b;
    const double p = score_percent(x->right, x->images), q = score_percent(y->right, y->images);
    if (p != q) return p < q ? -1 : 1;
    if (x->images != y->images) return x->images > y->images ? -1 : 1;
    return (x->label > y->label) - (x->label < y->label);
}

/* The classes with images; the caller frees them. NULL: out of memory. */
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

static const char *class_shown(const class_names *names, int64_t label, char *buf, size_t size)
{
    char line[1024];
    const class_words w = class_words_at(names, label);
    plain_line(w.name, line, sizeof line);
    snprintf(buf, size, w.wnid[0] ? "%s (%s)" : "%s", line, w.wnid);
    return buf;
}

/* Longer names do not widen their column. */
enum { WIDEST = 48, NAME = 1100 };

static int name_column(const eval_report *r, const class_score *all, int64_t n)
{
    int widest = 5;
    char name[NAME];
    for (int64_t i = 0; i < n; i++) {
        const int columns = plain_columns(class_shown(r->names, all[i].label, name, sizeof name));
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
        const int pad = widest - plain_columns(class_shown(r->names, s->label, name, sizeof name));
        fprintf(out, "%6.2f %%  %8lld  %s", score_percent(s->right, s->images),
                (long long)s->images, name);
        if (s->other >= 0)
            fprintf(out, "%*s  %5.2f %% %s", pad > 0 ? pad : 0, "",
                    score_percent(s->mistaken, s->images),
                    class_shown(r->names, s->other, other, sizeof other));
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

/* Prints text or a line of JSON. False: out of memory. */
static bool eval_report_print(FILE *out, output_format format, const eval_report *r)
{
    return format == FORMAT_JSON ? print_json(out, r) : print_text(out, r);
}

/* ---- the command ---- */

typedef struct eval_options {
    image_common c;
    char *confusion, *names, *errors, *corrupt, *labels, *reliability;
    int layout, split, format, protocol;
    int64_t size, shapes, workers, worst;
    double crop_ratio;
    bool strict, by_class, calibration, squeeze;
    tp_corrupt kind; /* parsed --corrupt */
    int severity;
} eval_options;

#define S eval_options

static const tp_option table[] = {
    TP_HEADING("MODEL AND IMAGES"),
    TP_ROWS(tp_trained_options),
    OPTION_WEIGHTS(S),
    OPTION_PRESET(S),
    OPTIONS_SCORED(S),
    OPTIONS_SCORING(S),
    TP_FLAG("squeeze", S, squeeze, 0,
            "Resize whole images to the model's size without keeping their shape or cropping, as "
            "the official code evaluates CvT at 384."),
    TP_CHOICE("protocol", S, protocol, "none|real|v2|a|r|in9|c", 0,
              "Score a test set for ImageNet's classes by its own rule; see PROTOCOLS."),
    TP_STRING("labels", S, labels, "FILE", 0,
              "real: the JSON with the labels. If not given: real.json in --data."),
    TP_STRING(
        "corrupt", S, corrupt, "NAME:SEVERITY", 0,
        "Corrupt the images, as in jpeg:3; 'imagenet robust --help' lists the corruptions, and "
        "'imagenet robust' measures all of them."),
    TP_INT("seed", S, c.seed, 0, TP_BIG, 0, "Seed of --corrupt."),
    TP_HEADING("REPORT"),
    TP_STRING("confusion", S, confusion, "FILE", 0,
              "Draw the confusion matrix, or the most frequent mistakes if there are more than 30 "
              "classes, as FILE.png or FILE.svg."),
    TP_FLAG("by-class", S, by_class, 0,
            "Print the top-1 accuracy of each class, the worst first, and its most frequent wrong "
            "prediction."),
    TP_FLAG("calibration", S, calibration, 0,
            "Print how well probabilities agree with how often they are right: expected "
            "calibration error (15 bins of equal width, or of equally many images), NLL, Brier "
            "score; and a temperature fitted to one half of the images and tested on the other."),
    TP_STRING("reliability", S, reliability, "FILE", 0,
              "--calibration, and draw the reliability diagram as FILE.png or FILE.svg."),
    TP_STRING(
        "errors", S, errors, "DIR", 0,
        "Draw the worst mistakes into this folder, each as the model saw it beside bars of its "
        "likeliest classes: RANK-RIGHT-PREDICTED.png. Needs gnuplot."),
    TP_INT("worst", S, worst, 1, 10000, 0,
           "Number of mistakes to draw: those whose wrong class has the highest probability."),
    TP_CHOICE("format", S, format, "table|json", 0, "Text for people, or a JSON object."),
    OPTION_NAMES(S),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_machine_options),
    TP_INT("workers", S, workers, 1, 256, 0, "Threads that decode and augment images."),
    { 0 },
};

enum { SHAPES = 500, WORST = 25 }; /* defaults */

/* Are the flags compatible? */
static bool check(const void *settings, char *why, size_t size)
{
    const eval_options *s = settings;
    const char *other = s->confusion           ? "--confusion"
                        : s->by_class          ? "--by-class"
                        : s->errors            ? "--errors"
                        : s->worst != WORST    ? "--worst"
                        : s->corrupt           ? "--corrupt"
                        : s->c.seed            ? "--seed"
                        : s->reliability       ? "--reliability"
                        : s->calibration       ? "--calibration"
                        : s->layout            ? "--layout"
                        : s->split != TP_VALID ? "--split"
                        : s->shapes != SHAPES  ? "--shapes"
                                               : NULL;
    if (s->protocol && other)
        snprintf(why, size, "--protocol has its own images and report: leave out %s", other);
    else if (s->protocol && !s->c.data)
        snprintf(why, size, "--protocol: give the folder of the images with --data");
    else if (s->squeeze && s->crop_ratio > 0)
        snprintf(why, size, "--squeeze crops nothing: leave out --crop-ratio");
    else if (s->labels && s->protocol != PROTOCOL_REAL)
        snprintf(why, size, "--labels is for --protocol real");
    else
        return true;
    return false;
}

static const char manual_more[] =
    "PROTOCOLS\n"
    "    --data is the folder of the published set, all of whose images are scored.\n"
    "    real  ImageNet-ReaL: val/ of ImageNet with the JSON of ReaL's labels. Right if one of\n"
    "          an image's labels is predicted; images without a label do not count\n"
    "    v2    ImageNet-V2: folders 0 to 999, the class numbers\n"
    "    a, r  ImageNet-A, -R: WNID/IMAGE. The likeliest of the set's 200 classes counts\n"
    "    in9   ImageNet-9: VARIATION/val/00_dog to 08_fish. Right if the likeliest of all\n"
    "          classes is of the superclass; background gap: mixed_same - mixed_rand\n"
    "    c     ImageNet-C: CORRUPTION/SEVERITY/WNID/IMAGE. Errors, CE and mCE\n"
    "    c and in9 take the centre of the images without resizing (--crop-ratio 1), the others\n"
    "    resize as in validation. real, v2 and in9 need a model of ImageNet's 1000 classes; a, r\n"
    "    and c also take one with the classes of the folders: a and r among those alone, c\n"
    "    without CE.\n\n"
    "EXIT STATUS\n"
    "    0 success; 1 an error, such as an unknown preset; 2 a wrong command line\n\n"
    "EXAMPLES\n"
    "    imagenet eval --data imagenette2 --run-dir runs/convnet --confusion matrix.png\n"
    "    imagenet eval --data imagenette2 --run-dir runs/convnet --errors mistakes\n"
    "    imagenet eval --data imagenet --checkpoint vil-tiny.safetensors --size 256\n"
    "    imagenet eval --data imagenet-a --protocol a --preset cvt-13 --weights CvT-13.pth\n";

static const tp_command manual = {
    .name = "imagenet eval",
    .summary = "measures loss and accuracy of a trained model",
    .synopsis = "[--data DIR] [--run-dir DIR | --checkpoint FILE] [flag ...]\n"
                "    imagenet eval --data DIR --preset NAME --weights FILE [flag ...]",
    .about =
        "Runs the model of a checkpoint or of published weights over one part of the images and "
        "prints the mean cross entropy, and how often the right class is predicted first (top-1) "
        "or among the first five (top-5). Images are resized and centre-cropped, as in the "
        "validations of training.",
    .table = table,
    .check = check,
    .more = manual_more,
};

/* Passed to a score's callbacks. */
typedef struct progress {
    tp_ticker line;
    int64_t classes;
    mistakes *m;    /* most: 0 if not requested */
    calibration *c; /* NULL: not requested */
} progress;

static void note(void *env, int64_t image, int32_t label, const float *logits)
{
    progress *p = env;
    if (p->m->most > 0) mistakes_note(p->m, image, label, logits, p->classes);
    if (p->c) calibration_note(p->c, image, label, logits, p->classes);
}

static bool tick(void *env, const score *s)
{
    tp_ticker *t = &((progress *)env)->line;
    if (tp_ticker_due(t))
        tp_ticker_draw(t, s->count, "top-1 %.2f %%  %.0f images/s",
                       100.0 * (double)s->top1 / (double)s->count,
                       (double)s->count / (tp_seconds() - t->began));
    return !tp_stop_signal();
}

static void bad_image(void *env, const char *name, const char *why)
{
    (void)env;
    eval_skipped(manual.name, name, why);
}

/* Writes "MODEL, IMAGES" for pictures. Returns buf. */
static const char *shown(const eval_options *s, const image_file *f, char *buf, size_t size)
{
    char model[600], images[400];
    title_model(f, s->c.preset, model, sizeof model);
    title_images(s->c.data, (tp_part)s->split, images, sizeof images);
    const int n = snprintf(buf, size, "%s, %s", model, images);
    if (s->kind)
        snprintf(buf + n, size - (size_t)n, ", %s %d", tp_corrupt_name(s->kind), s->severity);
    return buf;
}

static bool draw_confusion(const eval_options *s, image_file *f, const class_names *names,
                           const score *v)
{
    char what[1200], why[2048];
    return confusion_draw(v, f->cfg.classes, names, shown(s, f, what, sizeof what), s->confusion,
                          why, sizeof why) ||
           tp_trained_fail(&f->t, "%s", why);
}

static bool draw_reliability(const eval_options *s, image_file *f, const calibration_result *c)
{
    char what[1200], why[2400];
    return calibration_draw(c, shown(s, f, what, sizeof what), "images", s->reliability, why,
                            sizeof why) ||
           tp_trained_fail(&f->t, "%s", why);
}

static bool report(const eval_options *s, image_file *f, const class_names *names, score *v,
                   const calibration_result *c, double seconds)
{
    const eval_report r = { .v = v,
                            .names = names,
                            .classes = f->cfg.classes,
                            .seconds = seconds,
                            .corrupt = s->kind,
                            .severity = s->severity,
                            .calibration = c,
                            .by_class = s->by_class,
                            .stopped = tp_stop_signal() != 0 };
    if (!eval_report_print(stdout, (output_format)s->format, &r) && !ferror(stdout))
        return tp_trained_fail(&f->t, "out of memory");
    return tp_trained_printed(&f->t) && (!s->confusion || draw_confusion(s, f, names, v)) &&
           (!s->reliability || draw_reliability(s, f, c));
}

static bool draw_mistakes(const eval_options *s, image_file *f, const class_names *names,
                          const mistakes *m, const tp_image_set *X, const tp_augment *a)
{
    char what[1100], note[1200], why[2400];
    snprintf(note, sizeof note, "%s. Red: predicted; green: right.",
             shown(s, f, what, sizeof what));
    const int64_t drawn = mistakes_draw(m, X, a, names, note, s->errors, why, sizeof why);
    if (drawn < 0) return tp_trained_fail(&f->t, "%s", why);
    if (s->format == FORMAT_TABLE)
        printf("%lld mistakes are drawn in %s\n", (long long)drawn, s->errors);
    return true;
}

static bool evaluate(const eval_options *s, image_file *f, const class_names *names,
                     const tp_image_set *X, const int32_t *label, calibration *c)
{
    tp_augment a = image_file_pipeline(f, s->crop_ratio);
    const bool calibrate = s->calibration || s->reliability;
    mistakes m = { .most = s->errors ? s->worst : 0, .seed = (uint64_t)s->c.seed };
    progress t = { .line = tp_ticker_start("images", tp_image_set_count(X)),
                   .classes = f->cfg.classes,
                   .m = &m,
                   .c = calibrate ? c : NULL };
    score v;
    a.corrupt = s->kind;
    a.severity = s->severity;
    m.at = calloc((size_t)m.most + 1, sizeof *m.at);
    if (!m.at) return tp_trained_fail(&f->t, "out of memory");
    tp_catch_signals();
    bool done = eval_score(&v, f, X,
                           &(score_opts){ .augment = &a,
                                          .batch = s->c.batch,
                                          .workers = (int)s->workers,
                                          .seed = (uint64_t)s->c.seed,
                                          .strict = s->strict,
                                          .bad = bad_image,
                                          .go_on = tick,
                                          .label_of = label,
                                          .each = s->errors || calibrate ? note : NULL,
                                          .env = &t });
    const double seconds = tp_seconds() - t.line.began;
    tp_ticker_end(&t.line);
    if (done && c->no_memory) done = tp_trained_fail(&f->t, "out of memory");
    const calibration_result r = calibrate && done ? calibration_of(c) : (calibration_result){ 0 };
    done = done && report(s, f, names, &v, calibrate ? &r : NULL, seconds);
    done = done && (!s->errors || draw_mistakes(s, f, names, &m, X, &a));
    score_free(&v);
    free(m.at);
    return done;
}

/* --corrupt names one corruption and severity. */
static bool read_corruption(eval_options *s, char *why, size_t size)
{
    corrupt_list l;
    if (!s->corrupt) return true;
    if (!corrupt_list_read(&l, s->corrupt, why, size)) return false;
    for (int c = 0; c < TP_NCORRUPT; c++)
        for (int k = 0; k < TP_CORRUPT_SEVERITIES; k++)
            if (l.at[c][k]) {
                s->kind = (tp_corrupt)c;
                s->severity = k + 1;
            }
    if (l.cells == 1) return true;
    snprintf(why, size,
             "--corrupt %s: give one corruption and its severity, as in jpeg:3; 'imagenet robust' "
             "measures several",
             s->corrupt);
    return false;
}

/* Protocols print their own reports. */
static bool run_protocol(const eval_options *s, image_file *f, const class_names *names)
{
    const protocol_opts o = { .which = (protocol)s->protocol,
                              .command = manual.name,
                              .data = s->c.data,
                              .labels = s->labels,
                              .crop_ratio = s->crop_ratio,
                              .batch = s->c.batch,
                              .workers = (int)s->workers,
                              .strict = s->strict,
                              .format = (output_format)s->format };
    return protocol_run(&o, f, names);
}

static bool measure(eval_options *s, image_file *f, class_names *names)
{
    char why[1024];
    eval_set e = { 0 };
    calibration c = { 0 };
    const eval_source from = { .command = manual.name,
                               .data = s->c.data,
                               .layout = (tp_layout)s->layout,
                               .part = (tp_part)s->split,
                               .shapes = s->shapes };
    if (!read_corruption(s, why, sizeof why)) return tp_trained_fail(&f->t, "%s", why);
    if (!image_file_named(f, &s->c, s->size, s->names, names)) return false;
    f->squeeze = s->squeeze;
    if (s->protocol) return run_protocol(s, f, names);
    const bool done = eval_set_open(&e, &from, f, names) && evaluate(s, f, names, e.X, e.label, &c);
    calibration_free(&c);
    eval_set_close(&e);
    return done;
}

static bool run(void *settings, char *why, size_t size)
{
    image_file f = { 0 };
    class_names names = { 0 };
    const bool done = measure(settings, &f, &names);
    snprintf(why, size, "%s", f.t.why);
    class_names_free(&names);
    image_file_close(&f);
    return done;
}

int image_eval_main(int argc, char **argv)
{
    eval_options s = {
        .c = { .t = { .machine = { .device = strdup("cpu") }, .run_dir = strdup("runs/imagenet") },
               .batch = 64 },
        .split = TP_VALID,
        .shapes = SHAPES,
        .workers = 2,
        .worst = WORST,
    };
    return tp_command_main(&manual, argc, argv, &s, run);
}
