/* detectors.h - for tests of complete detectors: backbones, a scene, gradients. */
#ifndef SUPPORT_DETECTORS_H
#define SUPPORT_DETECTORS_H

#include <tapegrad/detection.h>

/* A published backbone, checked. */
tp_backbone_cfg detectors_backbone(const char *name, tp_detection_profile profile);
/* A ResNet with one block of at least 8 channels per stage. */
tp_backbone_cfg detectors_small_backbone(void);

/* Two images of 64 x 96 pixels with padding, and three objects, of categories 0, 2 and 1, with
 * outlines: a rectangle, a triangle, two rectangles. */
extern const int64_t detectors_sizes[2][2];
extern const tp_corners detectors_boxes[3];
extern const int detectors_categories[3];
extern const tp_objects detectors_scene;

/* The norm of a parameter's gradient. */
double detectors_gradient(tp_params *P, const tp_param_info *it);

/* A detector in training mode, and a batch of these images, initially without objects. */
typedef struct detectors_rig {
    tp_device *D;
    tp_params *P;
    tp_tape *T;
    tp_detector m;
    tp_objects objects[2];
    tp_random random;
    tp_detection_in in;
} detectors_rig;
/* cfg: the kind's configuration. The rig takes D; NULL: the tests' device. */
void detectors_make(detectors_rig *r, const tp_detector_kind *kind, const void *cfg, tp_device *D);
void detectors_release(detectors_rig *r);

/* Trains with AdamW on the scene in both images: the loss halves, the best detection in each image
 * is an object, and no detection is recorded. */
void detectors_expect_learning(detectors_rig *r, int steps, double rate);

#endif
