/* assign.c - assigns boxes to objects for training: matching and sampling. */
#include <stdlib.h>
#include <tapegrad/detection/assign.h>

#include "inner.h"

/* ---- matching ---- */

static tp_matcher anchors(double background, double object, double least,
                          tp_detection_profile profile)
{
    return (tp_matcher){ .thresholds = 2,
                         .threshold = { background, object },
                         .label = { 0, -1, 1 },
                         .low_quality = true,
                         .overwrite = profile == TP_MMDETECTION,
                         .least = least };
}

tp_matcher tp_matcher_retinanet(tp_detection_profile profile)
{
    return anchors(0.4, 0.5, 0.0, profile);
}

tp_matcher tp_matcher_rpn(tp_detection_profile profile)
{
    return anchors(0.3, 0.7, 0.3, profile);
}

tp_matcher tp_matcher_roi(void)
{
    return (tp_matcher){ .thresholds = 1, .threshold = { 0.5 }, .label = { 0, 1 } };
}

bool tp__matcher_ok(const tp_matcher *m)
{
    if (m->thresholds < 1 || m->thresholds > TP_MATCH_THRESHOLDS) return false;
    for (int i = 0; i < m->thresholds; i++)
        if (!(m->threshold[i] >= (i ? m->threshold[i - 1] : 0.0) && m->threshold[i] <= 1.0))
            return false;
    for (int i = 0; i <= m->thresholds; i++)
        if (m->label[i] < -1 || m->label[i] > 1) return false;
    return true;
}

/* Labels the boxes with the largest IoU of an object. Equality is exact: the maximum is in iou. */
static void add_low_quality(const tp_matcher *m, const double *iou, int64_t object, int64_t n,
                            int64_t *match, int *label)
{
    double best = iou[0];
    for (int64_t j = 1; j < n; j++)
        if (iou[j] > best) best = iou[j];
    if (m->overwrite && best < m->least) return;
    for (int64_t j = 0; j < n; j++) {
        if (iou[j] != best) continue;
        label[j] = 1;
        if (m->overwrite) match[j] = object;
    }
}

void tp_match(const tp_matcher *m, const double *iou, int64_t objects, int64_t n, int64_t *match,
              int *label)
{
    if (!m) return;
    for (int64_t j = 0; j < n; j++) {
        int k = 0;
        match[j] = 0;
        for (int64_t i = 1; i < objects; i++)
            if (iou[i * n + j] > iou[match[j] * n + j]) match[j] = i;
        while (objects && k < m->thresholds && iou[match[j] * n + j] >= m->threshold[k]) k++;
        label[j] = m->label[k];
    }
    for (int64_t i = 0; i < objects && n && m->low_quality; i++)
        add_low_quality(m, iou + i * n, i, n, match, label);
}

/* ---- matching without the matrix ---- */

enum { BLOCK = 512 }; /* boxes for which an object's IoU is computed together */

typedef struct blocks {
    const tp_corners *object, *box;
    int64_t objects, n, count;
    double *most; /* [objects,count]: an object's largest IoU in a block */
} blocks;

static int64_t size_of_block(const blocks *b, int64_t k)
{
    return b->n - k * BLOCK < BLOCK ? b->n - k * BLOCK : BLOCK;
}

/* Returns the bounding box of block k: an object outside has an IoU of 0 with all its boxes. */
static tp_corners bounds(const blocks *b, int64_t k)
{
    tp_corners all = b->box[k * BLOCK];
    for (int64_t j = 1; j < size_of_block(b, k); j++) {
        const tp_corners a = b->box[k * BLOCK + j];
        if (a.x1 < all.x1) all.x1 = a.x1;
        if (a.y1 < all.y1) all.y1 = a.y1;
        if (a.x2 > all.x2) all.x2 = a.x2;
        if (a.y2 > all.y2) all.y2 = a.y2;
    }
    return all;
}

/* Adds object i to the matches of block k; value [n] holds the largest IoU so far. */
static double match_block(const blocks *b, int64_t i, int64_t k, double *value, int64_t *match)
{
    double iou[BLOCK], most = 0.0;
    tp_corners_iou_all(&b->object[i], 1, b->box + k * BLOCK, size_of_block(b, k), iou);
    for (int64_t j = 0; j < size_of_block(b, k); j++) {
        if (iou[j] > most) most = iou[j];
        if (iou[j] <= value[k * BLOCK + j]) continue;
        value[k * BLOCK + j] = iou[j];
        match[k * BLOCK + j] = i;
    }
    return most;
}

/* add_low_quality for blocks that may have the object's best boxes. Recomputed IoUs are equal. */
static void add_low_quality_blocks(const tp_matcher *m, const blocks *b, int64_t i, int64_t *match,
                                   int *label)
{
    double iou[BLOCK], best = 0.0;
    const double *most = b->most + i * b->count;
    for (int64_t k = 0; k < b->count; k++)
        if (most[k] > best) best = most[k];
    if (m->overwrite && best < m->least) return;
    for (int64_t k = 0; k < b->count; k++) {
        if (most[k] != best) continue;
        tp_corners_iou_all(&b->object[i], 1, b->box + k * BLOCK, size_of_block(b, k), iou);
        for (int64_t j = 0; j < size_of_block(b, k); j++) {
            if (iou[j] != best) continue;
            label[k * BLOCK + j] = 1;
            if (m->overwrite) match[k * BLOCK + j] = i;
        }
    }
}

bool tp_match_boxes(const tp_matcher *m, const tp_corners *object, int64_t objects,
                    const tp_corners *box, int64_t n, int64_t *match, int *label)
{
    if (!m) return false;
    blocks b = { object, box, objects, n, (n + BLOCK - 1) / BLOCK, NULL };
    b.most = calloc((size_t)(objects * b.count + n + 1), sizeof *b.most);
    if (!b.most) return false;
    double *value = b.most + objects * b.count;
    for (int64_t j = 0; j < n; j++) match[j] = 0;
    for (int64_t k = 0; k < b.count; k++) {
        const tp_corners all = bounds(&b, k);
        for (int64_t i = 0; i < objects; i++) {
            const tp_corners o = object[i];
            if (o.x1 < all.x2 && o.x2 > all.x1 && o.y1 < all.y2 && o.y2 > all.y1)
                b.most[i * b.count + k] = match_block(&b, i, k, value, match);
        }
    }
    for (int64_t j = 0; j < n; j++) {
        int k = 0;
        while (objects && k < m->thresholds && value[j] >= m->threshold[k]) k++;
        label[j] = m->label[k];
    }
    for (int64_t i = 0; i < objects && m->low_quality; i++)
        add_low_quality_blocks(m, &b, i, match, label);
    free(b.most);
    return true;
}

/* ---- sampling ---- */

/* Fills order with a random permutation of 0 ... n - 1. */
static void permute(int64_t *order, int64_t n, tp_random *r)
{
    for (int64_t i = 0; i < n; i++) {
        const int64_t j = tp_random_below(r, i + 1);
        order[i] = order[j];
        order[j] = i;
    }
}

/* Takes k of n elements of list. */
static void take(const tp_box_sampler *s, const int64_t *list, int64_t n, int64_t k,
                 const int64_t *order, int64_t *to)
{
    for (int64_t i = 0; i < k; i++) {
        if (s->how == TP_SAMPLE_EVEN)
            to[i] = list[(i + 1) * n / k - 1];
        else
            to[i] = list[s->how == TP_SAMPLE_RANDOM ? order[i] : i];
    }
}

int64_t tp_sample_boxes(const tp_box_sampler *s, const int *label, int64_t n, int background,
                        tp_random *r, int64_t *index, int64_t *objects)
{
    if (!s) return 0;
    int64_t *list[2], count[2] = { 0, 0 };
    int64_t *memory = malloc(((size_t)n * 3 + 1) * sizeof *memory),
            *order = memory ? memory + 2 * n : NULL;
    if (!memory) return -1;
    list[0] = memory;
    list[1] = memory + n;
    for (int64_t i = 0; i < n; i++) {
        const int which = label[i] == background;
        if (label[i] != -1) list[which][count[which]++] = i;
    }
    const int64_t wanted = (int64_t)((double)s->samples * s->positive);
    const int64_t first = count[0] < wanted ? count[0] : wanted;
    const int64_t second = count[1] < s->samples - first ? count[1] : s->samples - first;
    for (int which = 0; which < 2; which++) {
        if (s->how == TP_SAMPLE_RANDOM && !s->order[which]) permute(order, count[which], r);
        take(s, list[which], count[which], which ? second : first,
             s->order[which] ? s->order[which] : order, index + (which ? first : 0));
    }
    free(memory);
    *objects = first;
    return first + second;
}
