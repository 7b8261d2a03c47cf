/* annotate.h - pictures of images with what a model says of them: titles, likeliest classes, worst mistakes. */
#ifndef ANNOTATE_H
#define ANNOTATE_H

#include <tapegrad/image_set.h>

#include "image_file.h"
#include "pictures/picture.h"
#include "predictions.h"

/* ---- titles ---- */

/* The last part of a path: "cvt" of "runs/cvt/". Returns buf. */
const char *title_name(const char *path, char *buf, size_t size);

/* "cvt-ls-small, update 496" for a run's checkpoint, by its folder; the preset or file of other
 * weights; "PRESET, initial weights" for a model without a file. Returns buf. */
const char *title_model(const image_file *f, const char *preset, char *buf, size_t size);

/* "imagenette-64 (valid)"; data NULL: drawn shapes. Returns buf. */
const char *title_images(const char *data, tp_part part, char *buf, size_t size);

/* ---- an image and its classes ---- */

typedef struct annotation {
    const char *title, *note; /* may be NULL                                               */
    const char *caption;      /* above the image: its name                                 */
    const tp_image *image;
    const class_names *names;
    const prediction *best; /* [n], n <= ANNOTATED */
    int n;
    prediction truth; /* the right class, drawn last if it is not among them; label -1: unknown */
} annotation;

enum { ANNOTATED = 10 }; /* most bars */

/* Draws it into the file path, a PNG; g as in picture_draw. False with the reason in why. */
bool annotate(gnuplot *g, const annotation *a, const char *path, char *why, size_t size);

/* ---- mistakes ---- */

enum { MISTAKE_PREDICTIONS = 5 };

typedef struct mistake {
    int64_t image; /* its number in the set */
    int32_t label; /* the right class       */
    double right;  /* and its probability   */
    int n;
    prediction best[MISTAKE_PREDICTIONS];
} mistake;

/* Initialise `most` and `at`, with room for that many. */
typedef struct mistakes {
    int64_t most, n;
    mistake *at;   /* [n], the worst first                             */
    uint64_t seed; /* of the evaluation, if its pipeline is random */
} mistakes;

/* Notes an image of class `label` if it is among the worst so far; logits [classes]. The result does not
 * depend on the order of images. */
void mistakes_note(mistakes *m, int64_t image, int32_t label, const float *logits, int64_t classes);

/* Draws them into the folder, which is created: RANK-RIGHT-PREDICTED.png, each image as the model saw it
 * through the pipeline a; note is below every title. Ends early after a signal (tp_stop_signal). Returns
 * how many it has drawn, or -1 with the reason in why. */
int64_t mistakes_draw(const mistakes *m, const tp_image_set *X, const tp_augment *a,
                      const class_names *names, const char *note, const char *folder, char *why,
                      size_t size);

#endif
