/* predict.c - `imagenet predict`: the five most likely classes of images. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "class_names.h"
#include "image_commands.h"
#include "image_file.h"
#include "image_settings.h"
#include "score.h"

typedef struct predict_options {
    image_common c;
    tp_words images;
    int64_t size;
} predict_options;

#define S predict_options

static const tp_option table[] = {
    TP_HEADING("MODEL AND IMAGES"),
    TP_ARGUMENTS(S, images, "IMAGE ...", "JPEG or PNG files."),
    TP_ROWS(tp_trained_options),
    OPTION_WEIGHTS(S),
    OPTION_PRESET(S),
    OPTION_TRAINED_SIZE(S),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_machine_options),
    { 0 },
};

static const tp_command manual = {
    .name = "imagenet predict",
    .summary = "predicts the classes of images",
    .synopsis = "IMAGE ... [--run-dir DIR | --checkpoint FILE] [flag ...]",
    .about = "Prints the five most likely classes of each image and their probabilities, as "
             "predicted by the model of a checkpoint. Images are resized and centre-cropped, as in "
             "evaluation.",
    .table = table,
    .more = "EXIT STATUS\n"
            "    0 success; 1 an image cannot be read, or another error; 2 a wrong command line\n\n"
            "EXAMPLES\n"
            "    imagenet predict cat.jpg dog.png --run-dir runs/convnet\n",
};

static void print_best(const image_file *f, const char *path, const float *logits)
{
    int32_t best[5];
    double sum = 0;
    score_top5(logits, f->cfg.classes, best);
    for (int64_t c = 0; c < f->cfg.classes; c++) sum += exp((double)(logits[c] - logits[best[0]]));
    printf("%s\n", path);
    for (int k = 0; k < 5 && best[k] >= 0; k++) {
        char name[256];
        printf("    %6.2f %%  %s\n", 100 * exp((double)(logits[best[k]] - logits[best[0]])) / sum,
               class_name(f->names, best[k], name, sizeof name));
    }
}

/* One image; x [size,size,3] and logits [classes] are scratch. */
static bool predict(image_file *f, const char *path, tp_augment_work *w, float *x, float *logits)
{
    const tp_augment a = image_eval_pipeline(f->cfg.size, f->crop_ratio);
    tp_image image = { 0 };
    tp_image_read(&image, path, NULL);
    const bool read = tp_augment_image(&a, w, &image, (tp_example){ 0 }, x);
    if (!read) tp_trained_fail(&f->t, "%s", tp_image_ok(&image) ? w->why : image.why);
    tp_image_free(&image);
    if (!read) return false;
    tp_reset(f->t.T);
    const tp_tensor in = classifier_input(f->t.T, f->m, x, 1);
    const tp_tensor z = tp_cast(f->t.T, classifier_forward(f->t.T, f->m, in), TP_F32);
    if (!tp_read(f->t.T, z, logits, (size_t)f->cfg.classes * sizeof *logits))
        return tp_trained_fail(&f->t, "%s", tp_why(f->t.T));
    print_best(f, path, logits);
    return true;
}

static bool predict_all(const predict_options *s, image_file *f)
{
    tp_augment_work w = { 0 };
    if (s->images.n == 0)
        return tp_trained_fail(&f->t, "no image was given: imagenet predict IMAGE ...");
    if (!image_file_open(f, &s->c, s->size)) return false;
    float *x = malloc((size_t)(f->cfg.size * f->cfg.size * 3) * sizeof *x);
    float *logits = malloc((size_t)f->cfg.classes * sizeof *logits);
    bool done = (x && logits) || tp_trained_fail(&f->t, "out of memory");
    for (int i = 0; x && logits && i < s->images.n; i++)
        if (!predict(f, s->images.at[i], &w, x, logits)) {
            fprintf(stderr, "%s: %s\n", manual.name, f->t.why);
            f->t.why[0] = '\0';
            done = false;
            if (!tp_ok(f->t.T)) break;
        }
    free(x);
    free(logits);
    tp_augment_work_free(&w);
    return done;
}

static bool run(void *settings, char *why, size_t size)
{
    image_file f = { 0 };
    const bool done = predict_all(settings, &f);
    snprintf(why, size, "%s", f.t.why);
    image_file_close(&f);
    return done;
}

int predict_main(int argc, char **argv)
{
    predict_options s = { .c.t = { .machine = { .device = strdup("cpu") },
                                   .run_dir = strdup("runs/imagenet") } };
    return tp_command_main(&manual, argc, argv, &s, run);
}
