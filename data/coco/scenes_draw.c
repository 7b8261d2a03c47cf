/* scenes_draw.c - the shapes of a scene, and its pixels. */
#include <math.h>
#include <string.h>

#include "scenes.h"

static const double turn = 6.283185307179586;
/* Of each shape, at least this fraction stays visible. */
static const double visible = 0.6;
enum { TRIES = 30 };

const char *tp__shape_name(int kind)
{
    static const char *const names[TP_SHAPE_KINDS] = { "disc", "square", "triangle", "cross",
                                                       "star" };
    return names[kind];
}

/* ---- outlines ---- */

/* The vertices of a kind around the origin, within a circle of radius 1. */
static int outline(int kind, double (*at)[2])
{
    static const double cross[12][2] = { { -0.3, -0.95 }, { 0.3, -0.95 },  { 0.3, -0.3 },
                                         { 0.95, -0.3 },  { 0.95, 0.3 },   { 0.3, 0.3 },
                                         { 0.3, 0.95 },   { -0.3, 0.95 },  { -0.3, 0.3 },
                                         { -0.95, 0.3 },  { -0.95, -0.3 }, { -0.3, -0.3 } };
    static const int corners[TP_SHAPE_KINDS] = { TP_SHAPE_POINTS, 4, 3, 12, 10 };
    const int n = corners[kind];
    for (int k = 0; k < n; k++) {
        const double r = kind == 4 && k % 2 ? 0.45 : 1, angle = turn * k / n;
        at[k][0] = kind == 3 ? cross[k][0] : r * sin(angle);
        at[k][1] = kind == 3 ? cross[k][1] : -r * cos(angle);
    }
    return n;
}

/* Coordinates are rounded to hundredths, so that files in decimal notation hold them exactly enough. */
static void place(tp_shape_drawn *s, tp_random *r, int64_t height, int64_t width)
{
    double at[TP_SHAPE_POINTS][2];
    const double side = (double)(height < width ? height : width);
    const double radius = side * tp_random_between(r, 0.08, 0.26),
                 slim = tp_random_between(r, 0.75, 1);
    const double angle = tp_random_uniform(r) * turn, c = radius * cos(angle),
                 d = radius * sin(angle);
    const double x = tp_random_between(r, radius + 1, (double)width - radius - 1);
    const double y = tp_random_between(r, radius + 1, (double)height - radius - 1);
    s->points = outline(s->kind, at);
    for (int k = 0; k < s->points; k++) {
        const double u = at[k][0], v = at[k][1] * slim;
        s->xy[2 * k] = round(100 * (x + u * c - v * d)) / 100;
        s->xy[2 * k + 1] = round(100 * (y + u * d + v * c)) / 100;
    }
}

/* ---- inside and outside ---- */

/* By the number of edges to the right of the point. */
static bool inside(const tp_shape_drawn *s, double x, double y)
{
    bool in = false;
    for (int k = 0, before = s->points - 1; k < s->points; before = k++) {
        const double *a = s->xy + 2 * k, *b = s->xy + 2 * before;
        if ((a[1] > y) != (b[1] > y) && x < a[0] + (y - a[1]) * (b[0] - a[0]) / (b[1] - a[1]))
            in = !in;
    }
    return in;
}

double tp__shape_cover(const tp_shape_drawn *s, int64_t x, int64_t y, int n)
{
    int hits = 0;
    for (int k = 0; k < n * n; k++)
        hits += inside(s, (double)x + (k % n + 0.5) / n, (double)y + (double)(k / n) / n + 0.5 / n);
    return (double)hits / (n * n);
}

/* The pixels that the shape's box touches. */
typedef struct extent {
    int64_t x1, y1, x2, y2;
} extent;

static extent extent_of(const tp_shape_drawn *s, int64_t height, int64_t width)
{
    extent e = { width, height, 0, 0 };
    for (int k = 0; k < s->points; k++) {
        const int64_t x = (int64_t)floor(s->xy[2 * k]), y = (int64_t)floor(s->xy[2 * k + 1]);
        if (x < e.x1) e.x1 = x > 0 ? x : 0;
        if (y < e.y1) e.y1 = y > 0 ? y : 0;
        if (x >= e.x2) e.x2 = x + 1 < width ? x + 1 : width;
        if (y >= e.y2) e.y2 = y + 1 < height ? y + 1 : height;
    }
    return e;
}

/* ---- a scene ---- */

/* The shapes on top so far: cover holds the number of the uppermost one at each pixel, from 1; 0: none. */
typedef struct canvas {
    uint8_t *cover;
    int64_t height, width;
    int64_t seen[TP_SHAPES + 1], whole[TP_SHAPES + 1];
} canvas;

/* Counts what shape number n would hide; then puts it on the canvas unless that is too much. */
static bool put(canvas *c, const tp_shape_drawn *s, int n)
{
    const extent e = extent_of(s, c->height, c->width);
    int64_t hidden[TP_SHAPES + 1] = { 0 }, pixels = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t y = e.y1; y < e.y2; y++)
            for (int64_t x = e.x1; x < e.x2; x++) {
                uint8_t *at = c->cover + y * c->width + x;
                if (tp__shape_cover(s, x, y, 1) == 0) continue;
                if (pass == 0)
                    hidden[*at]++, pixels++;
                else
                    *at = (uint8_t)n;
            }
        for (int k = 1; k < n && pass == 0; k++)
            if ((double)(c->seen[k] - hidden[k]) < visible * (double)c->whole[k]) return false;
    }
    for (int k = 1; k < n; k++) c->seen[k] -= hidden[k];
    c->seen[n] = c->whole[n] = pixels;
    return true;
}

static double distance(const double a[3], const double b[3])
{
    return fabs(a[0] - b[0]) + fabs(a[1] - b[1]) + fabs(a[2] - b[2]);
}

static void draw_colour(tp_random *r, double rgb[3])
{
    for (int c = 0; c < 3; c++) rgb[c] = tp_random_between(r, 20, 235);
}

void tp__scene_make(const tp_scenes_opts *o, int64_t i, tp_scene *s, uint8_t *cover)
{
    static const char *const purposes[] = { "scene train", "scene valid", "scene test" };
    tp_random r = tp_random_stream(o->seed, purposes[o->part], (uint64_t)i, 0);
    const int64_t form = tp_random_below(&r, 3), short_side = o->size * 3 / 4;
    const int64_t shapes = o->least + tp_random_below(&r, o->most - o->least + 1);
    s->height = form == 1 ? short_side : o->size;
    s->width = form == 2 ? short_side : o->size;
    s->shapes = 0;
    draw_colour(&r, s->rgb[0]);
    for (int c = 0; c < 3; c++) s->rgb[1][c] = s->rgb[0][c] + tp_random_between(&r, -40, 40);
    canvas c = { cover, s->height, s->width, { 0 }, { 0 } };
    memset(cover, 0, (size_t)(s->height * s->width));
    for (int64_t k = 0; k < shapes; k++)
        for (int t = 0; t < TRIES; t++) {
            tp_shape_drawn *shape = &s->shape[s->shapes];
            shape->kind = (int)tp_random_below(&r, TP_SHAPE_KINDS);
            place(shape, &r, s->height, s->width);
            draw_colour(&r, shape->rgb);
            if (distance(shape->rgb, s->rgb[0]) < 120) continue;
            if (!put(&c, shape, s->shapes + 1)) continue;
            s->shapes++;
            break;
        }
    s->noise = tp_random_stream(o->seed, "scene noise", (uint64_t)i, (uint64_t)o->part);
}

/* ---- pixels ---- */

static uint8_t level(double v)
{
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v + 0.5);
}

static void paint_background(const tp_scene *s, tp_image *p)
{
    for (int64_t y = 0; y < s->height; y++)
        for (int64_t x = 0; x < s->width; x++) {
            const double t = (double)(x + y) / (double)(s->width + s->height);
            for (int c = 0; c < 3; c++)
                p->rgb[(y * s->width + x) * 3 + c] =
                    level(s->rgb[0][c] * (1 - t) + s->rgb[1][c] * t);
        }
}

static void paint_shape(const tp_scene *s, const tp_shape_drawn *shape, tp_image *p)
{
    const extent e = extent_of(shape, s->height, s->width);
    for (int64_t y = e.y1; y < e.y2; y++)
        for (int64_t x = e.x1; x < e.x2; x++) {
            const double t = tp__shape_cover(shape, x, y, 2);
            uint8_t *to = p->rgb + (y * s->width + x) * 3;
            for (int c = 0; c < 3 && t > 0; c++)
                to[c] = level((double)to[c] * (1 - t) + shape->rgb[c] * t);
        }
}

/* Adds up to 10 levels either way, the same to all three colours. */
static void add_noise(const tp_scene *s, tp_image *p)
{
    tp_random r = s->noise;
    uint32_t word = 0;
    for (int64_t k = 0; k < s->height * s->width; k++) {
        word = k % 4 ? word >> 8 : tp_random_word(&r);
        const double add = (double)(word & 255) / 255 * 20 - 10;
        for (int c = 0; c < 3; c++) p->rgb[3 * k + c] = level(p->rgb[3 * k + c] + add);
    }
}

void tp__scene_paint(const tp_scene *s, tp_image *p)
{
    paint_background(s, p);
    for (int k = 0; k < s->shapes; k++) paint_shape(s, &s->shape[k], p);
    add_noise(s, p);
}
