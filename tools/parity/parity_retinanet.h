/* parity_retinanet.h - kinds of RetinaNet and of losses of detectors. */
#ifndef PARITY_RETINANET_H
#define PARITY_RETINANET_H

#include <tapegrad/detection/retinanet.h>

#include "parity_detection.h"
#include "parity_scene.h"

typedef struct retinanet_focal {
    double alpha, gamma;
} retinanet_focal;
void retinanet_declare_focal(parity *p, void *self);
void retinanet_run_focal(parity *p, void *self);

typedef struct retinanet_betas {
    const double *beta;
    int64_t n;
} retinanet_betas;
void retinanet_declare_smooth_l1(parity *p, void *self);
void retinanet_run_smooth_l1(parity *p, void *self);

void retinanet_declare_giou(parity *p, void *self); /* self: eps */
void retinanet_run_giou(parity *p, void *self);

void retinanet_declare_head(parity *p, void *self);
void retinanet_run_head(parity *p, void *self);

void retinanet_declare_mm(parity *p,
                          void *self); /* tp_retinanet, of which only the configuration is used */
void retinanet_run_mm(parity *p, void *self);
/* Whole RetinaNet and the images of its case. */
typedef struct retinanet_model {
    tp_retinanet m;
    par_scene scene;
} retinanet_model;
void retinanet_declare(parity *p, void *self);
void retinanet_run(parity *p, void *self);

#endif
