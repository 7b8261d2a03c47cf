/* support_detectors.c - what the tests of RetinaNet and Mask R-CNN share. */
#include "support_detectors.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/resnet.h>

tp_backbone_cfg detectors_backbone(const char *name, tp_detection_profile profile)
{
    tp_backbone_cfg c;
    char why[300] = "";
    cr_assert(tp_backbone_preset(&c, name, profile, why, sizeof why), "%s: %s", name, why);
    cr_assert(tp_backbone_check(&c, why, sizeof why), "%s: %s", name, why);
    return c;
}

tp_backbone_cfg detectors_small_backbone(void)
{
    tp_backbone_cfg b = { .model.model = &tp_model_resnet };
    const tp_resnet_cfg c = { .image = { 64, 64 },
                              .base = 8,
                              .blocks = { 1, 1, 1, 1 },
                              .groups = 1,
                              .group_width = 64,
                              .frozen_norm = true };
    memcpy(&b.model.at, &c, sizeof c);
    return b;
}

const int64_t detectors_sizes[2][2] = { { 64, 90 }, { 60, 96 } };
const tp_corners detectors_boxes[3] = { { 8, 8, 40, 40 }, { 50, 2, 82, 34 }, { 1, 30, 33, 60 } };
const int detectors_categories[3] = { 0, 2, 1 };
static const double xy[] = { 8,  8,  40, 8,  40, 40, 8,  40, 50, 34, 66, 2,  82, 34, 1,
                             30, 15, 30, 15, 60, 1,  60, 20, 30, 33, 30, 33, 60, 20, 60 };
static const int64_t part[] = { 0, 1, 2, 4 }, point[] = { 0, 4, 7, 11, 15 };
const tp_objects detectors_scene = { .n = 3,
                                     .box = detectors_boxes,
                                     .category = detectors_categories,
                                     .part = part,
                                     .point = point,
                                     .xy = xy };

double detectors_gradient(tp_params *P, const tp_param_info *it)
{
    const int64_t n = tp_numel(it->tensor);
    double *g = malloc((size_t)n * sizeof *g), squares = 0.0;
    cr_assert(it->has_grad, "%s was not reached", it->name);
    cr_assert(g && tp_param_get_grad(P, it->tensor, TP_F64, g, (size_t)n * sizeof *g));
    for (int64_t i = 0; i < n; i++) squares += g[i] * g[i];
    free(g);
    return sqrt(squares);
}
