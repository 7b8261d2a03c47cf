/* rows_optim.c - optimisers: the parameters p.0, p.1, .. take a step for each row of x0, x1, ..;
 * row s holds the gradients of step s. The results are the parameters, or, with "average", what the
 * optimiser evaluates with. */
#define TP_NO_SITE
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tapegrad/optim_kind.h>

#include "rows.h"

/* The value of an option in the call; NaN: the default. PyTorch's default eps1 is None, here 0. */
static double value_of(const compare_call *c, const tp_optim_option *o)
{
    const bool initial = strcmp(o->name, "initial_accumulator") == 0;
    const double x = compare_number(c, initial ? "initial" : o->name, NAN);
    if (o->flag) return compare_flag(c, o->name);
    return x == 0.0 && strcmp(o->name, "eps1") == 0 ? NAN : x;
}

/* An optimiser of c->P; NULL: no such kind. */
static tp_optim *optimiser(const compare_call *c, const char *kind)
{
    const tp_optim_kind *k = tp_optim_kind_at(tp_optim_find(kind));
    tp_optim_value values[TP_OPTIM_OPTIONS + 1] = { { NULL, 0.0 } };
    for (int i = 0, n = 0; k && i < TP_OPTIM_OPTIONS && k->options[i].name; i++) {
        const double x = value_of(c, &k->options[i]);
        if (!isnan(x)) values[n++] = (tp_optim_value){ k->options[i].name, x };
    }
    return k ? tp_optim_new(c->P, kind, &(tp_optim_opts){ .values = values }) : NULL;
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
    if (compare_flag(c, "average")) tp_optim_swap(O);
    if (!tp_optim_ok(O)) tp_raise(c->T, TP_E_VALUE, "%s", tp_optim_why(O));
    tp_optim_free(O);
    return c->y[0];
}

const compare_row compare_optim_rows[] = { OWN(optim), { 0 } };
