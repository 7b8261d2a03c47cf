/* detector.h - detectors: RetinaNet and Mask R-CNN under one interface, and their presets (detection library). */
#ifndef TAPEGRAD_DETECTION_DETECTOR_H
#define TAPEGRAD_DETECTION_DETECTOR_H

#include <tapegrad/detection/mask_rcnn.h>
#include <tapegrad/detection/retinanet.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tp_detector_kind { TP_RETINANET, TP_MASK_RCNN } tp_detector_kind;

typedef struct tp_detector_cfg {
    tp_detector_kind kind;
    union {
        tp_retinanet_cfg retinanet;
        tp_mask_rcnn_cfg mask_rcnn;
    } of;
} tp_detector_cfg;

typedef struct tp_detector {
    tp_detector_kind kind;
    union {
        tp_retinanet retinanet;
        tp_mask_rcnn mask_rcnn;
    } of;
} tp_detector;

/* "retinanet-BACKBONE" and "mask-rcnn-BACKBONE" (pyramid.h). False with the reason in why. */
TP_API bool tp_detector_preset(tp_detector_cfg *c, const char *name, char *why, size_t size);
TP_API bool tp_detector_check(const tp_detector_cfg *c, char *why, size_t size);
TP_API void tp_detector_init(tp_params *P, tp_detector *m, const char *name,
                             const tp_detector_cfg *c);
/* The losses of a batch in training. RetinaNet's moving normaliser is a buffer of P, so checkpoints store it. */
TP_API tp_detection_losses tp_detector_losses(tp_tape *T, tp_detector *m,
                                              const tp_detection_in *in);
/* Detections in each image of a batch, out [B], which the caller frees. False: see the tape's error. Synchronises. */
TP_API bool tp_detector_detect(tp_tape *T, const tp_detector *m, const tp_detection_in *in,
                               tp_detected *out);

#ifdef __cplusplus
}
#endif
#endif
