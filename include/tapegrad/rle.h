/* rle.h - run-length encoded (RLE) masks, computed as by COCO's mask code (data library).
 *
 * Pixels are in column-major order: (row y, column x) is number x * height + y. The first run[0]
 * pixels are 0, the next run[1] are 1, and so on; run[0] may be 0. Every function that returns bool
 * returns false if memory runs out or its input is refused; its output mask is then empty, { 0
 * }. */
#ifndef TAPEGRAD_RLE_H
#define TAPEGRAD_RLE_H

#include <tapegrad/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A mask owns its runs: tp_rle_free releases them and leaves { 0 }. Sides are at least 1, and their
 * product is at most TP_RLE_PIXELS. */
enum { TP_RLE_PIXELS = INT32_MAX };
typedef struct tp_rle {
    int64_t height, width;
    int64_t runs;
    uint32_t *run; /* [runs], their sum is height * width */
} tp_rle;
TP_API void tp_rle_free(tp_rle *r);

/* ---- making masks ---- */

/* From pixels [height,width], row by row; values other than 0 count as 1. tp_rle_pixels writes them
 * as 0 and 1. */
TP_API bool tp_rle_from_pixels(tp_rle *r, const uint8_t *pixels, int64_t height, int64_t width);
TP_API void tp_rle_pixels(const tp_rle *r, uint8_t *pixels);

/* From n run lengths, or from COCO's compressed text of n bytes. Refused: a negative length, a
 * character that the text format does not have, runs that do not fill the mask. why receives the
 * reason unless size is 0. */
TP_API bool tp_rle_from_counts(tp_rle *r, const int64_t *count, int64_t n, int64_t height,
                               int64_t width, char *why, size_t size);
TP_API bool tp_rle_from_string(tp_rle *r, const char *text, size_t n, int64_t height, int64_t width,
                               char *why, size_t size);
/* Writes the compressed text and a final zero, as far as they fit. Returns the length of the whole
 * text. */
TP_API size_t tp_rle_string(const tp_rle *r, char *text, size_t size);

/* The pixels inside a polygon of `points` vertices x, y, by the published rule, which samples the
 * edges in steps of a fifth of a pixel. Vertices may lie anywhere: coordinates beyond 2^45 count as
 * 2^45, and time grows with the mask's columns that edges cross. Refused: NaN. Polygons of fewer
 * than three points have no pixels. */
TP_API bool tp_rle_from_polygon(tp_rle *r, const double *xy, int64_t points, int64_t height,
                                int64_t width);
/* The same for the rectangle x, y, w, h. */
TP_API bool tp_rle_from_box(tp_rle *r, const double box[4], int64_t height, int64_t width);

/* The union, or the intersection, of n masks of one size. */
TP_API bool tp_rle_merge(tp_rle *r, const tp_rle *masks, int64_t n, bool intersect);

/* ---- measuring ---- */

TP_API int64_t tp_rle_area(const tp_rle *r);
/* x, y, w, h of the smallest box around the pixels; all 0 for a mask without pixels. */
TP_API void tp_rle_box(const tp_rle *r, double box[4]);

/* Intersection over union (IoU) of every detection (dt) with every object (gt): iou [n,m]. For a
 * crowd, the intersection is divided by the area of the detection instead. crowd [m] may be NULL.
 * Masks of different sizes give -1. Boxes are x, y, w, h. */
TP_API void tp_rle_iou(const tp_rle *dt, int64_t n, const tp_rle *gt, int64_t m, const bool *crowd,
                       double *iou);
TP_API void tp_box_iou_xywh(const double (*dt)[4], int64_t n, const double (*gt)[4], int64_t m,
                            const bool *crowd, double *iou);

#ifdef __cplusplus
}
#endif
#endif
