/* support_detectors.h - what tests of whole detectors share: backbones, a scene, gradients. */
#ifndef SUPPORT_DETECTORS_H
#define SUPPORT_DETECTORS_H

#include <tapegrad/detection.h>

/* A published backbone, checked. */
tp_backbone_cfg detectors_backbone(const char *name, tp_detection_profile profile);
/* A ResNet with one block of 8 channels or more in each stage. */
tp_backbone_cfg detectors_small_backbone(void);

/* Two images of 64 x 96 pixels with padding, and three objects, of categories 0, 2 and 1, with outlines: a rectangle, a
 * triangle, two rectangles. */
extern const int64_t detectors_sizes[2][2];
extern const tp_corners detectors_boxes[3];
extern const int detectors_categories[3];
extern const tp_objects detectors_scene;

/* The norm of a parameter's gradient. */
double detectors_gradient(tp_params *P, const tp_param_info *it);

#endif
