/* draw.h - draws boxes, masks and texts into images. */
#ifndef DRAW_H
#define DRAW_H

#include <tapegrad/image.h>
#include <tapegrad/rle.h>

typedef struct draw_colour {
    uint8_t rgb[3];
} draw_colour;

/* The colour of a category; neighbouring numbers differ clearly. */
draw_colour draw_colour_of(int category);

/* Draws a text in capitals on a bar of this colour with its top left corner at (x, y), clipped to
 * the image. Characters missing from the font appear as '?'. scale: pixels per dot. */
void draw_text(tp_image *p, const char *text, int64_t x, int64_t y, int scale, draw_colour c);

typedef struct draw_object {
    int category;
    const char *name;
    double score;  /* from 0 to 1; negative: none */
    double box[4]; /* x, y, w, h */
    tp_rle mask;   /* of the image's size; no runs: none */
} draw_object;

/* Draws tinted masks with contours, then boxes, then names with scores in percent. Earlier objects
 * are drawn on top; names avoid those of earlier objects. False: out of memory. */
bool draw_objects(tp_image *p, const draw_object *o, int64_t n);

#endif
