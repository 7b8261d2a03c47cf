/* boxes.h - boxes by their corners: overlaps, clipping, coding as regression targets (detection library). */
#ifndef TAPEGRAD_DETECTION_BOXES_H
#define TAPEGRAD_DETECTION_BOXES_H

#include <tapegrad/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The rules of detectron2, which the papers' ViL rows follow, or of mmdetection 2.11. */
typedef enum tp_detection_profile { TP_DETECTRON2, TP_MMDETECTION } tp_detection_profile;

/* No side is one longer than the difference of its corners. */
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

/* Intersection over union, exactly 0 where the intersection is 0; the same over the area of b; generalised
 * intersection over union, from -1 to 1, with eps added to the areas that divide (Rezatofighi et al. 2019). */
TP_API double tp_corners_iou(tp_corners a, tp_corners b);
TP_API double tp_corners_ioa(tp_corners a, tp_corners b);
TP_API double tp_corners_giou(tp_corners a, tp_corners b, double eps);
/* iou [n,m] of all pairs. Matching compares these numbers for equality: compute them once. */
TP_API void tp_corners_iou_all(const tp_corners *a, int64_t n, const tp_corners *b, int64_t m,
                               double *iou);

/* How offsets to a box are written: those of the centre divided by the sides, logarithms of the ratios of sides, times
 * weights. Zero-initialised: weights 1, log(1000 / 16) as the largest logarithm that decodes. */
typedef struct tp_box_coder {
    double weight[4]; /* of x, y, w, h; all 0: 1                                          */
    double most;      /* larger logarithms are decoded as this one; 0: log(1000 / 16)     */
    bool both;        /* mmdetection: smaller logarithms than -most, too                  */
} tp_box_coder;

/* The offsets from box to target, and the box at these offsets. */
TP_API void tp_box_encode(const tp_box_coder *c, tp_corners box, tp_corners target,
                          double offset[4]);
TP_API tp_corners tp_box_decode(const tp_box_coder *c, tp_corners box, const double offset[4]);
/* The gradient of decoding: from that of the decoded corners to that of the offsets. 0 where a logarithm is cut. */
TP_API void tp_box_decode_grad(const tp_box_coder *c, tp_corners box, const double offset[4],
                               tp_corners grad, double grad_offset[4]);

/* The size of an image after its shorter side is made `size`, but the longer at most `most`. */
TP_API void tp_shortest_side(int64_t height, int64_t width, int64_t size, int64_t most,
                             int64_t resized[2]);

#ifdef __cplusplus
}
#endif
#endif
