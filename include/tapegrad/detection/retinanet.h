/* retinanet.h - RetinaNet (Lin et al. 2017): a classifier and a box regression for every anchor of a pyramid, trained
 * with the focal loss (detection library). */
#ifndef TAPEGRAD_DETECTION_RETINANET_H
#define TAPEGRAD_DETECTION_RETINANET_H

#include <tapegrad/detection/dense.h>
#include <tapegrad/detection/pyramid.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TP_RETINANET_CONVS = 8 };

/* Published values are in brackets; tp_retinanet_default sets them. */
typedef struct tp_retinanet_cfg {
    tp_detection_profile profile;
    tp_backbone_cfg backbone;
    int64_t dim;         /* channels of the pyramid [256]                                         */
    bool average;        /* of the pyramid: halves the sums of neighbouring levels                */
    int convs;           /* of each tower [4]                                                     */
    double prior;        /* of an object at an anchor: the classifier's initial bias [0.01]       */
    tp_dense_cfg dense;  /* anchors, classes [80], matching, losses; its sampler is not used      */
    double start, decay; /* detectron2: the moving normaliser, z [100], and its decay [0.9]       */
    tp_select_cfg select; /* inference; profile, coder and sizes are set for each image           */
} tp_retinanet_cfg;

TP_API tp_retinanet_cfg tp_retinanet_default(const tp_backbone_cfg *backbone, int64_t classes,
                                             tp_detection_profile profile);
/* True if c describes a possible model; else why receives a sentence that says what is wrong. */
TP_API bool tp_retinanet_check(const tp_retinanet_cfg *c, char *why, size_t size);

/* "cls_subnet.0", "cls_subnet.2" ..., the same for "bbox_subnet", "cls_score", "bbox_pred"; all levels share them. */
typedef struct tp_retinanet_head {
    const char *path;
    int convs;
    tp_conv2d_m cls[TP_RETINANET_CONVS], box[TP_RETINANET_CONVS], score, offset;
} tp_retinanet_head;
/* For maps of dim channels. Weights N(0, 0.01), biases 0, that of the scores -log((1 - prior) / prior). */
TP_API void tp_retinanet_head_init(tp_params *P, tp_retinanet_head *m, const char *name,
                                   int64_t dim, int convs, int64_t anchors, int64_t classes,
                                   double prior);
/* The results are views of those of the convolutions; classes is that of init. */
TP_API tp_dense tp_retinanet_head_forward(tp_tape *T, const tp_retinanet_head *m,
                                          const tp_pyramid *p, int64_t classes);

/* "backbone.bottom_up", "backbone.fpn_lateral3" ... (tp_fpn_init), "head"; the buffer "loss_normalizer", a scalar. */
typedef struct tp_retinanet {
    const char *path;
    tp_params *params;
    tp_retinanet_cfg cfg;
    tp_backbone backbone;
    tp_fpn fpn;
    tp_retinanet_head head;
    tp_tensor normalizer; /* f64 */
} tp_retinanet;

/* An impossible cfg fails P. */
TP_API void tp_retinanet_init(tp_params *P, tp_retinanet *m, const char *name,
                              const tp_retinanet_cfg *cfg);
/* The outputs of the heads for images [B,H,W,3]. */
TP_API tp_dense tp_retinanet_forward(tp_tape *T, const tp_retinanet *m, tp_tensor images);

/* The losses "loss_cls" and "loss_box_reg" of a batch, divided by their normaliser. detectron2: a moving average of the
 * number of matched anchors, which a tape in training mode updates first. mmdetection: their number in the batch, of
 * which each image counts at least 1. The moving average lives in a buffer of the parameters, so that checkpoints store
 * it: call this once for each step of training. Synchronises (detectron2). */
TP_API tp_detection_losses tp_retinanet_losses(tp_tape *T, tp_retinanet *m,
                                               const tp_detection_in *in);
/* The same from the outputs of the heads. */
TP_API tp_detection_losses tp_retinanet_losses_of(tp_tape *T, tp_retinanet *m, const tp_dense *d,
                                                  const tp_detection_in *in);

/* The detections in each image, out [B], each to be freed with tp_detected_free. False: see the tape's error; nothing
 * has to be freed. Synchronises. */
TP_API bool tp_retinanet_detect(tp_tape *T, const tp_retinanet *m, const tp_detection_in *in,
                                tp_detected *out);
/* The same from the outputs of the heads. */
TP_API bool tp_retinanet_detect_in(tp_tape *T, const tp_retinanet_cfg *c, const tp_dense *d,
                                   const tp_detection_in *in, tp_detected *out);

#ifdef __cplusplus
}
#endif
#endif
