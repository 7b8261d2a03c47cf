/* shapes.h - pictures of ten kinds of shapes and textures, drawn by the program itself: something
 * to classify where there are no data. */
#ifndef SHAPES_H
#define SHAPES_H

#include <tapegrad/pictures.h>

typedef struct shapes {
    int64_t side; /* pixels */
    tp_part part; /* parts have other pictures */
} shapes;

/* `count` pictures of side x side pixels, as many of each kind; s must outlive them. */
tp_pictures *shapes_open(shapes *s, int64_t count, int64_t side, tp_part part);

/* Picture i of them. */
void shapes_draw(const shapes *s, int64_t i, tp_image *p);

#endif
