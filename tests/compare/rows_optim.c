/* rows_optim.c - optimisers: the parameters p.0, p.1, .. take one step for each row of x0, x1, ..,
 * whose row s is the gradient of step s. The results are the parameters. */
#define TP_NO_SITE
#include <stdio.h>
#include <string.h>

#include "rows.h"

/* O over c->P, options from the call; NULL: no such kind. */
static tp_optim *optimiser(const compare_call *c, const char *kind)
{
    const double decay = compare_number(c, "weight_decay", 0.0);
    const tp_adam_opts adam = { .beta1 = compare_number(c, "beta1", 0.0),
                                .beta2 = compare_number(c, "beta2", 0.0),
                                .eps = compare_number(c, "eps", 0.0),
                                .weight_decay = decay };
    const tp_sgd_opts sgd = { .momentum = compare_number(c, "momentum", 0.0),
                              .weight_decay = decay,
                              .nesterov = compare_flag(c, "nesterov") };
    const tp_rmsprop_opts rmsprop = { .alpha = compare_number(c, "alpha", 0.0),
                                      .eps = adam.eps,
                                      .momentum = sgd.momentum,
                                      .weight_decay = decay,
                                      .centered = compare_flag(c, "centered") };
    const tp_adagrad_opts adagrad = { .eps = adam.eps,
                                      .lr_decay = compare_number(c, "lr_decay", 0.0),
                                      .initial_accumulator = compare_number(c, "initial", 0.0),
                                      .weight_decay = decay };
    const tp_lion_opts lion = { .beta1 = adam.beta1, .beta2 = adam.beta2, .weight_decay = decay };
    const tp_lamb_opts lamb = {
        .beta1 = adam.beta1, .beta2 = adam.beta2, .eps = adam.eps, .weight_decay = decay
    };
    const tp_adafactor_opts adafactor = { .beta2_decay = compare_number(c, "beta2_decay", 0.0),
                                          .eps1 = compare_number(c, "eps1", 0.0),
                                          .eps2 = compare_number(c, "eps2", 0.0),
                                          .d = compare_number(c, "d", 0.0),
                                          .weight_decay = decay };
    const tp_qhm_opts qhm = { .momentum = sgd.momentum,
                              .nu = compare_number(c, "nu", 1.0),
                              .weight_decay = decay };
    if (strcmp(kind, "qhm") == 0) return tp_qhm_new(c->P, &qhm);
    if (strcmp(kind, "adafactor") == 0) return tp_adafactor_new(c->P, &adafactor);
    if (strcmp(kind, "rmsprop") == 0) return tp_rmsprop_new(c->P, &rmsprop);
    if (strcmp(kind, "adagrad") == 0) return tp_adagrad_new(c->P, &adagrad);
    if (strcmp(kind, "lamb") == 0) return tp_lamb_new(c->P, &lamb);
    if (strcmp(kind, "lion") == 0) return tp_lion_new(c->P, &lion);
    if (strcmp(kind, "sgd") == 0) return tp_sgd_new(c->P, &sgd);
    if (strcmp(kind, "adam") == 0) return tp_adam_new(c->P, &adam);
    if (strcmp(kind, "adamw") == 0) return tp_adamw_new(c->P, &adam);
    return NULL;
}

/* The gradient of sum p g is g. */
static void step(const compare_call *c, tp_optim *O, int64_t s)
{
    tp_tensor loss = TP_NONE;
    for (int i = 0; i < c->nx; i++) {
        const tp_tensor row =
            tp_reshape(c->T, tp_slice(c->T, c->x[i], 0, s, 1), tp_shape_of(c->y[i]));
        const tp_tensor term = tp_sum(c->T, tp_mul(c->T, c->y[i], tp_detach(c->T, row)), TP_ALL);
        loss = i ? tp_add(c->T, loss, term) : term;
    }
    tp_backward(c->T, loss);
    tp_step(O, compare_number(c, "lr", 0.1));
}

static tp_tensor run_optim(compare_call *c)
{
    char name[16];
    for (int i = 0; i < c->nx; i++) {
        tp_shape s = tp_shape_of(c->x[i]);
        memmove(s.dim, s.dim + 1, (size_t)--s.ndim * sizeof *s.dim);
        snprintf(name, sizeof name, "%d", i);
        c->y[i] = tp_param(c->P, name, s, (tp_init){ 0 }, 0);
    }
    c->ny = c->nx;
    compare_load(c);
    tp_optim *O = optimiser(c, compare_text(c, "kind", ""));
    if (!O)
        return tp_raise(c->T, TP_E_VALUE, "no optimiser is named '%s'",
                        compare_text(c, "kind", ""));
    for (int64_t s = 0; s < tp_dim(c->x[0], 0); s++) step(c, O, s);
    if (!tp_optim_ok(O)) tp_raise(c->T, TP_E_VALUE, "%s", tp_optim_why(O));
    tp_optim_free(O);
    return c->y[0];
}

const compare_row compare_optim_rows[] = { OWN(optim), { 0 } };
