/* coco_eval.h - the members of an evaluation. */
#ifndef TP_COCO_EVAL_H
#define TP_COCO_EVAL_H

#include <tapegrad/coco_eval.h>

#include "coco.h"

/* A detection after matching; bit t of each word is for threshold t. */
typedef struct tp_coco_found {
    double score;
    int32_t rank; /* among the detections of its image and category, by descending score */
    uint16_t matched[TP_COCO_AREAS], ignored[TP_COCO_AREAS];
} tp_coco_found;

/* One category: where its detections are, by descending score, and how many objects count. */
typedef struct tp_coco_class {
    size_t first;
    int64_t n, objects[TP_COCO_AREAS];
} tp_coco_class;

struct tp_coco_eval {
    char why[TP_COCO_WHY];
    tp_coco_eval_opts o;
    int classes;
    tp_pool found;     /* tp_coco_found */
    tp_coco_class *of; /* [classes]     */
    double figures[TP_COCO_FIGURES];
};

/* Fills E->found and E->of. False: E has failed. */
bool tp__coco_match(tp_coco_eval *E, const tp_detections *R);

#endif
