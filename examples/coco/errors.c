/* errors.c - sorts detections into kinds of errors. */
#include "errors.h"

#include <stdlib.h>
#include <tapegrad/rle.h>

static const double found_at = 0.5, near_at = 0.1;

const char *error_name(error_kind k)
{
    static const char *const names[ERROR_KINDS] = {
        "right", "duplicate", "wrong class", "wrong place", "class and place", "background"
    };
    return names[k];
}

/* The detections of one image that count, by descending score. */
typedef struct chosen {
    const tp_detection **at;
    int64_t n;
} chosen;

/* Equal scores: in the order of the list, as COCO's evaluation has them. */
static int by_image_and_score(const void *a, const void *b)
{
    const tp_detection *x = *(const tp_detection *const *)a, *y = *(const tp_detection *const *)b;
    if (x->image != y->image) return x->image < y->image ? -1 : 1;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return (x > y) - (x < y);
}

/* Judges one detection; taken [objects of the image]. */
static error_kind judge(const tp_coco *X, const tp_detection *d, bool *taken, bool *in_crowd)
{
    const tp_coco_image *image = tp_coco_image_at(X, d->image);
    double same = 0, other = 0;
    int64_t best = -1;
    bool free_one = false;
    *in_crowd = false;
    for (int64_t k = 0; k < image->objects; k++) {
        const tp_coco_object *o = tp_coco_object_at(X, image->first + k);
        const bool crowd = o->crowd || o->ignore;
        double iou;
        tp_box_iou_xywh(&d->box, 1, &o->box, 1, &crowd, &iou);
        if (crowd) {
            *in_crowd = *in_crowd || (o->category == d->category && iou >= found_at);
            continue;
        }
        if (o->category != d->category) {
            if (iou > other) other = iou;
            continue;
        }
        /* among objects that it finds, a free one comes first */
        const bool is_free = iou >= found_at && !taken[k];
        if ((is_free && !free_one) || (is_free == free_one && iou > same)) {
            same = iou;
            best = k;
            free_one = is_free;
        }
    }
    if (same >= found_at && free_one) {
        taken[best] = true;
        return ERROR_NONE;
    }
    if (same >= found_at) return ERROR_DUPLICATE;
    if (other >= found_at) return ERROR_CLASS;
    if (same >= near_at) return ERROR_PLACE;
    return other >= near_at ? ERROR_BOTH : ERROR_BACKGROUND;
}

static void count_image(const tp_coco *X, int64_t i, const chosen *c, int64_t *at, bool *taken,
                        errors *e)
{
    const tp_coco_image *image = tp_coco_image_at(X, i);
    for (int64_t k = 0; k < image->objects; k++) taken[k] = false;
    for (; *at < c->n && c->at[*at]->image == i; ++*at) {
        bool in_crowd;
        const error_kind kind = judge(X, c->at[*at], taken, &in_crowd);
        if (kind == ERROR_NONE || !in_crowd) e->count[kind]++;
    }
    for (int64_t k = 0; k < image->objects; k++) {
        const tp_coco_object *o = tp_coco_object_at(X, image->first + k);
        if (o->crowd || o->ignore) continue;
        e->objects++;
        e->missed += !taken[k];
    }
}

bool errors_count(const tp_detections *R, const bool *left_out, double score, errors *e)
{
    const tp_coco *X = tp_detections_coco(R);
    int64_t most = 1, at = 0;
    *e = (errors){ { 0 }, 0, 0 };
    for (int64_t i = 0; i < tp_coco_images(X); i++)
        if (tp_coco_image_at(X, i)->objects > most) most = tp_coco_image_at(X, i)->objects;
    chosen c = { malloc((size_t)(tp_detections_count(R) + 1) * sizeof(tp_detection *)), 0 };
    bool *taken = malloc((size_t)most * sizeof *taken);
    const bool done = c.at && taken;
    for (int64_t i = 0; done && i < tp_detections_count(R); i++)
        if (tp_detections_at(R, i)->score >= score &&
            !(left_out && left_out[tp_detections_at(R, i)->image]))
            c.at[c.n++] = tp_detections_at(R, i);
    if (done) {
        qsort(c.at, (size_t)c.n, sizeof *c.at, by_image_and_score);
        for (int64_t i = 0; i < tp_coco_images(X); i++)
            if (!(left_out && left_out[i])) count_image(X, i, &c, &at, taken, e);
    }
    free(c.at);
    free(taken);
    return done;
}
