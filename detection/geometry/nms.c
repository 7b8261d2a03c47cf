/* nms.c - non-maximum suppression (NMS) of boxes, and the largest scores in a list. */
#include <math.h>
#include <stdlib.h>
#include <tapegrad/detection/proposals.h>

/* A box and its position in the list. */
typedef struct ranked {
    double score;
    int64_t group, index;
    tp_corners box;
    double area;
} ranked;

/* NaN comes first, as in PyTorch. */
static int by_score(const void *x, const void *y)
{
    const ranked *a = x, *b = y;
    const bool no_a = isnan(a->score), no_b = isnan(b->score);
    if (no_a != no_b) return no_a ? -1 : 1;
    if (a->score < b->score) return 1;
    if (a->score > b->score) return -1;
    return (a->index > b->index) - (a->index < b->index);
}

static int by_group(const void *x, const void *y)
{
    const ranked *a = x, *b = y;
    return a->group != b->group ? (a->group > b->group) - (a->group < b->group) : by_score(x, y);
}

static ranked *rank(const tp_corners *box, const double *score, const int64_t *group, int64_t n)
{
    ranked *r = malloc(((size_t)n + 1) * sizeof *r);
    for (int64_t i = 0; r && i < n; i++) {
        r[i] = (ranked){ .score = score[i], .group = group ? group[i] : 0, .index = i };
        if (box) r[i].box = box[i];
        if (box) r[i].area = tp_corners_area(box[i]);
    }
    return r;
}

/* The division is unguarded: 0 / 0 is NaN and drops nothing. */
static bool drops(const ranked *x, const ranked *y, double threshold, tp_detection_profile profile)
{
    const tp_corners a = x->box, b = y->box;
    const double left = a.x1 > b.x1 ? a.x1 : b.x1, right = a.x2 < b.x2 ? a.x2 : b.x2;
    const double top = a.y1 > b.y1 ? a.y1 : b.y1, bottom = a.y2 < b.y2 ? a.y2 : b.y2;
    const double w = right > left ? right - left : 0.0, h = bottom > top ? bottom - top : 0.0;
    if (w * h == 0.0 && threshold > 0.0) return false;
    const double iou = w * h / (x->area + y->area - w * h);
    return profile == TP_MMDETECTION ? iou >= threshold : iou > threshold;
}

/* NMS within a sorted group; moves the remaining boxes to the front and returns their number. */
static int64_t suppress(ranked *r, int64_t n, double threshold, tp_detection_profile profile)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++) {
        bool dropped = false;
        for (int64_t k = 0; k < kept && !dropped; k++)
            dropped = drops(&r[k], &r[i], threshold, profile);
        if (!dropped) r[kept++] = r[i];
    }
    return kept;
}

int64_t tp_nms(const tp_corners *box, const double *score, const int64_t *group, int64_t n,
               double threshold, tp_detection_profile profile, int64_t *keep)
{
    if (!box) return 0;
    ranked *r = rank(box, score, group, n);
    int64_t kept = 0;
    if (!r) return -1;
    qsort(r, (size_t)n, sizeof *r, by_group);
    for (int64_t from = 0, to; from < n; from = to) {
        for (to = from + 1; to < n && r[to].group == r[from].group;) to++;
        const int64_t left = suppress(r + from, to - from, threshold, profile);
        for (int64_t i = 0; i < left; i++) r[kept++] = r[from + i];
    }
    if (group) qsort(r, (size_t)kept, sizeof *r, by_score);
    for (int64_t i = 0; i < kept; i++) keep[i] = r[i].index;
    free(r);
    return kept;
}

int64_t tp_top_scores(const double *score, int64_t n, int64_t k, int64_t *index)
{
    if (!score) return 0;
    ranked *r = rank(NULL, score, NULL, n);
    if (!r) return -1;
    qsort(r, (size_t)n, sizeof *r, by_score);
    if (k > n) k = n;
    for (int64_t i = 0; i < k; i++) index[i] = r[i].index;
    free(r);
    return k;
}
