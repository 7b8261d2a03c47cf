/* image_eval.c - `imagenet eval`: loss and accuracy of a trained model on held-out pictures. */
#include <math.h>
#include <progress.h>
#include <run.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "class_names.h"
#include "image_commands.h"
#include "image_file.h"
#include "image_settings.h"
#include "score.h"
#include "shapes.h"

typedef struct eval_options {
    common_settings c;
    char *checkpoint, *confusion;
    int layout, split;
    int64_t size, shapes, workers;
    double crop_ratio;
    bool strict, by_class;
} eval_options;

#define AT(field) offsetof(eval_options, field)

/* clang-format off */
static const option table[] = {
    { "MODEL AND PICTURES", OPT_HEADING, 0, 0, 0, 0, NULL, NULL },
    OPTIONS_TRAINED(eval_options),
    OPTIONS_PICTURES(eval_options, 0, 0),
    { "shapes", OPT_INT, 0, AT(shapes), 1, 10000000, "N", "Shapes drawn, where there is no --data." },
    { "split", OPT_CHOICE, 0, AT(split), 0, 0, "train|valid|test", "The part that is scored." },
    OPTION_TRAINED_SIZE(eval_options),
    { "crop-ratio", OPT_NUM, 0, AT(crop_ratio), 0, 1, "X",
      "The centre is cut after resizing to size / crop-ratio; 0: as in training." },
    { "batch", OPT_INT, 0, AT(c.batch), 1, 65536, "N", "Pictures that run at once." },
    { "strict", OPT_BOOL, 0, AT(strict), 0, 0, NULL,
      "A picture that cannot be read ends the evaluation; else it is named and left out." },
    { "REPORT", OPT_HEADING, 0, 0, 0, 0, NULL, NULL },
    { "confusion", OPT_TEXT, 0, AT(confusion), 0, 0, "FILE.png",
      "Draw the confusion matrix: rows are classes, columns what was said." },
    { "by-class", OPT_BOOL, 0, AT(by_class), 0, 0, NULL,
      "Print each class with its top-1 and what it is mostly taken for instead." },
    { "MACHINE", OPT_HEADING, 0, 0, 0, 0, NULL, NULL },
    OPTIONS_MACHINE(eval_options, 0),
    { "workers", OPT_INT, 0, AT(workers), 1, 256, "N", "Threads that prepare pictures." },
    { 0 },
};
/* clang-format on */

static const program manual = {
    .name = "imagenet eval",
    .summary = "measures loss and accuracy of a trained model",
    .synopsis = "[--data DIR] [--run-dir DIR | --checkpoint FILE] [flag ...]",
    .about =
        "Runs the model of a checkpoint over one part of the pictures and prints the mean cross "
        "entropy and how often the right class is the first (top-1) or among the first five "
        "(top-5). Pictures are resized and their centre is cut, as after each epoch of training.",
    .table = table,
    .more = "EXIT STATUS\n"
            "    0 measured; 1 an error; 2 a bad flag\n\n"
            "EXAMPLES\n"
            "    imagenet eval --data imagenette2 --run-dir runs/convnet --confusion matrix.png\n"
            "    imagenet eval --data imagenet --checkpoint vil-tiny.safetensors --size 256\n",
};

typedef struct ticker {
    double began, drawn;
    int64_t last;
} ticker;

static bool tick(void *env, const score *s)
{
    ticker *t = env;
    const double now = seconds_now();
    if (isatty(STDERR_FILENO) && now - t->drawn > 0.2) {
        fprintf(stderr, "\r\033[K%lld/%lld pictures  top-1 %.2f %%  %.0f images/s",
                (long long)s->count, (long long)t->last, 100.0 * (double)s->top1 / (double)s->count,
                (double)s->count / (now - t->began));
        t->drawn = now;
    }
    return !run_stop_signal();
}

static void bad_picture(void *env, const char *name, const char *why)
{
    (void)env;
    fprintf(stderr, "%s: left out: %s: %s\n", manual.name, name, why);
}

static void print_classes(const image_file *f, const score *v)
{
    const int64_t C = f->cfg.classes;
    for (int64_t r = 0; r < C; r++) {
        const int64_t *row = v->confusion + r * C;
        int64_t sum = 0, other = -1;
        char name[256], wrong[256];
        for (int64_t c = 0; c < C; c++) {
            sum += row[c];
            if (c != r && row[c] > 0 && (other < 0 || row[c] > row[other])) other = c;
        }
        if (sum == 0) continue;
        printf("%-24s %6lld pictures  top-1 %6.2f %%", class_name(f->names, r, name, sizeof name),
               (long long)sum, 100.0 * (double)row[r] / (double)sum);
        if (other >= 0)
            printf("  %.2f %% taken for %s", 100.0 * (double)row[other] / (double)sum,
                   class_name(f->names, other, wrong, sizeof wrong));
        printf("\n");
    }
}

static bool fits(image_file *f, const tp_pictures *X, const char *data)
{
    char why[700];
    if (tp_pictures_classes(X) > f->cfg.classes)
        return image_file_fail(
            f,
            "the pictures have %d classes, the head of %s has %lld: this model was "
            "trained on other pictures%s",
            tp_pictures_classes(X), f->path, (long long)f->cfg.classes,
            data ? "" : ", which --data names");
    return class_names_agree(f->names, X, why, sizeof why) ||
           image_file_fail(f, "%s was trained on other classes: %s", f->path, why);
}

static bool evaluate(const eval_options *s, image_file *f, const tp_pictures *X)
{
    const double ratio = s->crop_ratio > 0 ? s->crop_ratio : f->crop_ratio;
    const tp_augment a = image_eval_pipeline(f->cfg.size, ratio);
    ticker t = { .began = seconds_now(), .last = tp_pictures_count(X) };
    score v;
    run_catch_signals();
    bool done = score_run(&v, f->T, f->m, X,
                          &(score_opts){ .augment = &a,
                                         .batch = s->c.batch,
                                         .workers = (int)s->workers,
                                         .strict = s->strict,
                                         .bad = bad_picture,
                                         .go_on = tick,
                                         .env = &t });
    if (t.drawn > 0) fprintf(stderr, "\r\033[K");
    if (!done) image_file_fail(f, "%s", v.why);
    if (done) {
        const double n = (double)v.count;
        printf("%s%lld pictures: loss %.4f, top-1 %.2f %%, top-5 %.2f %%, %.0f images/s",
               run_stop_signal() ? "stopped after " : "", (long long)v.count, v.loss / n,
               100.0 * (double)v.top1 / n, 100.0 * (double)v.top5 / n,
               n / (seconds_now() - t.began));
        if (v.skipped > 0) printf(", %lld could not be read", (long long)v.skipped);
        printf("\n");
        if (s->by_class) print_classes(f, &v);
        if (s->confusion && !score_draw(&v, f->cfg.classes, s->confusion))
            done = image_file_fail(f, "%s", v.why);
    }
    score_free(&v);
    return done;
}

static bool run(const eval_options *s, image_file *f)
{
    shapes drawn;
    if (!image_file_open(f, s->checkpoint, &s->c, s->size)) return false;
    tp_pictures *X = s->c.data
                         ? tp_pictures_open(s->c.data, (tp_layout)s->layout, (tp_part)s->split)
                         : shapes_open(&drawn, s->shapes, f->cfg.size, (tp_part)s->split);
    bool done = tp_pictures_ok(X) || image_file_fail(f, "%s", tp_pictures_why(X));
    done = done && fits(f, X, s->c.data) && evaluate(s, f, X);
    tp_pictures_close(X);
    return done;
}

int image_eval_main(int argc, char **argv)
{
    static image_file f;
    eval_options s = {
        .c = { .device = strdup("cpu"), .run_dir = strdup("runs/imagenet"), .batch = 64 },
        .split = TP_VALID,
        .shapes = 500,
        .workers = 2,
    };
    int status = options_parse(&manual, argc, argv, &s, NULL);
    if (status == OPTIONS_RUN) {
        status = run(&s, &f) ? 0 : 1;
        if (status) fprintf(stderr, "%s: %s\n", manual.name, f.why);
        if (!status && run_stop_signal()) status = 128 + run_stop_signal();
        image_file_close(&f);
    }
    options_free(table, &s);
    return status;
}
