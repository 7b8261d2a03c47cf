/* boxes.h - boxes given by their corners: intersection over union (IoU), clipping, encoding as
 * regression targets and decoding (detection library). */
#ifndef TAPEGRAD_DETECTION_BOXES_H
#define TAPEGRAD_DETECTION_BOXES_H

#include <tapegrad/model.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The width is x2 - x1 and the height y2 - y1, without adding 1. */
typedef struct tp_corners {
    double x1, y1, x2, y2;
} tp_corners;

TP_API double tp_corners_area(tp_corners a);
TP_API tp_corners tp_corners_from_xywh(const double box[4]);
TP_API void tp_corners_xywh(tp_corners a, double box[4]);
TP_API tp_corners tp_corners_clip(tp_corners a, double height, double width);
TP_API tp_corners tp_corners_scale(tp_corners a, double x, double y);
/* True if both sides are longer than `side`. */
TP_API bool tp_corners_exceed(tp_corners a, double side);

/* iou: intersection over union (IoU), exactly 0 where the intersection is 0. ioa: intersection over
 * the area of b. giou: generalised IoU, from -1 to 1, with eps added to both denominators
 * (Rezatofighi et al. 2019). */
TP_API double tp_corners_iou(tp_corners a, tp_corners b);
TP_API double tp_corners_ioa(tp_corners a, tp_corners b);
TP_API double tp_corners_giou(tp_corners a, tp_corners b, double eps);
/* The IoU of all pairs, iou [n,m]. Matching compares these numbers for equality, so compute them
 * only once. */
TP_API void tp_corners_iou_all(const tp_corners *a, int64_t n, const tp_corners *b, int64_t m,
                               double *iou);

/* How a box is encoded relative to another one: the offsets of the centre divided by the sides, and
 * the logarithms of the ratios of the sides, each times a weight. { 0 }: weights of 1, and log(1000
 * / 16) as the largest logarithm. */
typedef struct tp_box_coder {
    double weight[4]; /* of x, y, w, h; all 0: 1 */
    double most;      /* decoding clamps larger logarithms to this; 0: log(1000 / 16) */
    bool both;        /* mmdetection: logarithms below -most are clamped, too */
} tp_box_coder;

/* Encodes target relative to box; decodes offsets relative to box. */
TP_API void tp_box_encode(const tp_box_coder *c, tp_corners box, tp_corners target,
                          double offset[4]);
TP_API tp_corners tp_box_decode(const tp_box_coder *c, tp_corners box, const double offset[4]);
/* The gradient of decoding: from the gradient of the decoded corners to that of the offsets, which
 * is 0 where a logarithm is clamped. */
TP_API void tp_box_decode_grad(const tp_box_coder *c, tp_corners box, const double offset[4],
                               tp_corners grad, double grad_offset[4]);

/* The size (height, width) of an image after resizing its shorter side to `size`, or to less, so
 * that the longer side is at most `most`. No side becomes 0. The profiles round in different
 * orders, so a side halfway between pixels may differ by one. */
TP_API void tp_shortest_side(tp_detection_profile profile, int64_t height, int64_t width,
                             int64_t size, int64_t most, int64_t resized[2]);

#ifdef __cplusplus
}
#endif
#endif
