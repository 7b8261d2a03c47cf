/* masks.h - masks of regions: training targets, and pasting into images (detection library). */
#ifndef TAPEGRAD_DETECTION_MASKS_H
#define TAPEGRAD_DETECTION_MASKS_H

#include <tapegrad/detection/boxes.h>
#include <tapegrad/rle.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Draws the part of an object's polygons that is inside a box on side x side pixels, by COCO's
 * rule. Polygon k has count[k] vertices; the vertices of all polygons follow one another in xy.
 * target [side,side] is 0 or 1. False: out of memory, or a coordinate is not a number. */
TP_API bool tp_mask_target(const double *xy, const int64_t *count, int64_t polygons, tp_corners box,
                           int64_t side, uint8_t *target);
/* The same from the object's pixels [height,width] by averaging, as mmdetection does: part
 * [side,side] from 0 to 1; the target is part >= 0.5. All 0 for a box whose sides are not positive
 * and finite. Each element averages one sample for each pixel that it covers, but at most height x
 * width samples if it covers more than the image. */
TP_API void tp_mask_target_from_pixels(const uint8_t *pixels, int64_t height, int64_t width,
                                       tp_corners box, int64_t side, double *part);

/* Pastes the probabilities [side,side] of a mask into an image. pixels [height,width] are 1 where
 * the probability at their centre, interpolated bilinearly with zeros outside the mask, reaches the
 * threshold, else 0. The threshold must be above 0; the published one is 0.5. */
TP_API void tp_paste_mask(const float *probability, int64_t side, tp_corners box, double threshold,
                          int64_t height, int64_t width, uint8_t *pixels);
/* The same as a run-length encoded mask; only pixels inside the box are computed. False: out of
 * memory, or a mask of this size is not possible. */
TP_API bool tp_paste_rle(const float *probability, int64_t side, tp_corners box, double threshold,
                         int64_t height, int64_t width, tp_rle *r);

#ifdef __cplusplus
}
#endif
#endif
