/* coco_eval.h - COCO's evaluation: average precision and recall of detected boxes or masks (data
 * library).
 *
 * All numbers are bit-identical to those of pycocotools. Equal scores and equal intersections over
 * union (IoU) are ordered in the same way, too. */
#ifndef TAPEGRAD_COCO_EVAL_H
#define TAPEGRAD_COCO_EVAL_H

#include <tapegrad/coco.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tp_coco_kind { TP_COCO_BOXES, TP_COCO_MASKS } tp_coco_kind;

enum {
    TP_COCO_THRESHOLDS = 10, /* T: thresholds of the IoU, 0.5, 0.55 ... 0.95 */
    TP_COCO_POINTS = 101,    /* R: recall 0, 0.01 ... 1 */
    TP_COCO_AREAS = 4,       /* A: all, small (up to 32^2 pixels), medium (up to 96^2), large */
    TP_COCO_LIMITS = 3,      /* M: limits on the detections of an image and category */
    TP_COCO_FIGURES = 12
};

typedef struct tp_coco_eval_opts {
    tp_coco_kind kind;
    /* For masks. true: the area of a detection (small, medium, large) is that of its box, as in
     * pycocotools if the results have boxes. false: it is that of its mask, as in published
     * figures. */
    bool box_areas;
    bool one_class;           /* ignores categories, as for proposals: K is 1 */
    int most[TP_COCO_LIMITS]; /* M, ascending; all 0: 1, 10, 100 */
    /* [images] of the annotations, true: neither the image's objects nor detections on it count, as
     * if the files did not list them; NULL: all count. */
    const bool *left_out;
} tp_coco_eval_opts;

/* Evaluates R. Never NULL: tp_coco_eval_why says what is wrong (R has failed, a mask cannot be
 * computed, memory ran out). o may be NULL. R may be closed afterwards. Memory is proportional to
 * the numbers of objects, detections and categories: less than 2 KB each, plus the masks of one
 * image and category. */
typedef struct tp_coco_eval tp_coco_eval;
TP_API tp_coco_eval *tp_coco_eval_new(const tp_detections *R, const tp_coco_eval_opts *o);
TP_API void tp_coco_eval_free(tp_coco_eval *E);
TP_API bool tp_coco_eval_ok(const tp_coco_eval *E);
TP_API const char *tp_coco_eval_why(const tp_coco_eval *E);

/* Figure i, from 0 to 1; -1: there are no objects for it. 0 to 5: average precision (AP) over all
 * thresholds, at 0.50, at 0.75, and of small, medium and large objects. 6 to 11: average recall
 * (AR) with most[0], most[1] and most[2] detections (1, 10, 100), and of small, medium and large
 * objects. tp_coco_eval_class is the same for one category. */
TP_API const char *tp_coco_figure_name(int i); /* "AP", "AP50", ... "ARl"; NULL: there is none */
TP_API double tp_coco_eval_figure(const tp_coco_eval *E, int i);
TP_API double tp_coco_eval_class(const tp_coco_eval *E, int category, int i);

/* What the figures average, at threshold t, object size a and detection limit m.
 * tp_coco_eval_curve: precision at each recall point and the score that reaches it, [R] each; score
 * may be NULL. tp_coco_eval_recall: the largest recall. All are -1 if the category has no object of
 * that size; they are computed on demand. */
TP_API int tp_coco_eval_classes(const tp_coco_eval *E); /* K */
TP_API void tp_coco_eval_curve(const tp_coco_eval *E, int category, int t, int a, int m,
                               double *precision, double *score);
TP_API double tp_coco_eval_recall(const tp_coco_eval *E, int category, int t, int a, int m);
TP_API double tp_coco_threshold(int t);

#ifdef __cplusplus
}
#endif
#endif
