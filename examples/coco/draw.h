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

/* The frame of a box x, y, w, h, `thick` pixels wide, inside the image. */
void draw_box(tp_image *p, const double box[4], int thick, draw_colour c);
/* Mixes the pixels of a mask of the image's size with the colour. */
void draw_mask(tp_image *p, const tp_rle *mask, double opacity, draw_colour c);
/* A text in capitals on a bar of the colour, whose top left corner is at (x, y), moved into the image; characters that
 * the font lacks appear as '?'. scale: pixels of a dot. */
void draw_text(tp_image *p, const char *text, int64_t x, int64_t y, int scale, draw_colour c);
/* Height of that bar. */
int draw_text_height(int scale);

#endif
