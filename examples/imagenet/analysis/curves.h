/* curves.h - line plots as PNG, drawn by gnuplot. */
#ifndef CURVES_H
#define CURVES_H

#include <stdbool.h>
#include <stddef.h>

typedef struct curve {
    const char *name;
    int n;
    const double *x, *y;
} curve;

typedef struct curves {
    const char *across, *up; /* labels of the axes */
    bool logarithmic;        /* both axes          */
    int n;
    const curve *at;
} curves;

enum { CURVES_WIDTH = 800, CURVES_HEIGHT = 480 };

/* Writes the image. False with the reason in why if gnuplot is missing or fails. */
bool curves_draw(const curves *p, const char *path, char *why, size_t size);

#endif
