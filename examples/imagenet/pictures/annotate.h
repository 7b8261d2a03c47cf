/* annotate.h - an image beside the probabilities of its likeliest classes. */
#ifndef ANNOTATE_H
#define ANNOTATE_H

#include "pictures/picture.h"
#include "predictions.h"

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

#endif
