/* dense.h - heads that predict for every anchor of a pyramid: what RetinaNet and region proposals (RPN) share
 * (detection library). */
#ifndef TAPEGRAD_DETECTION_DENSE_H
#define TAPEGRAD_DETECTION_DENSE_H

#include <tapegrad/detection/anchors.h>
#include <tapegrad/detection/objects.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The outputs of heads for the anchors of each level: a map of height x width positions with A anchors each has
 * n = height * width * A of them, by row, column and cell. The result [B,h,w,A*K] of a convolution, reshaped to
 * [B,n,K], is in this order. */
typedef struct tp_dense {
    int levels;
    int64_t size[TP_ANCHOR_LEVELS][2];  /* height, width            */
    tp_tensor logit[TP_ANCHOR_LEVELS];  /* [B,n,classes]            */
    tp_tensor offset[TP_ANCHOR_LEVELS]; /* [B,n,4]                  */
} tp_dense;

/* The anchors of all levels, one after another; level k has first[k] ... first[k + 1] - 1. */
typedef struct tp_anchor_list {
    int levels;
    int64_t first[TP_ANCHOR_LEVELS + 1];
    tp_corners *box;
} tp_anchor_list;
/* False: out of memory. Free it with tp_anchor_list_free also then. */
TP_API bool tp_anchor_list_make(tp_anchor_list *a, const tp_anchor_cfg *c, int levels,
                                const int64_t (*size)[2]);
TP_API void tp_anchor_list_free(tp_anchor_list *a);

typedef struct tp_dense_cfg {
    tp_anchor_cfg anchors;
    int64_t classes; /* of logits; with 1, all objects are of category 0                          */
    tp_matcher matcher;
    tp_sampler sampler;  /* of anchors that count; samples 0: all. `how` follows from the batch   */
    double alpha, gamma; /* of the focal loss; -1 and 0: binary cross-entropy                     */
    double beta;         /* of the smooth L1 loss of offsets; below 1e-5: L1                      */
    bool giou;           /* the generalised IoU loss of decoded boxes instead                     */
    tp_box_coder coder;
} tp_dense_cfg;

/* The sums of both losses over a batch, scalars on the tape, and how many anchors counted. */
typedef struct tp_dense_sums {
    tp_tensor classes, boxes;
    int64_t objects, background; /* anchors that were matched to objects, and to none             */
    int64_t least_objects, least_background; /* the same, where each image counts at least 1      */
} tp_dense_sums;

/* Matches the anchors of each image with its objects and adds up the losses: the focal loss of all anchors that are not
 * ignored, and the loss of boxes of those that are matched. Images without objects have background only. Targets are
 * computed on the host, in double. label [B,anchors] receives 1, 0 or -1 for each anchor, unless it is NULL. Errors
 * fail T. */
TP_API tp_dense_sums tp_dense_losses(tp_tape *T, const tp_dense_cfg *c, const tp_dense *d,
                                     const tp_detection_in *in, int *label);

/* The boxes [n,4] (x1, y1, x2, y2) that offsets [n,4] describe relative to n boxes in host memory, with gradients to
 * offsets. Values are clamped as tp_box_decode does. */
TP_API tp_tensor tp_decode_boxes(tp_tape *T, const tp_box_coder *c, const tp_corners *box,
                                 tp_tensor offsets);

#ifdef __cplusplus
}
#endif
#endif
