/* scenes.h - the shapes of a drawn scene. */
#ifndef TP_SCENES_H
#define TP_SCENES_H

#include <tapegrad/random.h>
#include <tapegrad/scenes.h>

enum { TP_SHAPE_KINDS = 5, TP_SHAPE_POINTS = 24, TP_SHAPES = 64 };

typedef struct tp_shape_drawn {
    int kind, points;
    double xy[2 * TP_SHAPE_POINTS]; /* the outline, in pixels */
    double rgb[3];
} tp_shape_drawn;

typedef struct tp_scene {
    int64_t height, width;
    int shapes; /* later ones cover earlier ones */
    tp_shape_drawn shape[TP_SHAPES];
    double rgb[2][3]; /* of the background, at the top left and at the bottom right */
    tp_random noise;
} tp_scene;

const char *tp__shape_name(int kind);

/* Draws the numbers of scene i. cover has room for size x size bytes. */
void tp__scene_make(const tp_scenes_opts *o, int64_t i, tp_scene *s, uint8_t *cover);
/* Paints the scene into an image of its size. */
void tp__scene_paint(const tp_scene *s, tp_image *p);
/* The fraction of the pixel (x, y) that is inside a shape, of n x n samples. */
double tp__shape_cover(const tp_shape_drawn *s, int64_t x, int64_t y, int n);

#endif
