/* picture_inner.h - shared by picture*.c: the sheet that panels are drawn on, and its texts.
 * Lengths are in pixels, positions from the top left. */
#ifndef PICTURE_INNER_H
#define PICTURE_INNER_H

#include <stdio.h>

#include "picture.h"

typedef struct sheet {
    FILE *f; /* the script */
    bool svg;
    double width, height;
} sheet;

/* Position of a panel's plot, or the room around it for its texts. */
typedef struct place {
    double x, y, width, height;
} place;
typedef struct margins {
    double left, right, top, bottom;
} margins;

/* Font sizes: texts, numbers in maps and at axes, the title. */
enum { FONT = 12, SMALL = 11, LARGE = 15 };

/* ---- picture.c: texts ---- */
double text_width(const char *text, double font); /* an estimate; 0 for NULL */
/* Writes bytes of a text as a gnuplot string, cut to width. tic: doubles percent signs, because tic
 * labels are formats. */
void put_text(sheet *s, const char *text, size_t bytes, double font, double width, bool tic);
/* Moves *text to the next line of a text wrapped to width. Returns its bytes; 0: the end. */
size_t next_line(const char **text, double font, double width);

/* ---- picture.c ---- */
void put_font(sheet *s, double font);
/* Sets a label with its left end at this position, cut to width. */
void put_label(sheet *s, const char *text, size_t bytes, double x, double y, double font,
               double width);

/* ---- picture_panels.c: maps ---- */
void image_size(const panel *p, double *width, double *height);
void put_image(sheet *s, const panel *p);
void heat_size(const panel *p, double *width, double *height, margins *m);
void put_heat(sheet *s, const panel *p, place at);

/* ---- picture_panels.c ---- */
/* Sets a label centred at this position. gnuplot would place axis labels by the width of numbers
 * and names, which it only estimates. */
void put_centred(sheet *s, const char *text, double x, double y, double font, double width,
                 int degrees);
void panel_size(const panel *p, double *width, double *height, margins *m);
/* Draws a panel, together with labels set before. */
void panel_put(sheet *s, const panel *p, place at);

/* The style of all pictures, in gnuplot's language. scripts/plot.sh also reads these strings, so
 * each is on its own line. Series 10 to 18 repeat the nine colours with dashed lines and other
 * marks. */
#define PICTURE_STYLE                                                                              \
    "set encoding utf8\n"                                                                          \
    "set border 3 lw 1 lc rgb '#606060'\n"                                                         \
    "set tics nomirror tc rgb '#202020'\n"                                                         \
    "set format xy '%.10g'\n"                                                                      \
    "set grid lt 1 lw 0.5 lc rgb '#e0e0e0'\n"                                                      \
    "set linetype 1 lc rgb '#1f77b4' lw 2 pt 7 ps 0.7\n"                                           \
    "set linetype 2 lc rgb '#d62728' lw 2 pt 5 ps 0.7\n"                                           \
    "set linetype 3 lc rgb '#2ca02c' lw 2 pt 9 ps 0.8\n"                                           \
    "set linetype 4 lc rgb '#ff7f0e' lw 2 pt 11 ps 0.8\n"                                          \
    "set linetype 5 lc rgb '#9467bd' lw 2 pt 13 ps 0.8\n"                                          \
    "set linetype 6 lc rgb '#8c564b' lw 2 pt 6 ps 0.8\n"                                           \
    "set linetype 7 lc rgb '#17becf' lw 2 pt 4 ps 0.8\n"                                           \
    "set linetype 8 lc rgb '#000000' lw 2 pt 8 ps 0.8\n"                                           \
    "set linetype 9 lc rgb '#bcbd22' lw 2 pt 10 ps 0.8\n"                                          \
    "set linetype 10 lc rgb '#1f77b4' lw 2 dt (6,3) pt 6 ps 0.8\n"                                 \
    "set linetype 11 lc rgb '#d62728' lw 2 dt (6,3) pt 4 ps 0.8\n"                                 \
    "set linetype 12 lc rgb '#2ca02c' lw 2 dt (6,3) pt 8 ps 0.8\n"                                 \
    "set linetype 13 lc rgb '#ff7f0e' lw 2 dt (6,3) pt 10 ps 0.8\n"                                \
    "set linetype 14 lc rgb '#9467bd' lw 2 dt (6,3) pt 12 ps 0.8\n"                                \
    "set linetype 15 lc rgb '#8c564b' lw 2 dt (6,3) pt 7 ps 0.8\n"                                 \
    "set linetype 16 lc rgb '#17becf' lw 2 dt (6,3) pt 5 ps 0.8\n"                                 \
    "set linetype 17 lc rgb '#000000' lw 2 dt (6,3) pt 9 ps 0.8\n"                                 \
    "set linetype 18 lc rgb '#bcbd22' lw 2 dt (6,3) pt 11 ps 0.8\n"                                \
    "set linetype cycle 18\n"

#endif
