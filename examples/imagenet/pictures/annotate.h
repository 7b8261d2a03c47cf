/* annotate.h - images with a model's predictions: titles, likeliest classes, worst mistakes. */
#ifndef ANNOTATE_H
#define ANNOTATE_H

#include <tapegrad/image_set.h>

#include "image_file.h"
#include "pictures/picture.h"
#include "predictions.h"

/* ---- titles ---- */

/* The last part of a path: "cvt" of "runs/cvt/". Returns buf. */
const char *title_name(const char *path, char *buf, size_t size);

/* "cvt-ls-small, update 496" for a run's checkpoint, from its folder; the preset or file of other
 * weights; "PRESET, initial weights" without a file. Returns buf. */
const char *title_model(const image_file *f, const char *preset, char *buf, size_t size);

/* "imagenette-64 (valid)"; data NULL: drawn shapes. Returns buf. */
const char *title_images(const char *data, tp_part part, char *buf, size_t size);

/* ---- an image and its classes ---- */

typedef struct annotation {
    const char *title, *note; /* may be NULL */
    const char *caption;      /* above the image: its name */
    const tp_image *image;
    const class_names *names;
    const prediction *best; /* [n], n <= ANNOTATED */
    int n;
    prediction truth; /* the right class, drawn last if not among best; label -1: unknown */
} annotation;

enum { ANNOTATED = 10 }; /* most bars */

/* Draws it to a PNG file; g as in picture_draw. False with the reason in why. */
bool annotate(gnuplot *g, const annotation *a, const char *path, char *why, size_t size);

/* ---- mistakes ---- */

enum { MISTAKE_PREDICTIONS = 5 };

typedef struct mistake {
    int64_t image; /* number in the set */
    int32_t label; /* the right class */
    double right;  /* and its probability */
    int n;
    prediction best[MISTAKE_PREDICTIONS];
} mistake;

/* The caller sets `most`, and `at` with that room. */
typedef struct mistakes {
    int64_t most, n;
    mistake *at;   /* [n], worst first */
    uint64_t seed; /* the evaluation's, if its pipeline is random */
} mistakes;

/* Records an image of class `label` if it is among the worst so far; logits [classes]. The order of
 * images does not matter. */
void mistakes_note(mistakes *m, int64_t image, int32_t label, const float *logits, int64_t classes);

/* Draws the mistakes into the folder, which it creates: RANK-RIGHT-PREDICTED.png, each image as the
 * model saw it through pipeline a, with note below every title. Stops early at a signal
 * (tp_stop_signal). Returns the number drawn, or -1 with the reason in why. */
int64_t mistakes_draw(const mistakes *m, const tp_image_set *X, const tp_augment *a,
                      const class_names *names, const char *note, const char *folder, char *why,
                      size_t size);

#endif
