/* row_loss.c - losses and similarities of rows; their formulas are in cpu/row_loss.c. */
#include <string.h>

#include "autograd/ops/loss.h"

#define ATTR(...) .attr = TP_ATTR(tp__row_loss_attr, __VA_ARGS__)

TP_KERNEL(nll_fwd);
TP_KERNEL(nll_bwd);
TP_KERNEL(cosine_similarity_fwd);
TP_KERNEL(cosine_similarity_bwd);
TP_KERNEL(triplet_margin_fwd);
TP_KERNEL(triplet_margin_bwd);
TP_KERNEL(giou_fwd);
TP_KERNEL(giou_bwd);
TP_KERNEL(dice_fwd);
TP_KERNEL(dice_bwd);
TP_WORK(row_loss_work);
TP_WORK(giou_work);
TP_WORK(dice_work);

/* The result: a scalar, or a loss per row; rows exclude x's last axes. */
static tp_code row_result(tp_infer *q, int axes)
{
    const tp__row_loss_attr *a = q->attr;
    tp_view rows = q->x[0];
    rows.ndim -= axes;
    if (a->reduction == TP_EACH) q->y[0] = rows;
    q->y[0].dtype = tp__sum_dtype(q->x[0].dtype);
    return tp__check_reduction(q, a->reduction);
}

/* [rows, n] numbers for backward. Without elements, the leading axes may have a product that no
 * tensor can have: then uses a size that the tape refuses. */
static tp_view saved_rows(const tp_infer *q, int axes, int64_t n)
{
    tp_shape leading = { .ndim = q->x[0].ndim - axes };
    int64_t rows;
    memcpy(leading.dim, q->x[0].dim, sizeof leading.dim);
    if (!tp__numel(&leading, &rows)) rows = INT64_MAX;
    return (tp_view){ .dtype = tp__sum_dtype(q->x[0].dtype), .ndim = 2, .dim = { rows, n } };
}

/* ---- negative log-likelihood ---- */

static tp_code nll_shape(tp_infer *q)
{
    const tp_view *x = &q->x[0], *target = &q->x[1];
    tp_view want = *x;
    if (x->ndim < 1 || x->dim[x->ndim - 1] == 0)
        return tp_fail(q, TP_E_SHAPE, "x must have at least one class along the last axis");
    want.ndim--;
    if (!tp__same_shape(&want, target))
        return tp_fail(q, TP_E_SHAPE,
                       "target must have the axes of x without the last one, the classes");
    const tp_code code = tp__check_class_weights(q, x->dim[x->ndim - 1]);
    return code == TP_OK ? row_result(q, 1) : code;
}

/* Of the targets; weights become positive. */
static void ignore_some(int i, tp_view *v)
{
    for (int64_t e = 0; i == 2 && e < v->numel; e++) tp_st(v, e, 0.25 + fabs(tp_ld(v, e)));
    for (int64_t e = 0; i == 1 && e < v->numel; e++)
        if (e % 3 == 1) tp_st(v, e, -1.0 - (double)e);
}

static const tp_gradcase nll_cases[] = {
    { "mean of counted rows", .in = { TP_DIMS(2, 3, 5), TP_DIMS(2, 3) }, .below = { 0, 5 },
      .fill = ignore_some, ATTR(.reduction = TP_MEAN) },
    { "mean of all rows", .in = { TP_DIMS(5, 1), TP_DIMS(5) }, .below = { 0, 1 },
      .fill = ignore_some, ATTR(.reduction = TP_MEAN_ALL) },
    { "sum", .in = { TP_DIMS(40, 50), TP_DIMS(40) }, .below = { 0, 50 },
      ATTR(.reduction = TP_SUM) },
    { "each", .in = { TP_DIMS(5, 7), TP_DIMS(5) }, .below = { 0, 7 }, .fill = ignore_some,
      ATTR(.reduction = TP_EACH) },
    { "weighted mean", .in = { TP_DIMS(2, 3, 5), TP_DIMS(2, 3), TP_DIMS(5) }, .below = { 0, 5 },
      .fill = ignore_some, ATTR(.reduction = TP_MEAN) },
    { "weighted, each", .in = { TP_DIMS(40, 50), TP_DIMS(40), TP_DIMS(50) }, .below = { 0, 50 },
      .fill = ignore_some, ATTR(.reduction = TP_EACH) },
    { "weighted, of all rows", .in = { TP_DIMS(5, 7), TP_DIMS(5), TP_DIMS(7) }, .below = { 0, 7 },
      .fill = ignore_some, ATTR(.reduction = TP_MEAN_ALL) },
    { "no rows", .in = { TP_DIMS(0, 7), TP_DIMS(0) }, .below = { 0, 7 },
      ATTR(.reduction = TP_MEAN) },
    { 0 },
};

const tp_op tp_op_nll = {
    .name = "nll",
    .doc = "-x[target] of log-probabilities x, weighted, reduced",
    .nx = 3,
    .inputs = "x, target, weights",
    .takes = { [1] = TP_INDICES },
    .optional = 1u << 2,
    .exact = 1u << 2,
    .ny = 1,
    .attr_size = sizeof(tp__row_loss_attr),
    .saves = TP_SAVE_X(1) | TP_SAVE_X(2),
    .constant = 1u << 1 | 1u << 2,
    .shape = nll_shape,
    .forward = TP_KERNELS(nll_fwd),
    .backward = TP_KERNELS(nll_bwd),
    .work = TP_WORKS(row_loss_work),
    .cases = nll_cases,
};

tp_tensor tp_nll_weighted(tp_tape *T, tp_tensor x, tp_tensor target, tp_tensor weights,
                          tp_reduction r)
{
    return tp_apply(T, &tp_op_nll, (&(tp__row_loss_attr){ .reduction = r }), x, target, weights);
}

tp_tensor tp_nll(tp_tape *T, tp_tensor x, tp_tensor target, tp_reduction r)
{
    return tp_nll_weighted(T, x, target, TP_NONE, r);
}

/* ---- cosine similarity ---- */

static tp_code vectors(tp_infer *q)
{
    for (int i = 1; i < q->nx; i++)
        if (!tp__same_shape(&q->x[0], &q->x[i]))
            return tp_fail(q, TP_E_SHAPE,
                           "inputs differ in shape; tp_expand repeats one along an axis");
    if (q->x[0].ndim < 1) return tp_fail(q, TP_E_SHAPE, "inputs need one axis or more");
    return TP_OK;
}

static tp_code cosine_similarity_shape(tp_infer *q)
{
    const double eps = ((const tp__cosine_attr *)q->attr)->eps;
    const tp_code code = vectors(q);
    if (code != TP_OK) return code;
    if (!(eps > 0.0 && eps <= 1.0))
        return tp_fail(q, TP_E_VALUE, "eps must be in (0,1], not %g", eps);
    q->y[0] = q->x[0];
    q->y[0].ndim--;
    q->y[0].dtype = tp__sum_dtype(q->x[0].dtype);
    q->y[1] = saved_rows(q, 1, 2);
    return TP_OK;
}

static const tp_gradcase cosine_similarity_cases[] = {
    { "rows", .in = { TP_DIMS(2, 3, 5), TP_DIMS(2, 3, 5) }, .attr = &(tp__cosine_attr){ 1e-8 } },
    { "one element", .in = { TP_DIMS(3, 1), TP_DIMS(3, 1) }, .attr = &(tp__cosine_attr){ 0.5 } },
    { "short vectors", .in = { TP_DIMS(40, 2), TP_DIMS(40, 2) },
      .attr = &(tp__cosine_attr){ 0.9 } },
    { "wide", .in = { TP_DIMS(2, 1027), TP_DIMS(2, 1027) }, .attr = &(tp__cosine_attr){ 1e-8 } },
    { "no elements", .in = { TP_DIMS(3, 0), TP_DIMS(3, 0) }, .attr = &(tp__cosine_attr){ 1e-8 } },
    { "no rows", .in = { TP_DIMS(0, 3), TP_DIMS(0, 3) }, .attr = &(tp__cosine_attr){ 1e-8 } },
    { 0 },
};

const tp_op tp_op_cosine_similarity = {
    .name = "cosine_similarity",
    .doc = "a.b / (max(|a|, eps) max(|b|, eps)) over the last axis",
    .nx = 2,
    .inputs = "a, b",
    .ny = 2, /* similarity, and 1 / max(norm, eps) of both for backward */
    .attr_size = sizeof(tp__cosine_attr),
    .saves = TP_SAVE_X(0) | TP_SAVE_X(1) | TP_SAVE_Y(0) | TP_SAVE_Y(1),
    .shape = cosine_similarity_shape,
    .forward = TP_KERNELS(cosine_similarity_fwd),
    .backward = TP_KERNELS(cosine_similarity_bwd),
    .cases = cosine_similarity_cases,
};

tp_tensor tp_cosine_similarity(tp_tape *T, tp_tensor a, tp_tensor b, double eps)
{
    return tp_apply(T, &tp_op_cosine_similarity, &(tp__cosine_attr){ eps }, a, b);
}

/* ---- triplets ---- */

static tp_code triplet_shape(tp_infer *q)
{
    const tp__row_loss_attr *a = q->attr;
    const tp_code code = vectors(q);
    if (code != TP_OK) return code;
    if (!(a->p >= 1.0 && a->p <= 16.0))
        return tp_fail(q, TP_E_VALUE, "p must be in [1,16], not %g", a->p);
    if (!isfinite(a->margin)) return tp_fail(q, TP_E_VALUE, "margin must be finite: %g", a->margin);
    q->y[1] = saved_rows(q, 1, 3);
    return row_result(q, 1);
}

/* Distances in either order: some beyond the margin, some with negative nearer to positive. */
static void triplets(int i, tp_view *v)
{
    const int64_t n = v->ndim > 0 ? v->dim[v->ndim - 1] : 1;
    for (int64_t e = 0; e < v->numel; e++) {
        const double at = (double)(e * 7 % 11) / 11.0, row = (double)(e / n % 3);
        tp_st(v, e, i == 0 ? at : i == 1 ? at + 0.3 + 0.2 * row : 0.9 - at * (row - 0.5));
    }
}

static const tp_gradcase triplet_margin_cases[] = {
    { "mean", .in = { TP_DIMS(2, 3, 5), TP_DIMS(2, 3, 5), TP_DIMS(2, 3, 5) }, .fill = triplets,
      ATTR(.reduction = TP_MEAN, .margin = 0.5, .p = 2.0) },
    { "swap", .in = { TP_DIMS(7, 5), TP_DIMS(7, 5), TP_DIMS(7, 5) }, .fill = triplets,
      ATTR(.reduction = TP_EACH, .margin = 1.0, .p = 2.0, .swap = true) },
    { "p 1", .in = { TP_DIMS(7, 5), TP_DIMS(7, 5), TP_DIMS(7, 5) }, .fill = triplets,
      ATTR(.reduction = TP_SUM, .margin = 0.0, .p = 1.0) },
    { "p 3, wide", .in = { TP_DIMS(3, 131), TP_DIMS(3, 131), TP_DIMS(3, 131) }, .fill = triplets,
      ATTR(.reduction = TP_MEAN_ALL, .margin = 2.0, .p = 3.0, .swap = true) },
    { "no elements", .in = { TP_DIMS(3, 0), TP_DIMS(3, 0), TP_DIMS(3, 0) },
      ATTR(.reduction = TP_MEAN, .margin = 1.0, .p = 2.0) },
    { 0 },
};

const tp_op tp_op_triplet_margin = {
    .name = "triplet_margin",
    .doc = "max(0, margin + d(x, positive) - d(x, negative)), d = |a - b + 1e-6|_p, reduced",
    .nx = 3,
    .inputs = "x, positive, negative",
    .ny = 2, /* loss; per row, slopes in the three distances, each over d^(p-1) */
    .attr_size = sizeof(tp__row_loss_attr),
    .saves = TP_SAVE_X(0) | TP_SAVE_X(1) | TP_SAVE_X(2) | TP_SAVE_Y(1),
    .shape = triplet_shape,
    .forward = TP_KERNELS(triplet_margin_fwd),
    .backward = TP_KERNELS(triplet_margin_bwd),
    .work = TP_WORKS(row_loss_work),
    .cases = triplet_margin_cases,
};

tp_tensor tp_triplet_margin(tp_tape *T, tp_tensor x, tp_tensor positive, tp_tensor negative,
                            tp_triplet_cfg cfg, tp_reduction r)
{
    const tp__row_loss_attr a = {
        .reduction = r, .margin = cfg.margin, .p = cfg.p != 0.0 ? cfg.p : 2.0, .swap = cfg.swap
    };
    return tp_apply(T, &tp_op_triplet_margin, &a, x, positive, negative);
}

/* ---- generalised intersection over union ---- */

static tp_code giou_shape(tp_infer *q)
{
    const tp__row_loss_attr *a = q->attr;
    const tp_view *x = &q->x[0], *target = &q->x[1];
    if (!tp__same_shape(x, target)) return tp_fail(q, TP_E_SHAPE, "x and target differ in shape");
    if (x->ndim < 1 || x->dim[x->ndim - 1] != 4)
        return tp_fail(q, TP_E_SHAPE, "boxes have four corners along the last axis");
    if (!(a->eps >= 0.0 && a->eps <= 1.0))
        return tp_fail(q, TP_E_VALUE, "eps must be in [0,1], not %g", a->eps);
    return row_result(q, 1);
}

/* Boxes in all relative positions, some of them disjoint. */
static void boxes(int i, tp_view *v)
{
    for (int64_t e = 0; e < v->numel; e++) {
        const int64_t row = e / 4, corner = e % 4;
        const double at = (double)((row * 5 + i * 3 + corner % 2 * 2) % 11) / 3.0 + 0.01 * i;
        tp_st(v, e, corner < 2 ? at : at + 0.7 + (double)((row + i) % 3) + 0.1 * (double)corner);
    }
}

static const tp_gradcase giou_cases[] = {
    { "sum", .in = { TP_DIMS(2, 6, 4), TP_DIMS(2, 6, 4) }, .fill = boxes,
      ATTR(.reduction = TP_SUM, .eps = 1e-7) },
    { "mean", .in = { TP_DIMS(33, 4), TP_DIMS(33, 4) }, .fill = boxes,
      ATTR(.reduction = TP_MEAN, .eps = 0.5) },
    { "each", .in = { TP_DIMS(11, 4), TP_DIMS(11, 4) }, .fill = boxes,
      ATTR(.reduction = TP_EACH, .eps = 1e-7) },
    { "no boxes", .in = { TP_DIMS(0, 4), TP_DIMS(0, 4) }, ATTR(.reduction = TP_SUM, .eps = 1e-7) },
    { 0 },
};

const tp_op tp_op_giou = {
    .name = "giou",
    .doc = "1 - the generalised intersection over union of boxes, reduced",
    .nx = 2,
    .inputs = "x, target",
    .ny = 1,
    .attr_size = sizeof(tp__row_loss_attr),
    .saves = TP_SAVE_X(0) | TP_SAVE_X(1),
    .constant = 1u << 1,
    .shape = giou_shape,
    .forward = TP_KERNELS(giou_fwd),
    .backward = TP_KERNELS(giou_bwd),
    .work = TP_WORKS(giou_work),
    .cases = giou_cases,
};

tp_tensor tp_giou(tp_tape *T, tp_tensor x, tp_tensor target, double eps, tp_reduction r)
{
    return tp_apply(T, &tp_op_giou, (&(tp__row_loss_attr){ .reduction = r, .eps = eps }), x,
                    target);
}

/* ---- Dice ---- */

static tp_code dice_shape(tp_infer *q)
{
    const tp__row_loss_attr *a = q->attr;
    const tp_view *x = &q->x[0], *target = &q->x[1];
    if (!tp__same_shape(x, target)) return tp_fail(q, TP_E_SHAPE, "x and target differ in shape");
    if (a->axes < 0 || a->axes > x->ndim)
        return tp_fail(q, TP_E_SHAPE, "axes must be in [0,%d], the number of axes of x, not %d",
                       x->ndim, a->axes);
    if (!(a->smooth >= 0.0 && isfinite(a->smooth)))
        return tp_fail(q, TP_E_VALUE, "smooth must not be negative or infinite: %g", a->smooth);
    q->y[1] = saved_rows(q, a->axes, 2);
    return row_result(q, a->axes);
}

static const tp_gradcase dice_cases[] = {
    { "images", .in = { TP_DIMS(2, 3, 4, 5), TP_DIMS(2, 3, 4, 5) },
      ATTR(.reduction = TP_MEAN, .axes = 2, .smooth = 1.0) },
    { "all axes", .in = { TP_DIMS(3, 5), TP_DIMS(3, 5) },
      ATTR(.reduction = TP_EACH, .axes = 2, .smooth = 0.0) },
    { "several blocks", .in = { TP_DIMS(3, 8200), TP_DIMS(3, 8200) },
      ATTR(.reduction = TP_SUM, .axes = 1, .smooth = 0.5) },
    { "no elements", .in = { TP_DIMS(3, 0), TP_DIMS(3, 0) },
      ATTR(.reduction = TP_MEAN, .axes = 1) },
    { "no rows", .in = { TP_DIMS(0, 3), TP_DIMS(0, 3) }, ATTR(.reduction = TP_MEAN, .axes = 1) },
    { 0 },
};

const tp_op tp_op_dice = {
    .name = "dice",
    .doc = "1 - (2 sum x t + smooth) / (sum x^2 + sum t^2 + smooth) over the last axes, reduced",
    .nx = 2,
    .inputs = "x, target",
    .ny = 2, /* loss; Dice coefficient and 1 / denominator of each row */
    .attr_size = sizeof(tp__row_loss_attr),
    .saves = TP_SAVE_X(0) | TP_SAVE_X(1) | TP_SAVE_Y(1),
    .constant = 1u << 1,
    .shape = dice_shape,
    .forward = TP_KERNELS(dice_fwd),
    .backward = TP_KERNELS(dice_bwd),
    .work = TP_WORKS(dice_work),
    .cases = dice_cases,
};

tp_tensor tp_dice(tp_tape *T, tp_tensor x, tp_tensor target, int axes, double smooth,
                  tp_reduction r)
{
    const tp__row_loss_attr a = { .reduction = r, .axes = axes, .smooth = smooth };
    return tp_apply(T, &tp_op_dice, &a, x, target);
}
