/* rows_shape.c - moves of elements: shapes, axes, indices. */
#define TP_NO_SITE
#include "rows.h"

static tp_tensor run_permute(compare_call *c)
{
    return tp_permute(c->T, c->x[0], compare_shape(c, "order"));
}

static tp_tensor run_slice(compare_call *c)
{
    return tp_slice(c->T, c->x[0], (int)compare_int(c, "axis", 0), compare_int(c, "start", 0),
                    compare_int(c, "count", 0));
}

static tp_tensor run_concat(compare_call *c)
{
    return tp_concat_n(c->T, (int)compare_int(c, "axis", 0), c->nx, c->x);
}

static tp_tensor run_stack(compare_call *c)
{
    return tp_stack_n(c->T, (int)compare_int(c, "axis", 0), c->nx, c->x);
}

static tp_tensor run_split(compare_call *c)
{
    c->ny = (int)compare_int(c, "n", 1);
    tp_split(c->T, c->x[0], (int)compare_int(c, "axis", 0), c->ny, c->y);
    return c->y[0];
}

static tp_tensor run_expand(compare_call *c)
{
    return tp_expand(c->T, c->x[0], compare_shape(c, "shape"));
}

static tp_tensor run_roll(compare_call *c)
{
    return tp_roll(c->T, c->x[0], (int)compare_int(c, "axis", 0), compare_int(c, "shift", 0));
}

static tp_tensor run_pad(compare_call *c)
{
    return tp_pad(c->T, c->x[0], (int)compare_int(c, "axis", 0), compare_int(c, "before", 0),
                  compare_int(c, "after", 0), compare_number(c, "value", 0.0));
}

static tp_tensor run_gather(compare_call *c)
{
    return tp_gather(c->T, c->x[0], (int)compare_int(c, "axis", 0), c->x[1]);
}

static tp_tensor run_scatter_add(compare_call *c)
{
    return tp_scatter_add(c->T, c->x[0], (int)compare_int(c, "axis", 0), c->x[1], c->x[2]);
}

const compare_row compare_shape_rows[] = {
    OWN(permute), OWN(slice), OWN(concat), OWN(stack),       OWN(split), OWN(expand),
    OWN(roll),    OWN(pad),   OWN(gather), OWN(scatter_add), { 0 },
};
