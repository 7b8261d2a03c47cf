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

const compare_row compare_loss_rows[] = {
    LOSS(bce_logits), LOSS(mse), OWN(cross_entropy), OWN(smooth_l1), OWN(focal), { 0 },
};
