/* roi_align.c - RoIAlign: resizes regions of a pyramid's maps to one size (He et al. 2017).
 *
 *     y[r,p,q,c] = sum_i sum_j h[r,p,i] w[r,q,j] map[place[r]][i,j,c]
 *
 * h, w: tensor/geometry/roi_align.h. Backward recomputes both from the boxes. */
#include "tensor/geometry/roi_align.h"
#include "autograd/ops/op_inner.h"
#include "autograd/tape.h"

enum { BOXES = TP_ROI_BOXES, PLACE = TP_ROI_PLACE, MOST = 256, MOST_SAMPLES = 64 };

static tp_code check_cfg(tp_infer *q, const tp__roi_attr *at)
{
    if (at->levels < 1 || at->levels > TP_ROI_LEVELS)
        return tp_fail(q, TP_E_VALUE, "there are %d maps, not 1 to %d", at->levels, TP_ROI_LEVELS);
    for (int k = 0; k < 2; k++)
        if (at->cfg.size[k] < 1 || at->cfg.size[k] > MOST)
            return tp_fail(q, TP_E_VALUE,
                           "regions cannot have %lld bins along an axis, only 1 to %d",
                           (long long)at->cfg.size[k], MOST);
    for (int l = 0; l < at->levels; l++)
        if (!(at->cfg.scale[l] > 0.0 && at->cfg.scale[l] < 1e6))
            return tp_fail(q, TP_E_VALUE, "the scale of map %d cannot be %g", l, at->cfg.scale[l]);
    if (at->cfg.samples < 0 || at->cfg.samples > MOST_SAMPLES)
        return tp_fail(q, TP_E_VALUE, "bins cannot have %d samples along an axis, only 0 to %d",
                       at->cfg.samples, MOST_SAMPLES);
    return TP_OK;
}

static tp_code check_maps(tp_infer *q, const tp__roi_attr *at)
{
    const tp_view *first = &q->x[0];
    for (int l = 0; l < at->levels; l++) {
        const tp_view *x = &q->x[l];
        if (tp_absent(x)) return tp_fail(q, TP_E_VALUE, "map %d is missing (TP_NONE)", l);
        if (x->ndim != 4)
            return tp_fail(q, TP_E_SHAPE, "maps must be [B,H,W,C]; map %d has %d axes", l, x->ndim);
        if (x->dim[0] != first->dim[0] || x->dim[3] != first->dim[3])
            return tp_fail(
                q, TP_E_SHAPE,
                "maps must have as many images and channels as the first; map %d differs", l);
        if (x->dim[1] < 1 || x->dim[2] < 1 || x->dim[1] >= INT32_MAX || x->dim[2] >= INT32_MAX)
            return tp_fail(q, TP_E_SHAPE,
                           "maps must have 1 or more rows and columns, below 2^31 - 1; map %d", l);
    }
    return TP_OK;
}

static tp_code roi_align_shape(tp_infer *q)
{
    const tp__roi_attr *at = q->attr;
    const tp_view *boxes = &q->x[BOXES], *place = &q->x[PLACE];
    tp_code code = check_cfg(q, at);
    if (code == TP_OK) code = check_maps(q, at);
    if (code != TP_OK) return code;
    if (boxes->ndim != 2 || boxes->dim[1] != 4)
        return tp_fail(q, TP_E_SHAPE, "boxes must be [R,4]");
    if (place->ndim != 2 || place->dim[1] != 2 || place->dim[0] != boxes->dim[0])
        return tp_fail(q, TP_E_SHAPE, "places must be [%lld,2]: the image and the map of each box",
                       (long long)boxes->dim[0]);
    q->y[0] = q->x[0];
    q->y[0].dim[0] = boxes->dim[0];
    q->y[0].dim[1] = at->cfg.size[0];
    q->y[0].dim[2] = at->cfg.size[1];
    return TP_OK;
}

/* All kinds of boxes around a 24 x 20 pixel image: inside, across edges, far outside, tiny, empty,
 * inverted. */
static void fill_box(int e, double box[4])
{
    static const double all[][4] = {
        { 2.3, 1.7, 11.9, 8.2 },  { -3.1, -2.4, 5.3, 6.7 },    { 14.2, 12.6, 27.8, 23.9 },
        { 0.4, 0.3, 19.6, 23.2 }, { 7.15, 9.35, 7.95, 10.05 }, { -60.0, -50.0, 90.0, 80.0 },
        { 40.2, 3.1, 55.4, 9.9 }, { 6.3, 6.1, 6.3, 9.2 },      { 9.4, 8.6, 4.7, 3.9 },
        { -9.0, 2.0, -7.5, 6.0 }, { 3.3, 17.4, 16.1, 18.9 },   { 18.7, -1.2, 20.9, 21.3 },
    };
    for (int k = 0; k < 4; k++) box[k] = all[e % 12][k];
}

/* images, maps: bounds of places. */
static void fill_region(int i, tp_view *x, int images, int maps)
{
    for (int64_t e = 0; i == BOXES && e < x->numel / 4; e++) {
        double box[4];
        fill_box((int)e, box);
        for (int k = 0; k < 4; k++) tp_st(x, 4 * e + k, box[k] + 0.11 * (double)(e / 12));
    }
    for (int64_t e = 0; i == PLACE && e < x->numel / 2; e++) {
        tp_st(x, 2 * e, (double)(e * 5 / 3 % images));
        tp_st(x, 2 * e + 1, (double)(e % maps));
    }
}

static void one_map(int i, tp_view *x)
{
    fill_region(i, x, 2, 1);
}

static void one_image(int i, tp_view *x)
{
    fill_region(i, x, 1, 1);
}

static void three_maps(int i, tp_view *x)
{
    fill_region(i, x, 2, 3);
}

#define PLACES     .below = { [PLACE] = 1 }
#define REGIONS(R) [BOXES] = TP_DIMS(R, 4), [PLACE] = TP_DIMS(R, 2)
static const tp_gradcase roi_align_cases[] = {
    { "aligned", .in = { TP_DIMS(2, 12, 10, 3), REGIONS(12) }, PLACES, .fill = one_map,
      .attr = &(tp__roi_attr){ { { 3, 2 }, { 0.5 }, 0, true }, 1 } },
    { "not aligned", .in = { TP_DIMS(2, 12, 10, 2), REGIONS(12) }, PLACES, .fill = one_map,
      .attr = &(tp__roi_attr){ { { 2, 3 }, { 0.5 }, 0, false }, 1 } },
    { "two samples", .in = { TP_DIMS(2, 6, 5, 2), REGIONS(12) }, PLACES, .fill = one_map,
      .attr = &(tp__roi_attr){ { { 3, 3 }, { 0.25 }, 2, true }, 1 } },
    { "three samples, not aligned", .in = { TP_DIMS(1, 6, 5, 1), REGIONS(12) }, PLACES,
      .fill = one_image, .attr = &(tp__roi_attr){ { { 1, 4 }, { 0.25 }, 3, false }, 1 } },
    { "three maps",
      .in = { TP_DIMS(2, 12, 10, 2), TP_DIMS(2, 6, 5, 2), TP_DIMS(2, 3, 3, 2), REGIONS(24) },
      PLACES, .fill = three_maps,
      .attr = &(tp__roi_attr){ { { 3, 3 }, { 0.5, 0.25, 0.125 }, 0, true }, 3 } },
    { "packs", .in = { TP_DIMS(1, 6, 5, 40), REGIONS(3) }, PLACES, .fill = one_image,
      .attr = &(tp__roi_attr){ { { 2, 2 }, { 0.25 }, 0, true }, 1 } },
    { "more regions than a tile lists", .in = { TP_DIMS(1, 3, 3, 1), REGIONS(300) }, PLACES,
      .fill = one_image, .attr = &(tp__roi_attr){ { { 1, 1 }, { 0.125 }, 0, true }, 1 } },
    { "rows of many tiles", .in = { TP_DIMS(1, 37, 35, 1), REGIONS(4) }, PLACES, .fill = one_image,
      .attr = &(tp__roi_attr){ { { 2, 2 }, { 1.5 }, 0, true }, 1 } },
    { "one pixel", .in = { TP_DIMS(1, 1, 1, 2), REGIONS(12) }, PLACES, .fill = one_image,
      .attr = &(tp__roi_attr){ { { 2, 2 }, { 0.04 }, 0, true }, 1 } },
    { "no regions", .in = { TP_DIMS(2, 6, 5, 2), REGIONS(0) }, PLACES, .fill = one_map,
      .attr = &(tp__roi_attr){ { { 2, 2 }, { 0.25 }, 0, true }, 1 } },
    { "no channels", .in = { TP_DIMS(1, 6, 5, 0), REGIONS(2) }, PLACES, .fill = one_image,
      .attr = &(tp__roi_attr){ { { 2, 2 }, { 0.25 }, 0, true }, 1 } },
    { 0 },
};

TP_KERNEL(roi_align_fwd);
TP_KERNEL(roi_align_bwd);
TP_WORK(roi_align_work);

const tp_op tp_op_roi_align = {
    .name = "roi_align",
    .doc = "regions of pyramid maps in bins of bilinear samples; boxes get no gradient",
    .nx = TP_ROI_PLACE + 1,
    .inputs = "map 0, map 1, map 2, map 3, map 4, map 5, boxes, place",
    .takes = { [PLACE] = TP_INDICES },
    .ny = 1,
    .attr_size = sizeof(tp__roi_attr),
    .saves = TP_SAVE_X(BOXES) | TP_SAVE_X(PLACE),
    .optional = TP_SAVE_X(BOXES) - 1, /* the maps; the shape rule needs one per level */
    .constant = 1u << BOXES | 1u << PLACE,
    .exact = 1u << BOXES,
    .flags = TP_ACCUMULATES,
    .shape = roi_align_shape,
    .forward = TP_KERNELS(roi_align_fwd),
    .backward = TP_KERNELS(roi_align_bwd),
    .work = TP_WORKS(roi_align_work),
    .cases = roi_align_cases,
};

tp_tensor tp_roi_align(tp_tape *T, int levels, const tp_tensor *map, tp_tensor boxes,
                       tp_tensor place, tp_roi_align_cfg cfg)
{
    tp__roi_attr at = { cfg, levels };
    tp_tensor x[TP_ROI_PLACE + 1] = { TP_NONE };
    if (levels > 0 && !map && tp_ok(T))
        return tp__fail(T, TP_E_VALUE, "roi_align: NULL was given in place of %d maps", levels);
    for (int l = 0; l < TP_ROI_LEVELS; l++) {
        if (l < levels && map) x[l] = map[l];
        at.cfg.scale[l] = l >= levels ? 0.0 : cfg.scale[l] == 0.0 ? 1.0 : cfg.scale[l];
    }
    const bool wide = tp_dtype_of(x[0]) == TP_F64 && tp_is_float(tp_dtype_of(boxes));
    x[BOXES] = levels > 0 && wide ? tp_cast(T, boxes, TP_F64) : boxes;
    x[PLACE] = place;
    return tp_apply_n(T, &tp_op_roi_align, &at, TP_ROI_PLACE + 1, x, 1, NULL);
}
