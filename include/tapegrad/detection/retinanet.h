/* retinanet.h - RetinaNet (Lin et al. 2017): a classifier and a box regression for every anchor of
 * a pyramid, trained with the focal loss (detection library). */
#ifndef TAPEGRAD_DETECTION_RETINANET_H
#define TAPEGRAD_DETECTION_RETINANET_H

#include <tapegrad/detection/detector.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TP_RETINANET_CONVS = 8, TP_RETINANET_LEVELS = 5 };

/* Published values are in brackets; tp_retinanet_default sets them. */
typedef struct tp_retinanet_cfg {
    tp_detection_profile profile;
    tp_backbone_cfg backbone;
    int64_t classes;       /* [80] */
    int64_t dim;           /* channels of the pyramid [256] */
    bool average;          /* tp_fpn_cfg [false] */
    bool plain;            /* P7 = conv(P6), as TP_FPN_PLAIN [false; mmdetection: true] */
    int convs;             /* of each tower [4] */
    double prior;          /* of an object, for the classifier's initial bias [0.01] */
    tp_anchor_cfg anchors; /* [tp_anchors_retinanet]; a level for each map of the pyramid */
    tp_matcher matcher;    /* [tp_matcher_retinanet] */
    double alpha, gamma;   /* of the focal loss [0.25, 2] */
    double beta;           /* of the smooth L1 loss of offsets; below 1e-5: L1 [0] */
    bool giou;             /* the generalised IoU loss of decoded boxes instead [false] */
    tp_box_coder coder;    /* [{ 0 }] */
    double start, decay;   /* detectron2: first value and decay of the normaliser [100, 0.9] */
    /* score, overlap, candidates, most [0.05, 0.5, 1000, 100]; the rest is not read */
    tp_select_cfg select;
} tp_retinanet_cfg;

TP_API tp_retinanet_cfg tp_retinanet_default(const tp_backbone_cfg *backbone, int64_t classes,
                                             tp_detection_profile profile);

/* The outputs of the heads. A map of h x w positions with A anchors each has n = h w A of them, in
 * the order of tp_anchors, which is that of a convolution's result [B,h,w,A*K]: the tensors are
 * views of it. */
typedef struct tp_retinanet_out {
    int levels;
    int64_t size[TP_ANCHOR_LEVELS][2];  /* height and width of the maps */
    tp_tensor logit[TP_ANCHOR_LEVELS];  /* [B,n,classes] */
    tp_tensor offset[TP_ANCHOR_LEVELS]; /* [B,n,4] */
} tp_retinanet_out;

/* "cls_subnet.0", "cls_subnet.2" ..., the same for "bbox_subnet", "cls_score", "bbox_pred"; all
 * levels share them. */
typedef struct tp_retinanet_head {
    const char *path;
    int convs;
    int64_t classes;
    tp_conv2d_m cls[TP_RETINANET_CONVS], box[TP_RETINANET_CONVS], score, offset;
} tp_retinanet_head;

/* The sizes of c: dim, convs, classes, anchors. Weights N(0, 0.01), biases 0, that of the scores
 * -log((1 - prior) / prior). */
TP_API void tp_retinanet_head_init(tp_params *P, tp_retinanet_head *m, const char *name,
                                   const tp_retinanet_cfg *c);
TP_API tp_retinanet_out tp_retinanet_head_forward(tp_tape *T, const tp_retinanet_head *m,
                                                  const tp_pyramid *p);

/* "backbone.bottom_up", "backbone.fpn_lateral3" ... (tp_fpn_init), "head"; the buffer
 * "loss_normalizer", a scalar.
 *
 * The losses are "loss_cls" and "loss_box_reg": the focal loss of all anchors that are not ignored,
 * and the loss of the boxes of anchors matched to objects. Anchors are matched on the host. Both
 * sums are divided by a normaliser. detectron2: a moving average of the number of matched anchors,
 * at least 1, which a tape in training mode updates first. It is a buffer of the parameters, so
 * that checkpoints store it; compute the losses once for each step of training. mmdetection: the
 * number of matched anchors in the batch, where each image counts at least 1. Synchronises
 * (detectron2). Errors fail T. */
typedef struct tp_retinanet {
    const char *path;
    tp_params *params;
    tp_retinanet_cfg cfg;
    tp_backbone backbone;
    tp_fpn fpn;
    tp_retinanet_head head;
    tp_tensor normalizer; /* f64; mmdetection: TP_NONE */
} tp_retinanet;

extern TP_API const tp_detector_kind tp_detector_retinanet;

/* The pyramid of images [B,H,W,3]. */
TP_API tp_pyramid tp_retinanet_pyramid(tp_tape *T, const tp_retinanet *m, tp_tensor images);

/* The losses from the outputs of the heads; in->images is not read, and B is their first axis.
 * label [B,anchors], unless it is NULL, receives what each anchor is trained to predict: a
 * category, `classes` for background, -1 for ignored. */
TP_API tp_detection_losses tp_retinanet_losses_of(tp_tape *T, tp_retinanet *m,
                                                  const tp_retinanet_out *out,
                                                  const tp_detection_in *in, int *label);

/* The detections from the outputs of the heads, for images of sizes size [B], like
 * tp_detector_detect. */
TP_API bool tp_retinanet_detect_of(tp_tape *T, const tp_retinanet_cfg *c,
                                   const tp_retinanet_out *out, const int64_t (*size)[2],
                                   tp_detected *found);

#ifdef __cplusplus
}
#endif
#endif
