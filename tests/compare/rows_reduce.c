/* rows_reduce.c - reductions, and functions along one axis. */
#define TP_NO_SITE
#include <math.h>

#include "rows.h"

/* The axes of a call: a list, or none for all of them; `keep`: they stay, with size 1. */
static int axes(const compare_call *c)
{
    int64_t axis[TP_MAX_DIMS];
    int set = TP_ALL;
    for (int i = compare_list(c, "axes", TP_MAX_DIMS, axis) - 1; i >= 0; i--)
        set = set == TP_ALL ? TP_AXES((int)axis[i]) : set | TP_AXES((int)axis[i]);
    return compare_flag(c, "keep") ? TP_KEEP(set) : set;
}

static tp_tensor over(compare_call *c)
{
    return c->row->axis(c->T, c->x[0], axes(c));
}

static tp_tensor run_var(compare_call *c)
{
    return tp_var(c->T, c->x[0], axes(c), compare_number(c, "correction", 1.0));
}

static tp_tensor run_std(compare_call *c)
{
    return tp_std(c->T, c->x[0], axes(c), compare_number(c, "correction", 1.0));
}

static tp_tensor run_norm(compare_call *c)
{
    const double p = compare_number(c, "p", 2.0);
    return tp_norm(c->T, c->x[0], p < 0 ? INFINITY : p, axes(c)); /* JSON has no infinity */
}

static tp_tensor run_sort(compare_call *c)
{
    c->ny = 2;
    c->y[0] = tp_sort(c->T, c->x[0], (int)compare_int(c, "axis", 0), compare_flag(c, "descending"),
                      &c->y[1]);
    return c->y[0];
}

static tp_tensor run_topk(compare_call *c)
{
    c->ny = 2;
    c->y[0] = tp_topk(c->T, c->x[0], compare_int(c, "k", 0), (int)compare_int(c, "axis", 0),
                      compare_flag(c, "largest"), &c->y[1]);
    return c->y[0];
}

#define OVER(NAME)                                                                                 \
    {                                                                                              \
        .op = #NAME, .run = over, .axis = tp_##NAME                                                \
    }

const compare_row compare_reduce_rows[] = {
    OVER(sum),    OVER(mean),   OVER(prod),    OVER(max),       OVER(min), OVER(argmax),
    OVER(argmin), OVER(any),    OVER(all),     OVER(logsumexp), OWN(var),  OWN(std),
    OWN(norm),    AXIS(cumsum), AXIS(cumprod), OWN(sort),       OWN(topk), { 0 },
};
