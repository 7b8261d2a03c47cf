/* draw.h - draws boxes, masks and texts into images. */
#ifndef DRAW_H
#define DRAW_H

#include <tapegrad/image.h>
#include <tapegrad/rle.h>

typedef struct draw_colour {
    uint8_t rgb[3];
} draw_colour;

/* A colour for each category, the same for equal numbers; neighbours differ clearly. */
draw_colour draw_colour_of(int category);

/* A text in capitals on a bar of the colour, whose top left corner is at (x, y); characters that the font lacks appear
 * as '?'. What lies outside the image is cut off. scale: pixels of a dot. */
void draw_text(tp_image *p, const char *text, int64_t x, int64_t y, int scale, draw_colour c);

typedef struct draw_object {
    int category;
    const char *name;
    double score;  /* from 0 to 1; below 0: none */
    double box[4]; /* x, y, w, h */
    tp_rle mask;   /* of the image's size; without runs: none */
} draw_object;

/* Draws masks, tinted and outlined, then the frames of boxes, then the names with the scores in percent. Of objects
 * that cover each other the first one is on top; names avoid those of objects before them. False: out of memory. */
bool draw_objects(tp_image *p, const draw_object *o, int64_t n);

#endif
