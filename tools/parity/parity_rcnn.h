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
void rcnn_declare_rpn(parity *p, void *self);
void rcnn_run_rpn(parity *p, void *self);
void rcnn_declare_box_head(parity *p, void *self);
void rcnn_run_box_head(parity *p, void *self);
void rcnn_declare_mask_head(parity *p, void *self);
void rcnn_run_mask_head(parity *p, void *self);
void rcnn_declare_mm_rpn(parity *p, void *self);
void rcnn_run_mm_rpn(parity *p, void *self);

#endif
