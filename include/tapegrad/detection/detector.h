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
/* A preset, with what the tables of ViL's paper print for it; 0: nothing. */
typedef struct tp_detector_row {
    const char *name;
    double params, macs; /* millions; billions of multiply-adds of one image of 800 x 1333 */
} tp_detector_row;
TP_API const tp_detector_row *tp_detector_at(int i); /* NULL past the last               */
TP_API const char *tp_detector_known(int i);         /* its name; NULL past the last     */
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
TP_API TP_CHECKED bool tp_detector_load_backbone(tp_params *P, const tp_detector *m,
                                                 const char *path, char *why, size_t size);
/* Prepares the backbone for inference (tp_backbone_fuse), after its weights were loaded. False: see tp_params_why.
 * Synchronises. */
TP_API bool tp_detector_fuse(tp_params *P, tp_detector *m);
/* The losses of a batch in training. RetinaNet's moving normaliser is a buffer of P, so checkpoints store it. */
TP_API tp_detection_losses tp_detector_losses(tp_tape *T, tp_detector *m,
                                              const tp_detection_in *in);
/* Detections in each image of a batch, out [B], which the caller frees. False: see the tape's error. Synchronises. */
TP_API bool tp_detector_detect(tp_tape *T, const tp_detector *m, const tp_detection_in *in,
                               tp_detected *out);

/* ---- costs ---- */

/* Multiply-adds for an image of that height and width, multiples of 32, in closed form. macs: biases included; Mask R-CNN
 * with 1000 proposals and without masks, whose cost is that of the detections. paper: as the tables of ViL's paper
 * count, which leave out most products of windows and include the ReLUs of RetinaNet's towers. */
TP_API tp_cost tp_detector_flops(const tp_detector_cfg *c, const int64_t image[2]);

enum { TP_DETECTOR_BACKBONE, TP_DETECTOR_PYRAMID, TP_DETECTOR_HEADS, TP_DETECTOR_PARTS };

/* What a plan assumes. */
typedef struct tp_detector_plan_opts {
    const char *device; /* NULL: "cpu"                                          */
    int threads;        /* 0: the device's default                              */
    tp_dtype dtype;     /* of computation                                       */
    int64_t size[2];    /* height and width of the images, multiples of 32      */
    int64_t batch;      /* images of a training step; 0: training is left out   */
} tp_detector_plan_opts;

/* What a detector takes, counted on a dry device. macs: multiply-adds of its products and convolutions for one image,
 * without those of masks. */
typedef struct tp_detector_plan {
    double params[TP_DETECTOR_PARTS], macs[TP_DETECTOR_PARTS];
    int64_t detect_bytes, train_bytes; /* peaks: detection in one image, a step with AdamW */
} tp_detector_plan;
/* False with the reason in why. */
TP_API bool tp_detector_planned(tp_detector_plan *plan, const tp_detector_cfg *c,
                                const tp_detector_plan_opts *opts, char *why, size_t size);

#ifdef __cplusplus
}
#endif
#endif
