/* detector_steps.h - training steps of a detector on made-up images, for bench_detectors. */
#ifndef DETECTOR_STEPS_H
#define DETECTOR_STEPS_H

#include <tapegrad/detection/detector.h>
#include <tapegrad/train.h>

typedef struct detector_rig {
    tp_device *D;
    tp_params *P;
    tp_tape *T;
    tp_optim *O;
    tp_detector m;
    int64_t side, batch;
    float *x;           /* noise */
    int64_t (*size)[2]; /* of the images in the batch */
    tp_objects *objects;
} detector_rig;

/* A detector with AdamW on D. False if memory runs out; detector_rig_free also then. */
bool detector_rig_new(detector_rig *r, tp_device *D, const tp_detector_cfg *c, tp_dtype compute,
                      int64_t side, int64_t batch);
void detector_rig_free(detector_rig *r); /* also closes D */

/* The first n images. */
tp_tensor detector_images(const detector_rig *r, int64_t n);

/* Forward, backward, clipping and AdamW on images with eight objects each. */
void detector_train_step(detector_rig *r);

bool detector_sound(const detector_rig *r);
const char *detector_why(const detector_rig *r); /* the first error, "" if there is none */

#endif
