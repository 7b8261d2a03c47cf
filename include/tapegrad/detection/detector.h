/* detector.h - RetinaNet and Mask R-CNN under one interface, and their presets (detection library). */
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

/* "retinanet-BACKBONE" or "mask-rcnn-BACKBONE" (pyramid.h) for so many categories: the published configuration. With
 * a backbone "...-mini" everything is smaller, for images of about 128 pixels: the pyramid has 64 channels, anchors
 * have half of the published sides. False with the reason in why. */
TP_API bool tp_detector_preset(tp_detector_cfg *c, const char *name, int64_t classes,
                               tp_detection_profile profile, char *why, size_t size);
/* Names of presets; NULL past the last. */
TP_API const char *tp_detector_known(int i);
TP_API bool tp_detector_check(const tp_detector_cfg *c, char *why, size_t size);
/* Parts that both kinds have. The anchors and their matcher are those of RetinaNet, or of Mask R-CNN's proposals. */
TP_API tp_backbone_cfg *tp_detector_backbone(tp_detector_cfg *c);
TP_API const tp_anchor_cfg *tp_detector_anchors(const tp_detector_cfg *c);
TP_API const tp_matcher *tp_detector_matcher(const tp_detector_cfg *c);
TP_API int64_t tp_detector_classes(const tp_detector_cfg *c);
TP_API bool tp_detector_has_masks(const tp_detector_cfg *c);
/* How many anchors match an object, per object, in a batch of images padded to that size. NaN: there are no objects, or
 * memory is out. */
TP_API double tp_detector_matched(const tp_detector_cfg *c, int64_t height, int64_t width,
                                  const tp_objects *objects, int64_t images);
/* Drops detections with scores up to `score`, and keeps `most` of an image. */
TP_API void tp_detector_limit(tp_detector_cfg *c, double score, int64_t most);

/* Declares the parameters, with detectron2's names. An impossible c fails P. */
TP_API void tp_detector_init(tp_params *P, tp_detector *m, const char *name,
                             const tp_detector_cfg *c);
/* Loads the weights of a classifier into the backbone (tp_backbone_load). False with the reason in why; nothing has
 * changed then, unless a read failed. */
TP_API bool tp_detector_load_backbone(tp_params *P, const tp_detector *m, const char *path,
                                      char *why, size_t size);
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
