/* shapes.c - ten kinds of shapes and textures with random places, sizes, angles and colours,
 * on a background of another colour, with noise. Image i of a part is always the same.
 *
 * A kind is a function that tests whether a point is inside. Shapes are inside the square [-1,1] x
 * [-1,1]; textures fill the plane with a period of about 1. Four samples per pixel smooth the
 * edges. */
#include <math.h>
#include <stdlib.h>
#include <tapegrad/random.h>

#include "set.h"

enum { KINDS = 10, FIRST_TEXTURE = 6 };
static const char *const names[KINDS] = { "disc", "ring",    "square", "triangle", "cross",
                                          "star", "stripes", "checks", "dots",     "ripples" };
static const double turn = 6.283185307179586;

static bool inside(int kind, double u, double v)
{
    const double r = hypot(u, v);
    switch (kind) {
    case 0: return r < 1;
    case 1: return r < 1 && r > 0.55;
    case 2: return fabs(u) < 0.85 && fabs(v) < 0.85;
    case 3: return v > -0.6 && fabs(u) < (1 - v) * 0.62;
    case 4: return (fabs(u) < 0.28 || fabs(v) < 0.28) && fabs(u) < 1 && fabs(v) < 1;
    case 5: return r < 0.65 + 0.35 * cos(5 * atan2(u, v));
    case 6: return sin(turn * u) > 0;
    case 7: return (sin(turn * u / 1.5) > 0) == (sin(turn * v / 1.5) > 0);
    case 8: return hypot(u - floor(u) - 0.5, v - floor(v) - 0.5) < 0.32;
    default: return sin(turn * r) > 0;
    }
}

/* Maps pixels to the coordinates (u,v) of the shape. */
typedef struct pose {
    double x, y;         /* centre in pixels */
    double across, down; /* (u,v) of one pixel to the right */
} pose;

static pose draw_pose(tp_random *r, int kind, double side)
{
    const bool texture = kind >= FIRST_TEXTURE;
    const double room = texture ? 0.5 : 0.15;
    const double angle = tp_random_uniform(r) * turn;
    const double size =
        side * (texture ? tp_random_between(r, 0.16, 0.3) : tp_random_between(r, 0.22, 0.38));
    return (pose){ .x = side * (0.5 + tp_random_between(r, -room, room)),
                   .y = side * (0.5 + tp_random_between(r, -room, room)),
                   .across = cos(angle) / size,
                   .down = sin(angle) / size };
}

/* Returns the fraction of four samples in the pixel that are inside. */
static double cover(int kind, const pose *p, int64_t x, int64_t y)
{
    int hits = 0;
    for (int k = 0; k < 4; k++) {
        const double dx = (double)x + 0.25 + 0.5 * (k & 1) - p->x;
        const double dy = (double)y + 0.25 + 0.5 * (k >> 1) - p->y;
        hits += inside(kind, dx * p->across + dy * p->down, dy * p->across - dx * p->down);
    }
    return hits / 4.0;
}

/* Draws two colours that differ by at least 80 levels in one channel. */
static void draw_colours(tp_random *r, double back[3], double front[3])
{
    const int64_t apart = tp_random_below(r, 3);
    for (int c = 0; c < 3; c++) {
        back[c] = tp_random_between(r, 20, 235);
        front[c] = tp_random_between(r, 20, 235);
    }
    if (fabs(front[apart] - back[apart]) < 80)
        front[apart] = back[apart] + (back[apart] < 128 ? 100 : -100);
}

static void draw(void *env, int64_t i, tp_image *p)
{
    const tp_shapes *s = env;
    tp_random r = tp_random_stream(7, "shapes", (uint64_t)i, (uint64_t)s->part);
    const int kind = (int)(i % KINDS);
    double back[3], front[3];
    if (!tp_image_new(p, s->side, s->side)) return;
    draw_colours(&r, back, front);
    const pose at = draw_pose(&r, kind, (double)s->side);
    uint8_t *rgb = p->rgb;
    for (int64_t y = 0; y < s->side; y++)
        for (int64_t x = 0; x < s->side; x++) {
            const double share = cover(kind, &at, x, y), noise = 16 * (tp_random_uniform(&r) - 0.5);
            for (int c = 0; c < 3; c++)
                *rgb++ = (uint8_t)(back[c] + share * (front[c] - back[c]) + noise);
        }
}

tp_image_set *tp_image_set_shapes(int64_t count, int64_t side, tp_part part)
{
    int32_t *label = count > 0 ? malloc((size_t)count * sizeof *label) : NULL;
    for (int64_t i = 0; label && i < count; i++) label[i] = (int32_t)(i % KINDS);
    tp_image_set *X = tp_image_set_from(&(tp_image_source){ .count = label ? count : 0,
                                                            .classes = KINDS,
                                                            .names = names,
                                                            .label = label,
                                                            .draw = draw });
    free(label);
    if (!tp_image_set_ok(X)) return X;
    X->shapes = (tp_shapes){ .side = side, .part = part };
    X->source.env = &X->shapes;
    if (!label && count <= 0)
        tp__fail(X, "%lld shapes: at least one is needed", (long long)count);
    else if (!label)
        tp__fail(X, "out of memory for the labels of %lld shapes", (long long)count);
    return X;
}
