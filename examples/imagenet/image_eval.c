/* image_eval.c - `imagenet eval`: loss and accuracy of a trained model on held-out images. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "corrupt_list.h"
#include "eval_report.h"
#include "image_commands.h"
#include "image_settings.h"
#include "names/class_names.h"
#include "pictures/confusion.h"
#include "pictures/mistakes.h"
#include "pictures/titles.h"
#include "protocol.h"
#include "score.h"

typedef struct eval_options {
    image_common c;
    char *confusion, *names, *errors, *corrupt, *labels, *reliability;
    int layout, split, format, protocol;
    int64_t size, shapes, workers, worst;
    double crop_ratio;
    bool strict, by_class, calibration;
    tp_corrupt kind; /* what --corrupt says */
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
    else if (s->labels && s->protocol != PROTOCOL_REAL)
        snprintf(why, size, "--labels is for --protocol real");
    else
        return true;
    return false;
}

static const tp_command manual = {
    .name = "imagenet eval",
    .summary = "measures loss and accuracy of a trained model",
    .synopsis = "[--data DIR] [--run-dir DIR | --checkpoint FILE] [flag ...]\n"
                "    imagenet eval --data DIR --preset NAME --weights FILE [flag ...]",
    .about =
        "Runs the model of a checkpoint or of published weights over one part of the images and prints the mean cross "
        "entropy, and how often the right class is predicted first (top-1) or among the first "
        "five (top-5). Images are resized and centre-cropped, as in the validations of training.",
    .table = table,
    .check = check,
    .more =
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
        "    imagenet eval --data imagenet-a --protocol a --preset cvt-13 --weights CvT-13.pth\n",
};

/* What a score's functions receive. */
typedef struct progress {
    tp_ticker line;
    int64_t classes;
    mistakes *m;    /* most: 0 if they are not asked for */
    calibration *c; /* NULL: not asked for               */
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

/* "MODEL, IMAGES", what a picture shows. Returns buf. */
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

/* --corrupt names one corruption at one severity. */
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

/* Protocols have reports of their own. */
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
