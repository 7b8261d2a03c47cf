/* mask_rcnn.h - Mask R-CNN (He et al. 2017): proposals of regions, and heads that classify each
 * region, refine its box and predict a mask (detection library).
 *
 * Each head is a module; tp_mask_rcnn joins them with a backbone and a feature pyramid. Steps that
 * depend on the data run on the host and read predictions back, so losses and detections
 * synchronise. Batches without objects, regions without objects and maps of any size are allowed: a
 * term that has nothing to sum is 0, and its gradients are zeros. */
#ifndef TAPEGRAD_DETECTION_MASK_RCNN_H
#define TAPEGRAD_DETECTION_MASK_RCNN_H

#include <tapegrad/detection/detector.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Regions of a batch, in host memory: image b has start[b] ... start[b + 1] - 1. */
typedef struct tp_regions {
    int64_t images, n;
    int64_t *start;  /* [images + 1] */
    tp_corners *box; /* [n] */
    double *score;   /* [n], of proposals; 0 of samples */
    int *category;   /* [n], of samples; `classes` for background */
    int64_t *object; /* [n], of samples: the object of the image that it overlaps most; -1: none */
} tp_regions;
TP_API void tp_regions_free(tp_regions *r);

/* ---- region proposal network (RPN) ---- */

typedef struct tp_rpn_cfg {
    tp_detection_profile profile;
    int64_t dim;           /* channels of the pyramid [256] */
    tp_anchor_cfg anchors; /* [tp_anchors_rpn]; a level for each map of the pyramid */
    tp_matcher matcher;    /* [tp_matcher_rpn] */
    int64_t samples;       /* anchors of an image that the losses count [256] */
    double positive;       /* at most this fraction of them has objects [0.5] */
    double beta;           /* of the smooth L1 loss of boxes; below 1e-5: L1 [0] */
    tp_box_coder coder;    /* [{ 0 }] */
    /* Proposals, as tp_select_proposals makes them; element 0 for training, 1 for inference. */
    int64_t candidates[2]; /* per level, before NMS [2000, 1000] */
    int64_t most[2];       /* of an image [1000, 1000] */
    double overlap, side;  /* [0.7, 0] */
} tp_rpn_cfg;

typedef struct tp_rpn {
    const char *path;
    tp_rpn_cfg cfg;
    tp_conv2d_m conv, objectness_logits, anchor_deltas;
} tp_rpn;

/* The predictions for all anchors of each map of a pyramid, in the order of tp_anchors. */
typedef struct tp_rpn_out {
    int levels;
    int64_t size[TP_PYRAMID_LEVELS][2];  /* height and width of the maps */
    tp_tensor logit[TP_PYRAMID_LEVELS];  /* [B,h,w,A] */
    tp_tensor offset[TP_PYRAMID_LEVELS]; /* [B,h,w,4A] */
} tp_rpn_out;

/* Names: conv, objectness_logits, anchor_deltas. Weights N(0, 0.01), biases 0. */
TP_API void tp_rpn_init(tp_params *P, tp_rpn *m, const char *name, const tp_rpn_cfg *cfg);
TP_API tp_rpn_out tp_rpn_forward(tp_tape *T, const tp_rpn *m, const tp_pyramid *p);

/* What the anchors of a batch are trained to predict: label [B,n] is 1 for a sampled anchor with an
 * object, 0 for a sampled anchor of the background, and -1 for all others, and object [B,n] the
 * object that an anchor is matched to. */
typedef struct tp_rpn_targets {
    int64_t images, n;
    tp_corners *anchor; /* [n], of all levels, from fine to coarse */
    int *label;
    int64_t *object;
} tp_rpn_targets;
TP_API void tp_rpn_targets_free(tp_rpn_targets *t);

/* Matches anchors with the objects of each image and samples them. False, with T failed, if memory
 * runs out. */
TP_API bool tp_rpn_match(tp_tape *T, const tp_rpn *m, const tp_rpn_out *out,
                         const tp_detection_in *in, tp_rpn_targets *t);
/* The losses of the sampled anchors, scalars: loss[0] binary cross-entropy of all of them, loss[1]
 * the (smooth) L1 loss of the boxes of those with objects. Both are divided by cfg.samples x
 * images; mmdetection: by the number of sampled anchors, where each image counts at least one with
 * an object and one of the background. */
TP_API void tp_rpn_losses(tp_tape *T, const tp_rpn *m, const tp_rpn_out *out,
                          const tp_detection_in *in, const tp_rpn_targets *t, tp_tensor loss[2]);
/* Proposals for each image of sizes size [B], without gradients. False, with T failed, if memory
 * runs out or, in training, if a prediction is not finite. */
TP_API bool tp_rpn_propose(tp_tape *T, const tp_rpn *m, const tp_rpn_out *out,
                           const int64_t (*size)[2], bool training, tp_regions *r);

/* ---- box head ---- */

enum { TP_BOX_HEAD_LAYERS = 8, TP_MASK_HEAD_LAYERS = 8 };

typedef struct tp_box_head_cfg {
    int64_t dim, side, classes;         /* regions are [side,side,dim] [256, 7]; [80] */
    int layers;                         /* fully connected [2] */
    int64_t hidden[TP_BOX_HEAD_LAYERS]; /* their widths [1024] */
    bool one_box;                       /* all categories share the offsets [false] */
    double beta;                        /* of the smooth L1 loss of boxes; below 1e-5: L1 [0] */
    tp_box_coder coder;                 /* [weights 10, 10, 5, 5] */
} tp_box_head_cfg;

typedef struct tp_box_head {
    const char *path;
    tp_box_head_cfg cfg;
    tp_linear_m fc[TP_BOX_HEAD_LAYERS], cls_score, bbox_pred;
} tp_box_head;

/* Names: box_head.fc1 ..., box_predictor.cls_score, box_predictor.bbox_pred below `name`. Weights
 * U(-b, b) with b = sqrt(3 / fan in), N(0, 0.01) and N(0, 0.001), biases 0. The weight of fc1
 * counts channels first, as published. */
TP_API void tp_box_head_init(tp_params *P, tp_box_head *m, const char *name,
                             const tp_box_head_cfg *cfg);
/* x [R,side,side,dim] -> *logit [R,classes + 1], the background last, and *offset [R,4 classes] or,
 * with one_box, [R,4]. */
TP_API void tp_box_head_forward(tp_tape *T, const tp_box_head *m, tp_tensor x, tp_tensor *logit,
                                tp_tensor *offset);
/* Losses of R regions, scalars: loss[0] cross-entropy, loss[1] (smooth) L1 loss of the boxes of
 * regions with objects (category [R] below `classes`) relative to their objects, target [R]; both
 * divided by R. box, target: [R]. */
TP_API void tp_box_head_losses(tp_tape *T, const tp_box_head *m, tp_tensor logit, tp_tensor offset,
                               const tp_corners *box, const tp_corners *target, const int *category,
                               tp_tensor loss[2]);

/* ---- mask head ---- */

typedef struct tp_mask_head_cfg {
    int64_t in, side, classes; /* regions are [side,side,in] [256, 14]; [80] */
    int layers;                /* convolutions [4] */
    int64_t dim;               /* their channels [256] */
} tp_mask_head_cfg;

typedef struct tp_mask_head {
    const char *path;
    tp_mask_head_cfg cfg;
    tp_conv2d_m conv[TP_MASK_HEAD_LAYERS];
    tp_conv_transpose2d_m deconv;
    tp_conv2d_m predictor;
} tp_mask_head;

/* Names: mask_fcn1 ..., deconv, predictor. Weights N(0, sqrt(2 / fan out)), N(0, 0.001), biases
 * 0. */
TP_API void tp_mask_head_init(tp_params *P, tp_mask_head *m, const char *name,
                              const tp_mask_head_cfg *cfg);
/* x [R,side,side,in] -> features [R,2 side,2 side,dim]. */
TP_API tp_tensor tp_mask_head_features(tp_tape *T, const tp_mask_head *m, tp_tensor x);
/* Logits of masks from features: of all categories, [R,2 side,2 side,classes], or only of one
 * category of each region, category [R], which costs less: [R,2 side,2 side]. */
TP_API tp_tensor tp_mask_head_logits(tp_tape *T, const tp_mask_head *m, tp_tensor features);
TP_API tp_tensor tp_mask_head_select(tp_tape *T, const tp_mask_head *m, tp_tensor features,
                                     const int *category);
/* Mean binary cross-entropy of logit [R,s,s] and target [R,s,s], 0 or 1; 0 if R is 0. */
TP_API tp_tensor tp_mask_head_loss(tp_tape *T, tp_tensor logit, const uint8_t *target);

/* ---- the whole model ---- */

typedef struct tp_mask_rcnn_cfg {
    tp_detection_profile profile;
    tp_backbone_cfg backbone;
    int64_t dim;  /* channels of the pyramid [256] */
    bool average; /* tp_fpn_cfg [false] */
    tp_rpn_cfg rpn;
    /* Samples of the region heads in training. */
    tp_matcher matcher; /* [tp_matcher_roi] */
    int64_t samples;    /* regions of an image [512] */
    double positive;    /* at most this fraction of them has objects [0.25] */
    bool append;        /* the objects are proposals, too [true] */
    /* Regions are pooled from P2 to P5 (tp_region_level, tp_roi_align_cfg). */
    double canonical; /* a region of this side is pooled from P(level) [224] */
    int level;        /* [4] */
    int points;       /* samples of a bin along each axis; 0: one per pixel, rounded up [0] */
    bool aligned;     /* [true] */
    tp_box_head_cfg box;
    tp_mask_head_cfg mask;
    /* Detections. */
    double score, overlap; /* tp_select_cfg [0.05, 0.5] */
    int64_t most;          /* [100] */
} tp_mask_rcnn_cfg;

typedef struct tp_mask_rcnn {
    const tp_params *params;
    tp_mask_rcnn_cfg cfg;
    tp_backbone backbone;
    tp_fpn fpn;
    tp_rpn rpn;
    tp_box_head box;
    tp_mask_head mask;
} tp_mask_rcnn;

/* The published configuration on a backbone. The widths of the heads follow from it: change `dim`
 * and `classes` with tp_mask_rcnn_sizes. */
TP_API tp_mask_rcnn_cfg tp_mask_rcnn_config(tp_backbone_cfg backbone, tp_detection_profile profile);
/* Sets the channels of the pyramid and the number of categories in all parts. */
TP_API void tp_mask_rcnn_sizes(tp_mask_rcnn_cfg *c, int64_t dim, int64_t classes);

/* Names of detectron2: backbone.bottom_up, backbone.fpn_lateral2 ..., proposal_generator.rpn_head,
 * roi_heads.box_head, roi_heads.box_predictor, roi_heads.mask_head. Masks of detections have sides
 * of 2 mask.side. */
extern TP_API const tp_detector_kind tp_detector_mask_rcnn;

/* Intermediate results of the losses. Free them with tp_mask_rcnn_steps_free; the tape owns the
 * tensors. */
typedef struct tp_mask_rcnn_steps {
    bool given; /* true on entry: proposals holds regions that replace those of the RPN */
    tp_pyramid pyramid;
    tp_rpn_targets rpn;
    tp_regions proposals, sampled;
} tp_mask_rcnn_steps;
TP_API void tp_mask_rcnn_steps_free(tp_mask_rcnn_steps *s);

/* The losses of a batch in training: loss_rpn_cls, loss_rpn_loc, loss_cls, loss_box_reg, loss_mask.
 * Images whose objects have no outlines do not count in loss_mask. steps may be NULL; otherwise it
 * is { 0 } or has `given`, with proposals for each image. */
TP_API tp_detection_losses tp_mask_rcnn_losses(tp_tape *T, const tp_mask_rcnn *m,
                                               const tp_detection_in *in,
                                               tp_mask_rcnn_steps *steps);

#ifdef __cplusplus
}
#endif
#endif
