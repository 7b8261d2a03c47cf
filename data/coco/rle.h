/* rle.h - internals that the makers of masks share. */
#ifndef TP_RLE_H
#define TP_RLE_H

#include <tapegrad/rle.h>

/* Makes room for `runs` runs; false, with *r empty, if out of memory or the size is impossible. */
bool tp__rle_new(tp_rle *r, int64_t height, int64_t width, int64_t runs);

/* tp_rle_iou of one pair whose boxes are known. */
double tp__rle_iou_of(const tp_rle *dt, const double dt_box[4], const tp_rle *gt,
                      const double gt_box[4], bool crowd);

#endif
