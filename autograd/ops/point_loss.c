/* point_loss.c - elementwise losses of x and a target; their formulas are in cpu/point_loss.c. */
#include "autograd/ops/loss.h"

#define ATTR(...) .attr = TP_ATTR(tp__point_loss_attr, __VA_ARGS__)

/* ---- squared error ---- */

static const tp_gradcase mse_cases[] = {
    { "mean", .in = { TP_DIMS(3, 5), TP_DIMS(3, 5) },
      ATTR(.loss = TP_LOSS_MSE, .reduction = TP_MEAN) },
    { "sum", .in = { TP_DIMS(100), TP_DIMS(100) }, ATTR(.loss = TP_LOSS_MSE, .reduction = TP_SUM) },
    { "each", .in = { TP_DIMS(3, 5), TP_DIMS(3, 5) },
      ATTR(.loss = TP_LOSS_MSE, .reduction = TP_EACH) },
    { "two blocks and part of a pack", .in = { TP_DIMS(4099), TP_DIMS(4099) },
      ATTR(.loss = TP_LOSS_MSE, .reduction = TP_MEAN) },
    { 0 },
};

const tp_op tp_op_mse = {
    .name = "mse",
    .doc = "(x - target)^2, reduced",
    .shape = tp__point_loss_shape,
    .cases = mse_cases,
    TP_POINT_LOSS,
};

tp_tensor tp_mse(tp_tape *T, tp_tensor x, tp_tensor target, tp_reduction r)
{
    return tp_apply(T, &tp_op_mse, (&(tp__point_loss_attr){ .loss = TP_LOSS_MSE, .reduction = r }),
                    x, target);
}

/* ---- quadratic near zero and linear beyond (Girshick 2015) ---- */

static tp_code smooth_l1_shape(tp_infer *q)
{
    const tp__point_loss_attr *a = q->attr;
    if (!(a->beta >= 0.0 && a->beta < (double)INFINITY))
        return tp_fail(q, TP_E_VALUE, "beta must not be negative or infinite: %g", a->beta);
    return tp__point_loss_shape(q);
}

static const tp_gradcase smooth_l1_cases[] = {
    { "both parts", .in = { TP_DIMS(3, 7), TP_DIMS(3, 7) },
      ATTR(.loss = TP_LOSS_SMOOTH_L1, .reduction = TP_MEAN, .beta = 0.7) },
    { "beta 0", .in = { TP_DIMS(3, 7), TP_DIMS(3, 7) },
      ATTR(.loss = TP_LOSS_SMOOTH_L1, .reduction = TP_EACH, .beta = 0.0) },
    { "sum", .in = { TP_DIMS(100), TP_DIMS(100) },
      ATTR(.loss = TP_LOSS_SMOOTH_L1, .reduction = TP_SUM, .beta = 1.0) },
    { 0 },
};

const tp_op tp_op_smooth_l1 = {
    .name = "smooth_l1",
    .doc = "d^2/(2 beta) if |d| < beta else |d| - beta/2, d = x - target, reduced",
    .shape = smooth_l1_shape,
    .cases = smooth_l1_cases,
    TP_POINT_LOSS,
};

tp_tensor tp_smooth_l1(tp_tape *T, tp_tensor x, tp_tensor target, double beta, tp_reduction r)
{
    const tp__point_loss_attr a = { .loss = TP_LOSS_SMOOTH_L1, .reduction = r, .beta = beta };
    return tp_apply(T, &tp_op_smooth_l1, &a, x, target);
}

/* ---- binary cross-entropy of sigmoid(x), from the logits ---- */

static const tp_gradcase bce_cases[] = {
    { "mean", .in = { TP_DIMS(3, 5), TP_DIMS(3, 5) },
      ATTR(.loss = TP_LOSS_BCE, .reduction = TP_MEAN) },
    { "sum", .in = { TP_DIMS(100), TP_DIMS(100) }, ATTR(.loss = TP_LOSS_BCE, .reduction = TP_SUM) },
    { "each", .in = { TP_DIMS(3, 5), TP_DIMS(3, 5) },
      ATTR(.loss = TP_LOSS_BCE, .reduction = TP_EACH) },
    { 0 },
};

const tp_op tp_op_bce_logits = {
    .name = "bce_logits",
    .doc = "max(x,0) - x target + log(1 + exp(-|x|)), reduced",
    .shape = tp__point_loss_shape,
    .cases = bce_cases,
    TP_POINT_LOSS,
};

tp_tensor tp_bce_logits(tp_tape *T, tp_tensor x, tp_tensor target, tp_reduction r)
{
    return tp_apply(T, &tp_op_bce_logits,
                    (&(tp__point_loss_attr){ .loss = TP_LOSS_BCE, .reduction = r }), x, target);
}

/* ---- binary cross-entropy of probabilities ---- */

/* x in (0,1), targets in [0,1]. */
static void inside(int i, tp_view *v)
{
    for (int64_t e = 0; e < v->numel; e++)
        tp_st(v, e, i == 0 ? 0.1 + 0.8 * (double)(e % 13) / 13.0 : (double)(e % 3) / 2.0);
}

static const tp_gradcase bce_probs_cases[] = {
    { "mean", .in = { TP_DIMS(3, 5), TP_DIMS(3, 5) }, .fill = inside,
      ATTR(.loss = TP_LOSS_PROBS, .reduction = TP_MEAN) },
    { "each", .in = { TP_DIMS(100), TP_DIMS(100) }, .fill = inside,
      ATTR(.loss = TP_LOSS_PROBS, .reduction = TP_EACH) },
    { 0 },
};

const tp_op tp_op_bce = {
    .name = "bce",
    .doc = "-t log x - (1-t) log(1-x) of probabilities x, reduced",
    .shape = tp__point_loss_shape,
    .cases = bce_probs_cases,
    TP_POINT_LOSS,
};

tp_tensor tp_bce(tp_tape *T, tp_tensor x, tp_tensor target, tp_reduction r)
{
    const tp__point_loss_attr a = { .loss = TP_LOSS_PROBS, .reduction = r };
    return tp_apply(T, &tp_op_bce, &a, x, target);
}

/* ---- Kullback-Leibler divergence ---- */

/* Log-probabilities at input 0; targets are probabilities, some of them 0. */
static void divergence(int i, tp_view *v)
{
    for (int64_t e = 0; e < v->numel; e++)
        tp_st(v, e, i == 0 ? -0.1 - (double)(e % 11) / 4.0 : (double)(e % 4) / 8.0);
}

static const tp_gradcase kl_div_cases[] = {
    { "probabilities", .in = { TP_DIMS(3, 5), TP_DIMS(3, 5) }, .fill = divergence,
      ATTR(.loss = TP_LOSS_KL, .reduction = TP_MEAN) },
    { "each", .in = { TP_DIMS(100), TP_DIMS(100) }, .fill = divergence,
      ATTR(.loss = TP_LOSS_KL, .reduction = TP_EACH) },
    { "their logarithms", .in = { TP_DIMS(4099), TP_DIMS(4099) },
      ATTR(.loss = TP_LOSS_KL_LOG, .reduction = TP_SUM) },
    { 0 },
};

const tp_op tp_op_kl_div = {
    .name = "kl_div",
    .doc = "t (log t - x), x log-probabilities, t probabilities or their logarithms, reduced",
    .shape = tp__point_loss_shape,
    .cases = kl_div_cases,
    TP_POINT_LOSS,
};

tp_tensor tp_kl_div(tp_tape *T, tp_tensor x, tp_tensor target, bool log_target, tp_reduction r)
{
    const tp__point_loss_attr a = { .loss = log_target ? TP_LOSS_KL_LOG : TP_LOSS_KL,
                                    .reduction = r };
    return tp_apply(T, &tp_op_kl_div, &a, x, target);
}

/* ---- Poisson ---- */

static tp_code poisson_shape(tp_infer *q)
{
    const tp__point_loss_attr *a = q->attr;
    if (!(a->eps >= 0.0 && a->eps <= 1.0))
        return tp_fail(q, TP_E_VALUE, "eps must be in [0,1], not %g", a->eps);
    return tp__point_loss_shape(q);
}

/* Positive rates; counts from 0. */
static void counts(int i, tp_view *v)
{
    for (int64_t e = 0; e < v->numel; e++)
        tp_st(v, e, i == 0 ? 0.2 + (double)(e % 9) / 4.0 : (double)(e % 5));
}

static const tp_gradcase poisson_nll_cases[] = {
    { "log rates", .in = { TP_DIMS(3, 5), TP_DIMS(3, 5) }, .fill = counts,
      ATTR(.loss = TP_LOSS_POISSON, .reduction = TP_MEAN, .eps = 1e-8) },
    { "log rates, full", .in = { TP_DIMS(100), TP_DIMS(100) }, .fill = counts,
      ATTR(.loss = TP_LOSS_POISSON_FULL, .reduction = TP_EACH, .eps = 1e-8) },
    { "rates", .in = { TP_DIMS(100), TP_DIMS(100) }, .fill = counts,
      ATTR(.loss = TP_LOSS_POISSON_RATE, .reduction = TP_SUM, .eps = 0.1) },
    { "rates, full", .in = { TP_DIMS(100), TP_DIMS(100) }, .fill = counts,
      ATTR(.loss = TP_LOSS_POISSON_RATE_FULL, .reduction = TP_MEAN, .eps = 1e-8) },
    { 0 },
};

const tp_op tp_op_poisson_nll = {
    .name = "poisson_nll",
    .doc = "e^x - t x or x - t log(x + eps), with or without log t!, reduced",
    .shape = poisson_shape,
    .cases = poisson_nll_cases,
    TP_POINT_LOSS,
};

tp_tensor tp_poisson_nll(tp_tape *T, tp_tensor x, tp_tensor target, tp_poisson_nll_cfg cfg,
                         tp_reduction r)
{
    static const tp__loss of[2][2] = { { TP_LOSS_POISSON, TP_LOSS_POISSON_FULL },
                                       { TP_LOSS_POISSON_RATE, TP_LOSS_POISSON_RATE_FULL } };
    const tp__point_loss_attr a = { .loss = of[cfg.rate][cfg.full],
                                    .reduction = r,
                                    .eps = cfg.eps != 0.0 ? cfg.eps : 1e-8 };
    return tp_apply(T, &tp_op_poisson_nll, &a, x, target);
}

/* ---- margins ---- */

static tp_code margin_shape(tp_infer *q)
{
    const tp__point_loss_attr *a = q->attr;
    if (!isfinite(a->margin)) return tp_fail(q, TP_E_VALUE, "margin must be finite: %g", a->margin);
    return tp__point_loss_shape(q);
}

/* x away from the corners of the losses; targets 1 and -1. */
static void signs(int i, tp_view *v)
{
    for (int64_t e = 0; e < v->numel; e++)
        tp_st(v, e, i == 0 ? (double)(e % 17) / 8.0 - 1.06 : e % 3 ? 1.0 : -1.0);
}

static const tp_gradcase hinge_cases[] = {
    { "mean", .in = { TP_DIMS(3, 7), TP_DIMS(3, 7) }, .fill = signs,
      ATTR(.loss = TP_LOSS_HINGE, .reduction = TP_MEAN, .margin = 0.5) },
    { "each", .in = { TP_DIMS(100), TP_DIMS(100) }, .fill = signs,
      ATTR(.loss = TP_LOSS_HINGE, .reduction = TP_EACH, .margin = 0.0) },
    { 0 },
};

const tp_op tp_op_hinge = {
    .name = "hinge",
    .doc = "max(0, margin - t x), reduced",
    .shape = margin_shape,
    .cases = hinge_cases,
    TP_POINT_LOSS,
};

tp_tensor tp_hinge(tp_tape *T, tp_tensor x, tp_tensor target, double margin, tp_reduction r)
{
    const tp__point_loss_attr a = { .loss = TP_LOSS_HINGE, .reduction = r, .margin = margin };
    return tp_apply(T, &tp_op_hinge, &a, x, target);
}

tp_tensor tp_margin_ranking(tp_tape *T, tp_tensor a, tp_tensor b, tp_tensor target, double margin,
                            tp_reduction r)
{
    return tp_hinge(T, tp_sub(T, a, b), target, margin, r);
}

static const tp_gradcase hinge_embedding_cases[] = {
    { "mean", .in = { TP_DIMS(3, 7), TP_DIMS(3, 7) }, .fill = signs,
      ATTR(.loss = TP_LOSS_HINGE_EMBEDDING, .reduction = TP_MEAN, .margin = 0.5) },
    { "each", .in = { TP_DIMS(100), TP_DIMS(100) }, .fill = signs,
      ATTR(.loss = TP_LOSS_HINGE_EMBEDDING, .reduction = TP_EACH, .margin = 1.0) },
    { 0 },
};

const tp_op tp_op_hinge_embedding = {
    .name = "hinge_embedding",
    .doc = "x if t is 1, max(0, margin - x) if t is -1, reduced",
    .shape = margin_shape,
    .cases = hinge_embedding_cases,
    TP_POINT_LOSS,
};

tp_tensor tp_hinge_embedding(tp_tape *T, tp_tensor x, tp_tensor target, double margin,
                             tp_reduction r)
{
    const tp__point_loss_attr a = { .loss = TP_LOSS_HINGE_EMBEDDING,
                                    .reduction = r,
                                    .margin = margin };
    return tp_apply(T, &tp_op_hinge_embedding, &a, x, target);
}

static const tp_gradcase soft_margin_cases[] = {
    { "mean", .in = { TP_DIMS(3, 7), TP_DIMS(3, 7) }, .fill = signs,
      ATTR(.loss = TP_LOSS_SOFT_MARGIN, .reduction = TP_MEAN) },
    { "each", .in = { TP_DIMS(100), TP_DIMS(100) }, .fill = signs,
      ATTR(.loss = TP_LOSS_SOFT_MARGIN, .reduction = TP_EACH) },
    { 0 },
};

const tp_op tp_op_soft_margin = {
    .name = "soft_margin",
    .doc = "log(1 + e^(-t x)), reduced",
    .shape = tp__point_loss_shape,
    .cases = soft_margin_cases,
    TP_POINT_LOSS,
};

tp_tensor tp_soft_margin(tp_tape *T, tp_tensor x, tp_tensor target, tp_reduction r)
{
    const tp__point_loss_attr a = { .loss = TP_LOSS_SOFT_MARGIN, .reduction = r };
    return tp_apply(T, &tp_op_soft_margin, &a, x, target);
}

/* ---- the loss of cosine similarities ---- */

static tp_code cosine_shape(tp_infer *q)
{
    const tp__point_loss_attr *a = q->attr;
    if (!(a->margin >= -1.0 && a->margin <= 1.0))
        return tp_fail(q, TP_E_VALUE, "margin must be in [-1,1], not %g", a->margin);
    return tp__point_loss_shape(q);
}

static const tp_gradcase cosine_embedding_cases[] = {
    { "mean", .in = { TP_DIMS(3, 7), TP_DIMS(3, 7) }, .fill = signs,
      ATTR(.loss = TP_LOSS_COSINE, .reduction = TP_MEAN, .margin = 0.1) },
    { "each", .in = { TP_DIMS(100), TP_DIMS(100) }, .fill = signs,
      ATTR(.loss = TP_LOSS_COSINE, .reduction = TP_EACH, .margin = -0.2) },
    { 0 },
};

const tp_op tp_op_cosine_embedding = {
    .name = "cosine_embedding",
    .doc = "1 - x if t is 1, max(0, x - margin) if t is -1, for similarities x, reduced",
    .shape = cosine_shape,
    .cases = cosine_embedding_cases,
    TP_POINT_LOSS,
};

tp_tensor tp_cosine_embedding(tp_tape *T, tp_tensor a, tp_tensor b, tp_tensor target, double margin,
                              tp_reduction r)
{
    const tp__point_loss_attr loss = { .loss = TP_LOSS_COSINE, .reduction = r, .margin = margin };
    return tp_apply(T, &tp_op_cosine_embedding, &loss, tp_cosine_similarity(T, a, b, 1e-6), target);
}
