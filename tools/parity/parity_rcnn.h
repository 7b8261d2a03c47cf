/* parity_rcnn.h - kinds of Mask R-CNN and its heads. */
#ifndef PARITY_RCNN_H
#define PARITY_RCNN_H

#include <tapegrad/detection/mask_rcnn.h>

#include "parity_detection.h"
#include "parity_scene.h"

/* Whole Mask R-CNN and the images of its case. */
typedef struct rcnn_model {
    tp_mask_rcnn m;
    par_scene scene;
    double threshold; /* of masks */
} rcnn_model;

void rcnn_declare(parity *p, void *self);
void rcnn_run(parity *p, void *self);
/* input.proposals in place of those of the RPN, in the case's memory, if proposals_given. */
bool rcnn_give_proposals(parity *p, tp_mask_rcnn_steps *s);

/* What an unchanged case decides on the way to its results. */
enum { RCNN_IMAGES = 8, RCNN_LEVELS = 5 };
typedef struct rcnn_proposals {
    int64_t n;
    tp_found *found;
} rcnn_proposals;
typedef struct rcnn_facts {
    const rcnn_model *model;
    const par_scene *scene;
    tp_mask_rcnn_cfg cfg;
    tp_detection_in in;
    tp_rpn_out rpn;
    bool given; /* proposals are not those of the RPN */
    tp_mask_rcnn_steps steps;
    int64_t anchors[RCNN_LEVELS]; /* of each level of an image */
    const float *logit[RCNN_IMAGES][RCNN_LEVELS], *offset[RCNN_IMAGES][RCNN_LEVELS];
    rcnn_proposals proposals[2][RCNN_IMAGES]; /* in training, in inference */
    tp_detected found[RCNN_IMAGES];           /* of cases with original images */
} rcnn_facts;
/* Runs the case again. False: failed. Free them in either case. */
bool rcnn_facts_of(parity *p, rcnn_facts *f);
void rcnn_facts_free(rcnn_facts *f);

void rcnn_declare_rpn(parity *p, void *self);
void rcnn_run_rpn(parity *p, void *self);
void rcnn_declare_box_head(parity *p, void *self);
void rcnn_run_box_head(parity *p, void *self);
void rcnn_declare_mask_head(parity *p, void *self);
void rcnn_run_mask_head(parity *p, void *self);
void rcnn_declare_mm_rpn(parity *p, void *self);
void rcnn_run_mm_rpn(parity *p, void *self);
/* The largest number of anchors of an image of detection.mm_rpn_loss that match objects; -1: failed. */
int64_t rcnn_positives(parity *p);

#endif
