/* coco_eval.h - COCO's figures of detections: average precision and recall of boxes or masks (data library).
 *
 * All numbers are those of pycocotools to the last bit, also the order in which equal scores and equal overlaps are
 * taken. */
#ifndef TAPEGRAD_COCO_EVAL_H
#define TAPEGRAD_COCO_EVAL_H

#include <tapegrad/coco.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tp_coco_kind { TP_COCO_BOXES, TP_COCO_MASKS } tp_coco_kind;

enum {
    TP_COCO_THRESHOLDS = 10, /* T: intersection over union 0.5, 0.55 ... 0.95                    */
    TP_COCO_POINTS = 101,    /* R: recall 0, 0.01 ... 1                                          */
    TP_COCO_AREAS = 4,       /* A: all, small (to 32^2 pixels), medium (to 96^2), large          */
    TP_COCO_LIMITS = 3,      /* M: detections of each image and category that count              */
    TP_COCO_FIGURES = 12
};

typedef struct tp_coco_eval_opts {
    tp_coco_kind kind;
    bool
        box_areas; /* masks: detections are small, medium or large by their boxes, as in pycocotools if
                       the results have boxes. Otherwise by their masks, as published figures are      */
    bool
        one_class; /* categories are ignored, as for proposals: K is 1                                */
    int most
        [TP_COCO_LIMITS]; /* ascending; all 0: 1, 10, 100                                       */
} tp_coco_eval_opts;

/* The evaluation of R. Never NULL: tp_coco_eval_why says what is wrong (R has failed, a mask that cannot be made, out
 * of memory). o may be NULL. R may be closed afterwards. */
typedef struct tp_coco_eval tp_coco_eval;
TP_API tp_coco_eval *tp_coco_eval_new(const tp_detections *R, const tp_coco_eval_opts *o);
TP_API void tp_coco_eval_free(tp_coco_eval *E);
TP_API bool tp_coco_eval_ok(const tp_coco_eval *E);
TP_API const char *tp_coco_eval_why(const tp_coco_eval *E);

/* Figure i, from 0 to 1; -1: nothing counts for it. 0 to 5: average precision AP over all thresholds, AP50, AP75, and of
 * small, medium and large objects. 6 to 11: average recall with 1, 10 and 100 detections, and of small, medium and
 * large objects. tp_coco_eval_class is the same for one category. */
TP_API const char *tp_coco_figure_name(int i); /* "AP", "AP50", ... "ARl"; NULL: there is none */
TP_API double tp_coco_eval_figure(const tp_coco_eval *E, int i);
TP_API double tp_coco_eval_class(const tp_coco_eval *E, int category, int i);

/* What the figures are means of, valid as long as E. Precision at each recall point and the score that reaches it,
 * [T,R,K,A,M]; the largest recall [T,K,A,M]. -1: the category has no object of that size. */
TP_API int tp_coco_eval_classes(const tp_coco_eval *E); /* K */
TP_API const double *tp_coco_eval_precision(const tp_coco_eval *E);
TP_API const double *tp_coco_eval_scores(const tp_coco_eval *E);
TP_API const double *tp_coco_eval_recall(const tp_coco_eval *E);
/* The precision-recall curve of a category at threshold t, for objects of size a, with limit m: [R] each. score may
 * be NULL. */
TP_API void tp_coco_eval_curve(const tp_coco_eval *E, int category, int t, int a, int m,
                               double *precision, double *score);
TP_API double tp_coco_threshold(int t);

#ifdef __cplusplus
}
#endif
#endif
