/* rle_polygon.c - polygons to masks by COCO's rule.
 *
 * The outline is walked on a grid five times as fine as the pixels. Where a step changes the column of the grid in
 * the middle of a pixel's column, a run begins or ends: at the pixel below the crossing. All of it is integer
 * arithmetic except for the slope of an edge. The published code computes (u + 0.5) / 5 - 0.5 in double and tests
 * whether that is an integer, which it is exactly where u mod 5 is 2. */
#include <math.h>
#include <stdlib.h>

#include "rle.h"

enum { FINE = 5, MIDDLE = 2, FARTHEST = 1 << 20, STEPS = 1 << 24 };

typedef struct outline {
    int64_t height, width;
    uint32_t *crossing; /* pixels at which a run begins or ends */
    size_t count, room;
    int64_t u, v; /* the last point of the grid */
    bool begun, failed;
} outline;

static void cross(outline *o, int64_t x, int64_t y)
{
    if (o->count == o->room) {
        const size_t room = o->room ? 2 * o->room : 256;
        uint32_t *more = realloc(o->crossing, room * sizeof *more);
        o->failed |= !more;
        if (!more) return;
        o->crossing = more;
        o->room = room;
    }
    o->crossing[o->count++] = (uint32_t)(x * o->height + y);
}

/* Goes on to the point (u, v) of the grid. */
static void step(outline *o, int64_t u, int64_t v)
{
    const int64_t column = u < o->u ? u : u - 1, row = v < o->v ? v : o->v;
    if (o->begun && u != o->u && column >= MIDDLE && column % FINE == MIDDLE &&
        column / FINE < o->width) {
        const int64_t y = row > MIDDLE ? (row - MIDDLE + FINE - 1) / FINE : 0;
        cross(o, column / FINE, y < o->height ? y : o->height);
    }
    o->u = u;
    o->v = v;
    o->begun = true;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* An edge is computed from its left or upper end, whatever its direction. */
static void edge(outline *o, int64_t x0, int64_t y0, int64_t x1, int64_t y1)
{
    const int64_t dx = llabs(x1 - x0), dy = llabs(y1 - y0), n = larger(dx, dy);
    const bool flip = dx >= dy ? x0 > x1 : y0 > y1;
    const int64_t x = flip ? x1 : x0, y = flip ? y1 : y0;
    const double rise = (double)(flip ? y0 - y1 : y1 - y0),
                 run = (double)(flip ? x0 - x1 : x1 - x0);
    const double slope = n == 0 ? 0.0 : dx >= dy ? rise / (double)dx : run / (double)dy;
    for (int64_t d = 0; d <= n && !o->failed; d++) {
        const int64_t t = flip ? n - d : d;
        if (dx >= dy)
            step(o, x + t, (int64_t)((double)y + slope * (double)t + 0.5));
        else
            step(o, (int64_t)((double)x + slope * (double)t + 0.5), y + t);
    }
}

static int by_value(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Sorts the crossings and fills r with the runs between them; two equal ones cancel. */
static bool runs_between(tp_rle *r, outline *o)
{
    const uint32_t all = (uint32_t)(o->height * o->width);
    uint32_t before = 0;
    int64_t n = 0;
    if (o->count) qsort(o->crossing, o->count, sizeof *o->crossing, by_value);
    if (!tp__rle_new(r, o->height, o->width, (int64_t)o->count + 1)) return false;
    for (size_t i = 0; i <= o->count; i++) {
        const uint32_t at = i < o->count ? o->crossing[i] : all, length = at - before;
        before = at;
        if (length || i == 0) {
            r->run[n++] = length;
        } else if (i < o->count) {
            const uint32_t next = i + 1 < o->count ? o->crossing[i + 1] : all;
            r->run[n - 1] += next - at;
            before = next;
            i++;
        }
    }
    r->runs = n;
    return true;
}

static int64_t on_grid(double x)
{
    return (int64_t)(FINE * x + 0.5);
}

/* True if no coordinate is beyond 2^20 and the outline is not too long. */
static bool modest(const double *xy, int64_t points)
{
    double steps = 0.0;
    for (int64_t i = 0; i < points; i++) {
        const double *a = xy + 2 * i, *b = xy + 2 * ((i + 1) % points);
        if (!(fabs(a[0]) <= FARTHEST && fabs(a[1]) <= FARTHEST)) return false;
        steps += FINE * fmax(fabs(a[0] - b[0]), fabs(a[1] - b[1])) + 1.0;
    }
    return steps <= STEPS;
}

bool tp_rle_from_polygon(tp_rle *r, const double *xy, int64_t points, int64_t height, int64_t width)
{
    outline o = { .height = height, .width = width };
    *r = (tp_rle){ 0 };
    if (height < 1 || width < 1 || height > TP_RLE_PIXELS / width || !modest(xy, points))
        return false;
    for (int64_t i = 0; i < points && points > 2; i++) {
        const double *a = xy + 2 * i, *b = xy + 2 * ((i + 1) % points);
        edge(&o, on_grid(a[0]), on_grid(a[1]), on_grid(b[0]), on_grid(b[1]));
    }
    const bool done = !o.failed && runs_between(r, &o);
    free(o.crossing);
    return done;
}

bool tp_rle_from_box(tp_rle *r, const double box[4], int64_t height, int64_t width)
{
    const double x0 = box[0], y0 = box[1], x1 = x0 + box[2], y1 = y0 + box[3];
    const double xy[] = { x0, y0, x0, y1, x1, y1, x1, y0 };
    return tp_rle_from_polygon(r, xy, 4, height, width);
}
