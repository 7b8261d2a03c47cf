/* regions.c - regions of a batch, and the samples of proposals that the heads of Mask R-CNN are trained with. */
#include <stdlib.h>
#include <string.h>

#include "inner.h"

bool tp__regions_new(tp_tape *T, tp_regions *r, int64_t images, int64_t n)
{
    *r = (tp_regions){ .images = images };
    r->start = tp__detection_alloc(T, images + 1, sizeof *r->start);
    r->box = tp__detection_alloc(T, n, sizeof *r->box);
    r->score = tp__detection_alloc(T, n, sizeof *r->score);
    r->category = tp__detection_alloc(T, n, sizeof *r->category);
    r->object = tp__detection_alloc(T, n, sizeof *r->object);
    if (r->start && r->box && r->score && r->category && r->object) return true;
    tp_regions_free(r);
    return false;
}

void tp_regions_free(tp_regions *r)
{
    if (!r) return;
    free(r->start);
    free(r->box);
    free(r->score);
    free(r->category);
    free(r->object);
    *r = (tp_regions){ 0 };
}

/* Memory for one image: n candidates, of which `samples` are taken. */
typedef struct scratch {
    int64_t n;
    tp_corners *box;
    double *iou;
    int64_t *match, *index;
    int *label;
} scratch;

static void release(scratch *s)
{
    free(s->box);
    free(s->iou);
    free(s->match);
    free(s->index);
    free(s->label);
}

static bool reserve(tp_tape *T, scratch *s, int64_t n, int64_t objects, int64_t samples)
{
    *s = (scratch){ .n = n };
    s->box = tp__detection_alloc(T, n, sizeof *s->box);
    s->iou = tp__detection_alloc(T, n * objects, sizeof *s->iou);
    s->match = tp__detection_alloc(T, n, sizeof *s->match);
    s->index = tp__detection_alloc(T, samples, sizeof *s->index);
    s->label = tp__detection_alloc(T, n, sizeof *s->label);
    return s->box && s->iou && s->match && s->index && s->label;
}

/* Samples the candidates of an image and appends them to `to`. */
static bool sample(tp_tape *T, const tp_mask_rcnn_cfg *c, const tp_detection_in *in,
                   const tp_objects *o, scratch *s, tp_regions *to)
{
    const int background = (int)c->box.classes;
    const tp_sampler sampler = { c->samples, c->positive, in->sampling, { NULL, NULL } };
    int64_t positive;
    tp_corners_iou_all(o->box, o->n, s->box, s->n, s->iou);
    tp_match(&c->matcher, s->iou, o->n, s->n, s->match, s->label);
    for (int64_t i = 0; i < s->n; i++)
        s->label[i] = s->label[i] == 1   ? o->category[s->match[i]]
                      : s->label[i] == 0 ? background
                                         : -1;
    const int64_t n =
        tp_sample(&sampler, s->label, s->n, background, in->random, s->index, &positive);
    for (int64_t i = 0; i < n; i++, to->n++) {
        to->box[to->n] = s->box[s->index[i]];
        to->category[to->n] = s->label[s->index[i]];
        to->object[to->n] = o->n ? s->match[s->index[i]] : -1;
    }
    if (n < 0) tp_raise(T, TP_E_MEMORY, "Mask R-CNN: no memory to sample regions");
    return n >= 0;
}

bool tp__regions_sample(tp_tape *T, const tp_mask_rcnn_cfg *c, const tp_detection_in *in,
                        const tp_regions *proposals, tp_regions *sampled)
{
    bool done = tp__regions_new(T, sampled, proposals->images, proposals->images * c->samples);
    for (int64_t b = 0; done && b < proposals->images; b++) {
        const tp_objects *o = &in->objects[b];
        const int64_t n = proposals->start[b + 1] - proposals->start[b];
        scratch s;
        done = reserve(T, &s, n + (c->append ? o->n : 0), o->n, c->samples);
        if (done) {
            if (n) memcpy(s.box, proposals->box + proposals->start[b], (size_t)n * sizeof *s.box);
            if (s.n > n) memcpy(s.box + n, o->box, (size_t)o->n * sizeof *s.box);
            done = sample(T, c, in, o, &s, sampled);
        }
        release(&s);
        if (done) sampled->start[b + 1] = sampled->n;
    }
    if (!done) tp_regions_free(sampled);
    return done;
}
