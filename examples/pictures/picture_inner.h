/* picture_inner.h - shared by picture*.c: the sheet that panels are drawn on, and its texts. Lengths
 * are pixels, positions are from the top left. */
#ifndef PICTURE_INNER_H
#define PICTURE_INNER_H

#include <stdio.h>

#include "picture.h"

typedef struct sheet {
    FILE *f; /* the script */
    bool svg;
    double width, height;
} sheet;

/* Where the plot of a panel is, or the room around it for its texts. */
typedef struct place {
    double x, y, width, height;
} place;
typedef struct margins {
    double left, right, top, bottom;
} margins;

/* Font sizes: texts, numbers in maps and at axes, the title. */
enum { FONT = 12, SMALL = 11, LARGE = 15 };

/* ---- picture_text.c ---- */
double text_width(const char *text, double font); /* an estimate; 0 for NULL */
/* Writes some bytes of a text as a gnuplot string, cut to that width. tic: percent signs are doubled,
 * because labels of tics are formats. */
void put_text(sheet *s, const char *text, size_t bytes, double font, double width, bool tic);
/* The next line of a text that is wrapped to a width: moves *text to it and returns its bytes; 0: that
 * was all. */
size_t next_line(const char **text, double font, double width);

/* ---- picture.c ---- */
void put_font(sheet *s, double font);
/* Sets a label whose left end is at that position, cut to a width. */
void put_label(sheet *s, const char *text, size_t bytes, double x, double y, double font,
               double width);

/* ---- picture_maps.c ---- */
void image_size(const panel *p, double *width, double *height);
void put_image(sheet *s, const panel *p);
void heat_size(const panel *p, double *width, double *height, margins *m);
void put_heat(sheet *s, const panel *p, place at);

/* ---- picture_panels.c ---- */
/* Sets a label whose centre is at that position. gnuplot would place those of axes by the width of numbers
 * and names, which it only estimates. */
void put_centred(sheet *s, const char *text, double x, double y, double font, double width,
                 int degrees);
void panel_size(const panel *p, double *width, double *height, margins *m);
/* Draws a panel; labels that were set before appear with it. */
void panel_put(sheet *s, const panel *p, place at);

#endif
