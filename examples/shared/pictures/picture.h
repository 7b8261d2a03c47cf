/* picture.h - pictures that explain themselves: panels in a grid, with titles, axes, scales and names,
 * all in one style. gnuplot draws them, as PNG or SVG. */
#ifndef PICTURE_H
#define PICTURE_H

#include <tapegrad/image.h>

#include "gnuplot.h"

/* Texts are UTF-8 without markup; what is not valid appears as U+FFFD. Too long ones are cut. All
 * pointers may be NULL where the comment says so, and must last until picture_draw returns. */

typedef struct panel_image {
    const tp_image *rgb;
} panel_image;

/* A map of rows x cols cells, row 0 at the top; NAN is left empty. */
typedef struct panel_heat {
    int64_t rows, cols;
    const double *v;
    bool diverging; /* red below the middle of the range, white there, blue above; else from white
                           to blue */
    double least,
        most; /* the range of the colours; equal: that of the values, if diverging around 0 */
    const char *unit;         /* what the values are, beside the colour bar; NULL: nothing */
    bool no_bar;              /* the colour bar of another panel is enough */
    const char *const *texts; /* [rows,cols] in the cells; may be NULL */
    const char *const *row_names, *const *col_names; /* beside the cells; may be NULL         */
    bool numbered;                                   /* axes with the numbers of the cells ...   */
    double first_row, first_col;                     /* ... of which these are the first         */
} panel_heat;

/* NAN is left out. */
typedef struct curve {
    const char *name;
    int n;
    const double *x, *y;
} curve;

typedef struct panel_curves {
    int n;
    const curve *at;
    bool logarithmic;   /* both axes, with a tick at each x of the first curve */
    bool whole;         /* x are whole numbers, and so are the ticks           */
    bool plain;         /* lines only; else with a marker at each point        */
    double least, most; /* the range of y; equal: that of the curves */
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
    double most; /* the value at the right end of the axis; 0: the largest */
} panel_bars;

/* An orange frame, in pixels of an image or cells of a map. */
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
    const char *title, *across,
        *up;           /* above, and labels of the axes with their units; may be NULL */
    int width, height; /* of the plot in pixels; 0: as usual for the kind */
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
    const char *note;  /* below the title: how to read it; may be NULL  */
    int down, across;
    const panel *at; /* [down,across], row by row */
} picture;

/* Draws a picture into a file whose name ends in .png or .svg; it is written beside, synced and renamed.
 * Several pictures can share the process g; NULL: one for this picture. False with the reason in why,
 * which begins with the path; a former file is then unchanged. */
bool picture_draw(gnuplot *g, const picture *p, const char *path, char *why, size_t size);

#endif
