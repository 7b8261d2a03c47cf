/* scenes.c - drawn scenes: their shapes, their pixels and their annotations. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/random.h>
#include <tapegrad/scenes.h>

#include "coco.h"
#include "kit.h"

enum { KINDS = 5, POINTS = 24, SHAPES = 64 };

typedef struct drawn_shape {
    int kind, points;
    double xy[2 * POINTS]; /* the outline, in pixels */
    double rgb[3];
} drawn_shape;

typedef struct scene {
    int64_t height, width;
    int shapes; /* later ones cover earlier ones */
    drawn_shape shape[SHAPES];
    double rgb[2][3]; /* background, at the top left and the bottom right */
    tp_random noise;
} scene;

static const double turn = 6.283185307179586;
/* At least this fraction of each shape stays visible. */
static const double visible = 0.6;
enum { TRIES = 30 };

static const char *shape_name(int kind)
{
    static const char *const names[KINDS] = { "disc", "square", "triangle", "cross", "star" };
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
    static const int corners[KINDS] = { POINTS, 4, 3, 12, 10 };
    const int n = corners[kind];
    for (int k = 0; k < n; k++) {
        const double r = kind == 4 && k % 2 ? 0.45 : 1, angle = turn * k / n;
        at[k][0] = kind == 3 ? cross[k][0] : r * sin(angle);
        at[k][1] = kind == 3 ? cross[k][1] : -r * cos(angle);
    }
    return n;
}

/* Rounds coordinates to hundredths, so that decimal files hold them exactly enough. */
static void place(drawn_shape *s, tp_random *r, int64_t height, int64_t width)
{
    double at[POINTS][2];
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

/* Counts the edges to the right of the point. */
static bool inside(const drawn_shape *s, double x, double y)
{
    bool in = false;
    for (int k = 0, before = s->points - 1; k < s->points; before = k++) {
        const double *a = s->xy + 2 * k, *b = s->xy + 2 * before;
        if ((a[1] > y) != (b[1] > y) && x < a[0] + (y - a[1]) * (b[0] - a[0]) / (b[1] - a[1]))
            in = !in;
    }
    return in;
}

/* Returns the fraction of the pixel (x, y) inside the shape, from n x n samples. */
static double cover_of(const drawn_shape *s, int64_t x, int64_t y, int n)
{
    int hits = 0;
    for (int k = 0; k < n * n; k++)
        hits += inside(s, (double)x + (k % n + 0.5) / n, (double)y + (double)(k / n) / n + 0.5 / n);
    return (double)hits / (n * n);
}

/* The pixels that a shape's box touches. */
typedef struct extent {
    int64_t x1, y1, x2, y2;
} extent;

static extent extent_of(const drawn_shape *s, int64_t height, int64_t width)
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

/* The shapes so far. cover: number of the topmost shape at each pixel, from 1; 0: none. */
typedef struct canvas {
    uint8_t *cover;
    int64_t height, width;
    int64_t seen[SHAPES + 1], whole[SHAPES + 1];
} canvas;

/* Counts the pixels that shape n would hide; draws it on the canvas unless they are too many. */
static bool put(canvas *c, const drawn_shape *s, int n)
{
    const extent e = extent_of(s, c->height, c->width);
    int64_t hidden[SHAPES + 1] = { 0 }, pixels = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t y = e.y1; y < e.y2; y++)
            for (int64_t x = e.x1; x < e.x2; x++) {
                uint8_t *at = c->cover + y * c->width + x;
                if (cover_of(s, x, y, 1) == 0) continue;
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

/* Makes scene i. cover has room for size x size bytes. */
static void make_scene(const tp_scenes_opts *o, int64_t i, scene *s, uint8_t *cover)
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
            drawn_shape *shape = &s->shape[s->shapes];
            shape->kind = (int)tp_random_below(&r, KINDS);
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

static void paint_background(const scene *s, tp_image *p)
{
    for (int64_t y = 0; y < s->height; y++)
        for (int64_t x = 0; x < s->width; x++) {
            const double t = (double)(x + y) / (double)(s->width + s->height);
            for (int c = 0; c < 3; c++)
                p->rgb[(y * s->width + x) * 3 + c] =
                    level(s->rgb[0][c] * (1 - t) + s->rgb[1][c] * t);
        }
}

static void paint_shape(const scene *s, const drawn_shape *shape, tp_image *p)
{
    const extent e = extent_of(shape, s->height, s->width);
    for (int64_t y = e.y1; y < e.y2; y++)
        for (int64_t x = e.x1; x < e.x2; x++) {
            const double t = cover_of(shape, x, y, 2);
            uint8_t *to = p->rgb + (y * s->width + x) * 3;
            for (int c = 0; c < 3 && t > 0; c++)
                to[c] = level((double)to[c] * (1 - t) + shape->rgb[c] * t);
        }
}

/* Adds up to 10 levels either way, equally to all three colours. */
static void add_noise(const scene *s, tp_image *p)
{
    tp_random r = s->noise;
    uint32_t word = 0;
    for (int64_t k = 0; k < s->height * s->width; k++) {
        word = k % 4 ? word >> 8 : tp_random_word(&r);
        const double add = (double)(word & 255) / 255 * 20 - 10;
        for (int c = 0; c < 3; c++) p->rgb[3 * k + c] = level(p->rgb[3 * k + c] + add);
    }
}

/* Paints the scene into an image of its size. */
static void paint_scene(const scene *s, tp_image *p)
{
    paint_background(s, p);
    for (int k = 0; k < s->shapes; k++) paint_shape(s, &s->shape[k], p);
    add_noise(s, p);
}

/* ---- annotations ---- */

struct tp_scenes {
    tp_scenes_opts o;
    tp_coco *coco;
    char why[256];
};

TP_FAILS(tp_scenes, no_memory, "scenes: out of memory", "scenes: NULL was given in place of scenes")

static void box_of(const drawn_shape *s, double box[4])
{
    double lo[2] = { s->xy[0], s->xy[1] }, hi[2] = { s->xy[0], s->xy[1] };
    for (int k = 0; k < 2 * s->points; k++) {
        lo[k % 2] = fmin(lo[k % 2], s->xy[k]);
        hi[k % 2] = fmax(hi[k % 2], s->xy[k]);
    }
    for (int a = 0; a < 2; a++) {
        box[a] = lo[a];
        box[2 + a] = hi[a] - lo[a];
    }
}

/* The shoelace formula: half the sum of cross products. */
static double area_of(const drawn_shape *s)
{
    double sum = 0;
    for (int k = 0; k < s->points; k++) {
        const double *a = s->xy + 2 * k, *b = s->xy + 2 * ((k + 1) % s->points);
        sum += a[0] * b[1] - b[0] * a[1];
    }
    return fabs(sum) / 2;
}

static bool add_shape(tp_coco *X, int64_t image, const drawn_shape *s)
{
    tp_coco_raw *r = tp__coco_object(X);
    if (!r) return false;
    r->o.id = (int64_t)X->raws.count;
    r->o.image = image;
    r->o.form = TP_COCO_POLYGONS;
    r->o.area = area_of(s);
    r->category = s->kind + 1;
    box_of(s, r->o.box);
    const tp_coco_part *part =
        tp__coco_part(X, &r->o, &X->numbers, 2 * (int64_t)s->points, sizeof(double));
    if (!part) return false;
    double *to = (double *)X->numbers.items + part->first;
    for (int k = 0; k < 2 * s->points; k++) to[k] = s->xy[k];
    return true;
}

static void annotate(tp_scenes *S)
{
    tp_coco *X = S->coco;
    uint8_t *cover = malloc((size_t)(S->o.size * S->o.size));
    scene *s = malloc(sizeof *s);
    if (!cover || !s) tp__coco_fail(X, "scenes: out of memory");
    for (int k = 0; k < KINDS; k++) tp__coco_category(X, k + 1, shape_name(k));
    for (int64_t i = 0; i < S->o.images && tp_coco_ok(X); i++) {
        char name[40];
        make_scene(&S->o, i, s, cover);
        snprintf(name, sizeof name, "scene_%06lld.png", (long long)i);
        tp__coco_image(X, i + 1, s->height, s->width, name);
        for (int k = 0; k < s->shapes && tp_coco_ok(X); k++) add_shape(X, i + 1, &s->shape[k]);
    }
    tp__coco_finish(X, NULL);
    free(cover);
    free(s);
}

static tp_scenes_opts complete(const tp_scenes_opts *o)
{
    tp_scenes_opts c = o ? *o : (tp_scenes_opts){ 0 };
    if (c.images == 0) c.images = 1000;
    if (c.size == 0) c.size = 128;
    if (c.least == 0) c.least = 1;
    if (c.most == 0) c.most = 6;
    return c;
}

tp_scenes *tp_scenes_new(const tp_scenes_opts *o)
{
    tp_scenes *S = calloc(1, sizeof *S);
    if (!S) return &no_memory;
    S->o = complete(o);
    const tp_scenes_opts *c = &S->o;
    if (c->images < 1 || c->images > 10000000 || c->size < 32 || c->size > 4096 || c->least < 1 ||
        c->most < c->least || c->most > SHAPES) {
        snprintf(S->why, sizeof S->why,
                 "scenes: %lld scenes of size %lld with %lld to %lld shapes cannot be drawn",
                 (long long)c->images, (long long)c->size, (long long)c->least, (long long)c->most);
        return S;
    }
    S->coco = tp__coco_new("scenes");
    annotate(S);
    if (!tp_coco_ok(S->coco)) snprintf(S->why, sizeof S->why, "%.200s", tp_coco_why(S->coco));
    return S;
}

void tp_scenes_free(tp_scenes *S)
{
    if (!S || S == &no_memory) return;
    tp_coco_close(S->coco);
    free(S);
}

const tp_coco *tp_scenes_coco(const tp_scenes *S)
{
    if (!S) return NULL;
    return S->coco;
}

bool tp_scenes_draw(const tp_scenes *S, int64_t i, tp_image *p)
{
    if (!S) return false;
    const tp_coco_image *image = tp_coco_image_at(S->coco, i);
    uint8_t *cover = malloc((size_t)(S->o.size * S->o.size));
    scene *s = malloc(sizeof *s);
    const bool done = tp_image_new(p, image->width, image->height) && cover && s;
    if (done) {
        make_scene(&S->o, i, s, cover);
        paint_scene(s, p);
    } else if (!p->why[0]) {
        tp_image_free(p);
        snprintf(p->why, sizeof p->why, "out of memory for a scene");
    }
    free(cover);
    free(s);
    return done;
}
