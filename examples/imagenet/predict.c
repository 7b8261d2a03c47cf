/* predict.c - `imagenet predict`: the most likely classes of images. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image_commands.h"
#include "image_file.h"
#include "image_settings.h"
#include "pictures/annotate.h"
#include "predictions.h"
#include "reports/plain_text.h"

typedef struct predict_options {
    image_common c;
    char *names, *annotate;
    tp_words images;
    int format;
    bool logits;
    int64_t size, top;
} predict_options;

#define S predict_options

static const tp_option table[] = {
    TP_HEADING("MODEL AND IMAGES"),
    TP_ARGUMENTS(S, images, "IMAGE ...", "JPEG or PNG files."),
    TP_ROWS(tp_trained_options),
    OPTION_WEIGHTS(S),
    OPTION_PRESET(S),
    OPTION_TRAINED_SIZE(S),
    OPTION_MAX_PIXELS(S, c.max_pixels, 0),
    TP_HEADING("RESULTS"),
    TP_INT("top", S, top, 1, PREDICTIONS_MOST, 0, "Number of classes shown for an image."),
    TP_CHOICE("format", S, format, "table|json|csv", 0,
              "A table for people; a JSON object per line and image; or CSV, a row per class."),
    TP_FLAG("logits", S, logits, 0,
            "With --format json: also the model's output for each class, before softmax."),
    OPTION_NAMES(S),
    TP_STRING(
        "annotate", S, annotate, "DIR", 0,
        "Draw each image beside bars of its likeliest classes, at most ten, into this folder: "
        "NUMBER-NAME.png. Needs gnuplot."),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_machine_options),
    { 0 },
};

static const char manual_more[] =
    "FORMATS\n"
    "    json  {\"image\": PATH, \"predictions\": [{\"class\": N, \"name\": WORDS, \"wnid\": ID,\n"
    "          \"probability\": P}, ...]}; classes of other sets have no wnid. --logits adds\n"
    "          \"logits\": [Z, ...], one for each class in the model's order\n"
    "    csv   a header, then image,rank,class,wnid,name,probability (RFC 4180). A cell that a\n"
    "          spreadsheet would take for a formula, beginning with = + - @ or white space, gets\n"
    "          an apostrophe before it; control characters are shown as \\xHH\n\n"
    "EXIT STATUS\n"
    "    0 success; 1 an unreadable image, an unknown preset or another error; 2 a wrong\n"
    "    command line\n\n"
    "EXAMPLES\n"
    "    imagenet predict cat.jpg dog.png --run-dir runs/convnet\n"
    "    imagenet predict *.jpg --preset cvt-13 --weights CvT-13.pth --format json\n";

static const tp_command manual = {
    .name = "imagenet predict",
    .summary = "predicts the classes of images",
    .synopsis = "IMAGE ... [--run-dir DIR | --checkpoint FILE] [flag ...]\n"
                "    imagenet predict IMAGE ... --preset NAME --weights FILE [flag ...]",
    .about = "Prints the most likely classes of each image and their probabilities, as predicted "
             "by the model of a checkpoint or of published weights. Images are resized and "
             "centre-cropped, as in evaluation. Wnids of ImageNet are shown as words.",
    .table = table,
    .more = manual_more,
};

/* The images of a command line. */
typedef struct predictor {
    const predict_options *s;
    image_file f;
    class_names names;
    tp_augment_work w;
    float *x, *logits; /* scratch: [size,size,3], [classes] */
    tp_image image;
    prediction best[PREDICTIONS_MOST];
    int n; /* of best */
    gnuplot g;
} predictor;

/* Reads an image and computes its logits. */
static bool infer(predictor *t, const char *path)
{
    image_file *f = &t->f;
    const tp_augment a = image_file_pipeline(f, 0);
    tp_image_read(&t->image, path, &a.decode);
    if (!tp_augment_image(&a, &t->w, &t->image, (tp_example){ 0 }, t->x))
        return tp_trained_fail(&f->t, "%s", tp_image_ok(&t->image) ? t->w.why : t->image.why);
    tp_reset(f->t.T);
    const tp_tensor in = classifier_input(f->t.T, f->m, t->x, 1);
    const tp_tensor z = tp_cast(f->t.T, classifier_forward(f->t.T, f->m, in), TP_F32);
    return tp_read(f->t.T, z, t->logits, (size_t)f->cfg.classes * sizeof *t->logits) ||
           tp_trained_fail(&f->t, "%s", tp_why(f->t.T));
}

/* Draws t->image, the command line's image `number`. */
static bool draw(predictor *t, const char *path, int number)
{
    char name[80], file[4600], why[1800], note[600];
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    const char *dot = strrchr(base, '.');
    char *stem = strndup(base, dot ? (size_t)(dot - base) : strlen(base));
    if (!stem) return tp_trained_fail(&t->f.t, "out of memory");
    snprintf(file, sizeof file, "%s/%03d-%s.png", t->s->annotate, number,
             plain_file_name(stem, name, sizeof name));
    free(stem);
    title_model(&t->f, t->s->c.preset, note, sizeof note);
    const annotation a = { .title = base,
                           .note = note,
                           .image = &t->image,
                           .names = &t->names,
                           .best = t->best,
                           .n = t->n,
                           .truth = { .label = -1 } };
    return annotate(&t->g, &a, file, why, sizeof why) || tp_trained_fail(&t->f.t, "%s", why);
}

static bool predict(predictor *t, const char *path, int number)
{
    image_file *f = &t->f;
    const predicted p = { .path = path,
                          .best = t->best,
                          .n = t->n,
                          .logits = t->s->logits ? t->logits : NULL,
                          .classes = f->cfg.classes };
    if (!infer(t, path)) return false;
    if (!predictions_of(t->logits, f->cfg.classes, t->n, t->best))
        return tp_trained_fail(&f->t,
                               "%s: the model computes NaN or infinity: the weights in %s are bad, "
                               "or --dtype is too narrow for them",
                               path, f->t.path);
    if (!predictions_print(stdout, (output_format)t->s->format, &t->names, &p) && !ferror(stdout))
        return tp_trained_fail(&f->t, "out of memory");
    return !t->s->annotate || draw(t, path, number);
}

static bool predict_all(predictor *t)
{
    const predict_options *s = t->s;
    char why[1024];
    if (s->images.n == 0)
        return tp_trained_fail(&t->f.t, "no image was given: imagenet predict IMAGE ...");
    if (s->logits && s->format != FORMAT_JSON)
        return tp_trained_fail(&t->f.t, "--logits needs --format json");
    if (!image_file_named(&t->f, &s->c, s->size, s->names, &t->names)) return false;
    const int64_t size = t->f.cfg.size, classes = t->f.cfg.classes;
    t->n = (int)(s->top < classes ? s->top : classes);
    t->x = malloc((size_t)(size * size * 3) * sizeof *t->x);
    t->logits = malloc((size_t)classes * sizeof *t->logits);
    if (!t->x || !t->logits) return tp_trained_fail(&t->f.t, "out of memory");
    if (s->annotate && !tp_make_folders(s->annotate, why, sizeof why))
        return tp_trained_fail(&t->f.t, "%s", why);
    predictions_begin(stdout, (output_format)s->format);
    bool done = true;
    for (int i = 0; i < s->images.n && tp_ok(t->f.t.T) && !ferror(stdout); i++)
        if (!predict(t, s->images.at[i], i + 1)) {
            tp_command_complain(manual.name, t->f.t.why);
            t->f.t.why[0] = '\0';
            done = false;
        }
    return tp_trained_printed(&t->f.t) && done;
}

static bool run(void *settings, char *why, size_t size)
{
    predictor t = { .s = settings };
    const bool done = predict_all(&t);
    snprintf(why, size, "%s", t.f.t.why);
    free(t.x);
    free(t.logits);
    gnuplot_end(&t.g);
    tp_image_free(&t.image);
    tp_augment_work_free(&t.w);
    class_names_free(&t.names);
    image_file_close(&t.f);
    return done;
}

int predict_main(int argc, char **argv)
{
    predict_options s = { .c.t = { .machine = { .device = strdup("cpu") },
                                   .run_dir = strdup("runs/imagenet") },
                          .top = 5 };
    return tp_command_main(&manual, argc, argv, &s, run);
}
