/* coco_run.h - the state that coco adds to the engine's training run. */
#ifndef COCO_RUN_H
#define COCO_RUN_H

#include "coco_settings.h"

typedef struct coco_run {
    coco_set X[2];       /* TP_TRAIN, TP_VALID; a trial borrows them */
    tp_loader *L;        /* NULL: a trial, whose batches are noise   */
    int64_t used;        /* training images with objects             */
    tp_coco_tally unfit; /* training objects that are left out       */
    tp_detector_cfg cfg;
    tp_detector m;
    tp_tensor images; /* slot: the batch */
    tp_object_batch batch;
    tp_random random; /* of the sampling in this batch */
    float *noise;     /* a trial's images and objects  */
    int64_t (*size)[2];
    tp_objects *objects;
    double matched; /* anchors that match an object of a batch, per object; NAN: none counted */
} coco_run;

#endif
