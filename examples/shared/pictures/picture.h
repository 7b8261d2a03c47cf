/* picture.h - self-explanatory pictures: panels in a grid, with titles, axes, scales and names, in
 * one style. gnuplot draws them as PNG or SVG. */
#ifndef PICTURE_H
#define PICTURE_H

#include <tapegrad/image.h>

#include "gnuplot.h"

/* Texts are UTF-8 without markup; invalid bytes appear as U+FFFD, long texts are cut. Pointers may
 * be NULL where a comment says so, and must last until picture_draw returns. */

typedef struct panel_image {
    const tp_image *rgb;
} panel_image;

/* A map of rows x cols cells, row 0 at the top; NAN stays empty. */
typedef struct panel_heat {
    int64_t rows, cols;
    const double *v;
    bool diverging;           /* red, white in the middle, blue; otherwise white to blue */
    double least, most;       /* colour range; equal: the values', around 0 if diverging */
    const char *unit;         /* the values' unit, beside the colour bar; may be NULL */
    bool no_bar;              /* another panel's colour bar suffices */
    const char *const *texts; /* [rows,cols] in the cells; may be NULL */
    const char *const *row_names, *const *col_names; /* beside the cells; may be NULL */
    bool numbered;                                   /* axes with the numbers of the cells ... */
    double first_row, first_col;                     /* ... starting with these */
} panel_heat;

/* Omits NAN. */
typedef struct curve {
    const char *name;
    int n;
    const double *x, *y;
} curve;

typedef struct panel_curves {
    int n;
    const curve *at;
    const int *lines;   /* the curves' lines of PICTURE_STYLE; NULL: 1, 2, ... */
    bool logarithmic;   /* both axes, with a tick at each x of the first curve */
    bool whole;         /* x, and so the ticks, are whole numbers */
    bool plain;         /* lines without markers at the points */
    double least, most; /* range of y; equal: the curves' */
} panel_curves;

typedef enum panel_colour { COLOUR_PLAIN, COLOUR_RIGHT, COLOUR_WRONG } panel_colour;

typedef struct panel_bar {
    const char *name;
    double value;
    const char *text; /* at the end of the bar; NULL: the value */
    panel_colour colour;
} panel_bar;

/* Horizontal bars, the first at the top. */
typedef struct panel_bars {
    int n;
    const panel_bar *at;
    double most; /* the axis's right end; 0: the largest value */
} panel_bars;

/* An orange frame, in image pixels or map cells. */
typedef struct panel_mark {
    double row, col, rows, cols;
} panel_mark;

typedef enum panel_kind {
    PANEL_NONE,
    PANEL_IMAGE,
    PANEL_HEAT,
    PANEL_CURVES,
    PANEL_BARS
} panel_kind;

typedef struct panel {
    panel_kind kind;
    const char *title, *across, *up; /* above, and axis labels with units; may be NULL */
    int width, height;               /* the plot's, in pixels; 0: the kind's default */
    const panel_mark *marks;
    int nmarks;
    union {
        panel_image image;
        panel_heat heat;
        panel_curves curves;
        panel_bars bars;
    };
} panel;

typedef struct picture {
    const char *title; /* what is shown: model, data, step; may be NULL */
    const char *note;  /* below the title: how to read it; may be NULL */
    int down, across;
    const panel *at; /* [down,across], row by row */
} picture;

/* Draws a picture into a file named .png or .svg, replaced atomically after a sync. Pictures can
 * share a process g; NULL: starts one. False with the reason in why, which begins with the path; an
 * existing file is then unchanged. */
bool picture_draw(gnuplot *g, const picture *p, const char *path, char *why, size_t size);

#endif
