/* roi_align.h - the pixels of a map that RoIAlign reads, by the rules of detectron2 and
 * torchvision.
 *
 * The weights of a bin are products of those of its rows and columns, so each axis is planned
 * separately. Bin b of an axis has n samples at
 *
 *     p = start + b bin + (i + 1/2) bin / n,  i = 0 ... n - 1,  bin = extent / bins
 *
 * of weight 1/n. A sample before -1 or beyond `size` counts nothing; others are clamped to the map
 * and shared between the two nearest pixels. All of this is in double, since a rounding error could
 * add a sample. p is computed so that no compiler can fuse a product and a sum: all uses of a
 * sample must agree on its pixels. */
#ifndef TP_ROI_ALIGN_H
#define TP_ROI_ALIGN_H

#include <math.h>
#include <tapegrad/op.h>
#include <tapegrad/ops.h>

#include "tensor/geometry/whole.h"

/* Inputs of the op: the maps, then these. */
enum { TP_ROI_BOXES = TP_ROI_LEVELS, TP_ROI_PLACE };

typedef struct tp__roi_attr {
    tp_roi_align_cfg cfg;
    int levels;
} tp__roi_attr;

typedef struct tp__roi_axis {
    double start, extent;
    int64_t bins, size; /* pixels of the map */
    int64_t samples;    /* of a bin, 0 if the region is empty */
} tp__roi_axis;

/* The axis of a region from `low` to `high`, in image pixels, on a map of that scale. */
static inline TP_HD tp__roi_axis tp__roi_axis_of(const tp_roi_align_cfg *c, double scale,
                                                 double low, double high, int64_t bins,
                                                 int64_t size)
{
    const double offset = c->aligned ? 0.5 : 0.0, start = low * scale - offset;
    double extent = high * scale - offset - start;
    if (!c->aligned && extent < 1.0) extent = 1.0;
    tp__roi_axis a = { start, extent, bins, size, 0 };
    const double most = 2147483648.0;
    if (!(start > -most && start < most && extent > -most && extent < most)) return a;
    a.samples = c->samples > 0 ? c->samples : (int64_t)ceil(extent / (double)a.bins);
    if (a.samples < 0) a.samples = 0;
    return a;
}

/* Sample i of a bin: 1 - *t of it goes to pixel *low, *t to the next one. False: outside. */
static inline TP_HD bool tp__roi_sample(const tp__roi_axis *a, int64_t bin, int64_t i, int64_t *low,
                                        double *t)
{
    const double k = (double)(2 * (bin * a->samples + i) + 1);
    double at = a->start + k * a->extent / (double)(2 * a->samples * a->bins);
    if (at < -1.0 || at > (double)a->size) return false;
    if (at < 0.0) at = 0.0;
    *low = (int64_t)at;
    *t = at - (double)*low;
    if (*low >= a->size - 1) {
        *low = a->size - 1;
        *t = 0.0;
    }
    return true;
}

/* A bin's samples that may be inside; few even if the region is large. */
static inline TP_HD tp__range tp__roi_samples(const tp__roi_axis *a, int64_t bin)
{
    tp__range r = { 0, a->samples };
    if (a->samples <= 64 || a->extent <= 0.0) return r;
    const double step = a->extent / (double)(a->samples * a->bins),
                 first = a->start + (double)(bin * a->samples) * step;
    const double from = (-1.0 - first) / step - 2.0, to = ((double)a->size - first) / step + 2.0;
    if (from > 0.0) r.first = from < (double)r.end ? (int64_t)from : r.end;
    if (to < (double)r.end) r.end = to > (double)r.first ? (int64_t)to : r.first;
    return r;
}

/* The pixels that a bin reads, first to last. Spans of an axis have at most `size` + 2 bins pixels
 * in total, since neighbours share at most two. */
static inline TP_HD tp__range tp__roi_span(const tp__roi_axis *a, int64_t bin)
{
    tp__range s = { 0, 0 }, r = tp__roi_samples(a, bin);
    int64_t low = 0;
    double t = 0.0;
    while (r.first < r.end && !tp__roi_sample(a, bin, r.first, &low, &t)) r.first++;
    while (r.first < r.end && !tp__roi_sample(a, bin, r.end - 1, &low, &t)) r.end--;
    if (r.first == r.end) return s;
    tp__roi_sample(a, bin, r.first, &s.first, &t);
    s.end = s.first + (t > 0.0 ? 2 : 1);
    tp__roi_sample(a, bin, r.end - 1, &low, &t);
    s.end = tp__most(s.end, low + (t > 0.0 ? 2 : 1));
    s.first = tp__least(s.first, low);
    return s;
}

/* A range with all bins' pixels. */
static inline TP_HD tp__range tp__roi_reach(const tp__roi_axis *a)
{
    const double end = a->start + a->extent;
    const double low = a->start < end ? a->start : end, high = a->start < end ? end : a->start;
    const double last = (double)a->size - 1.0;
    tp__range r = { 0, 0 };
    if (a->samples == 0) return r;
    if (low > 0.0) r.first = low < last ? (int64_t)low : a->size - 1;
    r.end = high < last ? (high > 0.0 ? (int64_t)high : 0) + 2 : a->size;
    r.end = tp__least(r.end, a->size);
    return r;
}

#endif
