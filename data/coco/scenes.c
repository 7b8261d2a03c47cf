/* scenes.c - drawn scenes as a set of annotations. */
#include "scenes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "coco.h"

struct tp_scenes {
    tp_scenes_opts o;
    tp_coco *coco;
    char why[256];
};

static tp_scenes no_memory = { .why = "scenes: out of memory" };

static void box_of(const tp_shape_drawn *s, double box[4])
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

/* Half of the sum of cross products (the shoelace formula). */
static double area_of(const tp_shape_drawn *s)
{
    double sum = 0;
    for (int k = 0; k < s->points; k++) {
        const double *a = s->xy + 2 * k, *b = s->xy + 2 * ((k + 1) % s->points);
        sum += a[0] * b[1] - b[0] * a[1];
    }
    return fabs(sum) / 2;
}

static bool add_shape(tp_coco *X, int64_t image, const tp_shape_drawn *s)
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
    tp_scene *s = malloc(sizeof *s);
    if (!cover || !s) tp__coco_fail(X, "scenes: out of memory");
    for (int k = 0; k < TP_SHAPE_KINDS; k++) tp__coco_category(X, k + 1, tp__shape_name(k));
    for (int64_t i = 0; i < S->o.images && tp_coco_ok(X); i++) {
        char name[40];
        tp__scene_make(&S->o, i, s, cover);
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
        c->most < c->least || c->most > TP_SHAPES) {
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

bool tp_scenes_ok(const tp_scenes *S)
{
    if (!S) return false;
    return !S->why[0];
}

const char *tp_scenes_why(const tp_scenes *S)
{
    if (!S) return "scenes: NULL was given in place of scenes";
    return S->why;
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
    tp_scene *s = malloc(sizeof *s);
    const bool done = tp_image_new(p, image->width, image->height) && cover && s;
    if (done) {
        tp__scene_make(&S->o, i, s, cover);
        tp__scene_paint(s, p);
    } else if (!p->why[0]) {
        tp_image_free(p);
        snprintf(p->why, sizeof p->why, "out of memory for a scene");
    }
    free(cover);
    free(s);
    return done;
}
