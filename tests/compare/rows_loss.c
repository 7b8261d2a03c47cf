/* rows_loss.c - losses. */
#define TP_NO_SITE
#include "rows.h"

static tp_tensor run_cross_entropy(compare_call *c)
{
    return tp_cross_entropy_smooth(c->T, c->x[0], c->x[1], compare_number(c, "smoothing", 0.0),
                                   compare_reduction(c));
}

static tp_tensor run_smooth_l1(compare_call *c)
{
    return tp_smooth_l1(c->T, c->x[0], c->x[1], compare_number(c, "beta", 1.0),
                        compare_reduction(c));
}

static tp_tensor run_focal(compare_call *c)
{
    return tp_focal(c->T, c->x[0], c->x[1], compare_number(c, "alpha", 0.25),
                    compare_number(c, "gamma", 2.0), compare_reduction(c));
}

static tp_tensor run_focal_class(compare_call *c)
{
    return run_focal(c);
}

static tp_tensor run_giou(compare_call *c)
{
    return tp_giou(c->T, c->x[0], c->x[1], compare_number(c, "eps", 1e-7), compare_reduction(c));
}

static tp_tensor run_kl_div(compare_call *c)
{
    return tp_kl_div(c->T, c->x[0], c->x[1], compare_flag(c, "log_target"), compare_reduction(c));
}

static tp_tensor run_poisson_nll(compare_call *c)
{
    const tp_poisson_nll_cfg cfg = { .rate = compare_flag(c, "rate"),
                                     .full = compare_flag(c, "full"),
                                     .eps = compare_number(c, "eps", 0.0) };
    return tp_poisson_nll(c->T, c->x[0], c->x[1], cfg, compare_reduction(c));
}

static tp_tensor run_hinge(compare_call *c)
{
    return tp_hinge(c->T, c->x[0], c->x[1], compare_number(c, "margin", 1.0), compare_reduction(c));
}

static tp_tensor run_hinge_embedding(compare_call *c)
{
    return tp_hinge_embedding(c->T, c->x[0], c->x[1], compare_number(c, "margin", 1.0),
                              compare_reduction(c));
}

static tp_tensor run_margin_ranking(compare_call *c)
{
    return tp_margin_ranking(c->T, c->x[0], c->x[1], c->x[2], compare_number(c, "margin", 0.0),
                             compare_reduction(c));
}

static tp_tensor run_cosine_similarity(compare_call *c)
{
    return tp_cosine_similarity(c->T, c->x[0], c->x[1], compare_number(c, "eps", 1e-8));
}

static tp_tensor run_cosine_embedding(compare_call *c)
{
    return tp_cosine_embedding(c->T, c->x[0], c->x[1], c->x[2], compare_number(c, "margin", 0.0),
                               compare_reduction(c));
}

static tp_tensor run_triplet_margin(compare_call *c)
{
    const tp_triplet_cfg cfg = { .margin = compare_number(c, "margin", 1.0),
                                 .p = compare_number(c, "p", 0.0),
                                 .swap = compare_flag(c, "swap") };
    return tp_triplet_margin(c->T, c->x[0], c->x[1], c->x[2], cfg, compare_reduction(c));
}

static tp_tensor run_dice(compare_call *c)
{
    return tp_dice(c->T, c->x[0], c->x[1], (int)compare_int(c, "axes", 1),
                   compare_number(c, "smooth", 0.0), compare_reduction(c));
}

/* The gradient of logits: PyTorch's of log-probabilities is another (ops/loss.h). */
static tp_tensor run_ctc(compare_call *c)
{
    const tp_ctc_cfg cfg = { .blank = compare_int(c, "blank", 0),
                             .zero_infinity = compare_flag(c, "zero_infinity") };
    return tp_ctc(c->T, tp_log_softmax(c->T, c->x[0]), c->x[1], compare_input(c, 2), c->x[3], cfg,
                  compare_reduction(c));
}

const compare_row compare_loss_rows[] = {
    LOSS(bce_logits),
    LOSS(mse),
    LOSS(bce),
    LOSS(soft_margin),
    LOSS(nll),
    OWN(cross_entropy),
    OWN(smooth_l1),
    OWN(focal),
    OWN(focal_class),
    OWN(giou),
    OWN(kl_div),
    OWN(poisson_nll),
    OWN(hinge),
    OWN(hinge_embedding),
    OWN(margin_ranking),
    OWN(cosine_similarity),
    OWN(cosine_embedding),
    OWN(triplet_margin),
    OWN(dice),
    OWN(ctc),
    { 0 },
};
