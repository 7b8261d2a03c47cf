/* assign.c - assignment of boxes to objects for training: matching and sampling. */
#include <stdlib.h>
#include <tapegrad/detection/assign.h>

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

/* Labels the boxes with the largest IoU of an object. Equality is exact: the maximum is one of the numbers in iou. */
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

/* Takes k of the n elements of list. */
static void take(const tp_sampler *s, const int64_t *list, int64_t n, int64_t k,
                 const int64_t *order, int64_t *to)
{
    for (int64_t i = 0; i < k; i++) {
        if (s->how == TP_SAMPLE_EVEN)
            to[i] = list[(i + 1) * n / k - 1];
        else
            to[i] = list[s->how == TP_SAMPLE_RANDOM ? order[i] : i];
    }
}

int64_t tp_sample(const tp_sampler *s, const int *label, int64_t n, int background, tp_random *r,
                  int64_t *index, int64_t *objects)
{
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
