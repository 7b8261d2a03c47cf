/* rle_polygon.c - converts polygons to masks by COCO's rule.
 *
 * The published code walks the outline on a grid five times as fine as the pixels. A step that
 * moves to another grid column in the middle of a pixel column begins or ends a run, at the pixel
 * below the crossing. Here bisection finds the step that crosses the middle of a column, so
 * whatever is outside the image costs nothing. All arithmetic is in integers, except for the slope
 * of an edge. The published code tests whether the double (u + 0.5) / 5 - 0.5 is an integer; it is
 * exactly where u mod 5 is 2. */
#include <math.h>
#include <stdlib.h>

#include "kit.h"
#include "rle.h"

enum { FINE = 5, MIDDLE = 2, CROWDED = 1 << 20 };
/* Up to here a point of an edge is exact to a tenth of the grid. */
static const double farthest = 0x1p45;

/* ---- crossings ---- */

typedef struct outline {
    int64_t height, width;
    uint32_t *crossing; /* pixels at which a run begins or ends */
    size_t count, room;
    bool failed;
} outline;

static int by_value(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Sorts the crossings; two equal ones cancel. */
static void sort(outline *o)
{
    size_t n = 0;
    if (o->count) qsort(o->crossing, o->count, sizeof *o->crossing, by_value);
    for (size_t i = 0; i < o->count; i++) {
        if (n > 0 && o->crossing[n - 1] == o->crossing[i])
            n--;
        else
            o->crossing[n++] = o->crossing[i];
    }
    o->count = n;
}

/* There are no more different crossings than pixels: memory does not grow with the outline. */
static bool make_room(outline *o)
{
    if (o->count >= CROWDED) sort(o);
    return (o->room && o->count <= o->room / 2) ||
           tp_reserve(&o->crossing, &o->room, o->room, 1, sizeof *o->crossing);
}

static void cross(outline *o, int64_t x, int64_t y)
{
    o->failed = o->failed || (o->count == o->room && !make_room(o));
    if (!o->failed) o->crossing[o->count++] = (uint32_t)(x * o->height + y);
}

/* ---- edges ---- */

/* An edge: points t = 0 ... n of the grid, from its left or upper end, whatever its direction. */
typedef struct edge {
    int64_t x, y, n; /* of point 0 */
    double slope;
    bool steep;
} edge;

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t u_of(const edge *e, int64_t t)
{
    return e->steep ? (int64_t)((double)e->x + e->slope * (double)t + 0.5) : e->x + t;
}

static int64_t v_of(const edge *e, int64_t t)
{
    return e->steep ? e->y + t : (int64_t)((double)e->y + e->slope * (double)t + 0.5);
}

/* Returns the first point beyond column c of the grid; all points beyond it are on one side. */
static int64_t point_beyond(const edge *e, int64_t c)
{
    const bool rises = !e->steep || e->slope >= 0.0;
    int64_t from = 1, to = e->n;
    if (!e->steep) return c + 1 - e->x;
    while (from < to) {
        const int64_t t = from + (to - from) / 2;
        if (rises ? u_of(e, t) > c : u_of(e, t) <= c)
            to = t;
        else
            from = t + 1;
    }
    return from;
}

/* Adds the crossings of the edge from (x0, y0) to (x1, y1). */
static void add_edge(outline *o, int64_t x0, int64_t y0, int64_t x1, int64_t y1)
{
    const int64_t dx = llabs(x1 - x0), dy = llabs(y1 - y0), n = larger(dx, dy);
    const bool flip = dx >= dy ? x0 > x1 : y0 > y1;
    const double rise = (double)(flip ? y0 - y1 : y1 - y0),
                 run = (double)(flip ? x0 - x1 : x1 - x0);
    const edge e = { .x = flip ? x1 : x0,
                     .y = flip ? y1 : y0,
                     .n = n,
                     .slope = n == 0     ? 0.0
                              : dx >= dy ? rise / (double)dx
                                         : run / (double)dy,
                     .steep = dx < dy };
    const int64_t a = u_of(&e, 0), b = u_of(&e, n);
    const int64_t first = larger(smaller(a, b) + FINE - 1 - MIDDLE, 0) / FINE;
    const int64_t end = smaller((larger(a, b) + FINE - 1 - MIDDLE) / FINE, o->width);
    for (int64_t column = first; column < end && !o->failed; column++) {
        const int64_t c = FINE * column + MIDDLE, t = point_beyond(&e, c);
        const int64_t from = u_of(&e, flip ? t : t - 1), to = u_of(&e, flip ? t - 1 : t);
        if ((to < from ? to : to - 1) != c) continue; /* rounding can skip a column */
        const int64_t row = smaller(v_of(&e, t - 1), v_of(&e, t));
        const int64_t y = row > MIDDLE ? (row - MIDDLE + FINE - 1) / FINE : 0;
        cross(o, column, smaller(y, o->height));
    }
}

/* ---- polygons ---- */

/* Fills r with the runs between the crossings. */
static bool runs_between(tp_rle *r, outline *o)
{
    const uint32_t all = (uint32_t)(o->height * o->width);
    uint32_t before = 0;
    int64_t n = 0;
    sort(o);
    if (!tp__rle_new(r, o->height, o->width, (int64_t)o->count + 1)) return false;
    for (size_t i = 0; i <= o->count; i++) {
        const uint32_t at = i < o->count ? o->crossing[i] : all;
        if (at > before || i == 0) r->run[n++] = at - before;
        before = at;
    }
    r->runs = n;
    return true;
}

static int64_t on_grid(double x)
{
    return (int64_t)(FINE * fmax(-farthest, fmin(x, farthest)) + 0.5);
}

bool tp_rle_from_polygon(tp_rle *r, const double *xy, int64_t points, int64_t height, int64_t width)
{
    if (!r) return false;
    outline o = { .height = height, .width = width };
    *r = (tp_rle){ 0 };
    if (height < 1 || width < 1 || height > TP_RLE_PIXELS / width) return false;
    for (int64_t i = 0; i < 2 * points; i++)
        if (isnan(xy[i])) return false;
    for (int64_t i = 0; i < points && points > 2; i++) {
        const double *a = xy + 2 * i, *b = xy + 2 * ((i + 1) % points);
        add_edge(&o, on_grid(a[0]), on_grid(a[1]), on_grid(b[0]), on_grid(b[1]));
    }
    const bool done = !o.failed && runs_between(r, &o);
    free(o.crossing);
    return done;
}

bool tp_rle_from_box(tp_rle *r, const double box[4], int64_t height, int64_t width)
{
    if (!r) return false;
    const double x0 = box[0], y0 = box[1], x1 = x0 + box[2], y1 = y0 + box[3];
    const double xy[] = { x0, y0, x0, y1, x1, y1, x1, y0 };
    return tp_rle_from_polygon(r, xy, 4, height, width);
}
