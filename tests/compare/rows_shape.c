/* rows_shape.c - moves of elements: shapes, axes, indices. */
#define TP_NO_SITE
#include <string.h>

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

static tp_tensor run_index_select(compare_call *c)
{
    return tp_index_select(c->T, c->x[0], (int)compare_int(c, "axis", 0), c->x[1]);
}

static tp_tensor run_index_add(compare_call *c)
{
    return tp_index_add(c->T, c->x[0], (int)compare_int(c, "axis", 0), c->x[1], c->x[2]);
}

/* The option "axes", a list, as a set; all axes without it. */
static int axes_of(const compare_call *c)
{
    int64_t axis[TP_MAX_DIMS];
    int axes = TP__AXES_MARK;
    const int n = compare_list(c, "axes", TP_MAX_DIMS, axis);
    for (int i = 0; i < n; i++) axes |= 1 << (axis[i] & 15);
    return n > 0 ? axes : TP_ALL;
}

static tp_tensor run_flip(compare_call *c)
{
    return tp_flip(c->T, c->x[0], axes_of(c));
}

static tp_tensor run_pad_nd(compare_call *c)
{
    static const char *const modes[] = { "constant", "reflect", "replicate", "circular" };
    const char *mode = compare_text(c, "mode", "constant");
    tp_pad_cfg cfg = { .value = compare_number(c, "value", 0.0) };
    while (strcmp(mode, modes[cfg.mode]) != 0) cfg.mode++;
    compare_list(c, "before", TP_MAX_DIMS, cfg.before);
    compare_list(c, "after", TP_MAX_DIMS, cfg.after);
    return tp_pad_nd(c->T, c->x[0], cfg);
}

static tp_tensor run_repeat(compare_call *c)
{
    return tp_repeat(c->T, c->x[0], compare_shape(c, "times"));
}

static tp_tensor run_repeat_interleave(compare_call *c)
{
    return tp_repeat_interleave(c->T, c->x[0], (int)compare_int(c, "axis", 0),
                                compare_int(c, "times", 1));
}

static tp_tensor run_split_sizes(compare_call *c)
{
    int64_t sizes[COMPARE_TENSORS];
    c->ny = compare_list(c, "sizes", COMPARE_TENSORS, sizes);
    tp_split_sizes(c->T, c->x[0], (int)compare_int(c, "axis", 0), c->ny, sizes, c->y);
    return c->y[0];
}

static tp_tensor run_chunk(compare_call *c)
{
    c->ny =
        tp_chunk(c->T, c->x[0], (int)compare_int(c, "axis", 0), (int)compare_int(c, "n", 1), c->y);
    return c->y[0];
}

static tp_tensor run_unsqueeze(compare_call *c)
{
    return tp_unsqueeze(c->T, c->x[0], (int)compare_int(c, "axis", 0));
}

static tp_tensor run_squeeze(compare_call *c)
{
    return tp_squeeze(c->T, c->x[0], axes_of(c));
}

static tp_tensor run_flatten(compare_call *c)
{
    return tp_flatten(c->T, c->x[0], (int)compare_int(c, "first", 0),
                      (int)compare_int(c, "last", -1));
}

static tp_tensor run_transpose(compare_call *c)
{
    return tp_transpose(c->T, c->x[0], (int)compare_int(c, "a", 0), (int)compare_int(c, "b", 0));
}

static tp_tensor run_tril(compare_call *c)
{
    return tp_tril(c->T, c->x[0], compare_int(c, "diagonal", 0));
}

static tp_tensor run_triu(compare_call *c)
{
    return tp_triu(c->T, c->x[0], compare_int(c, "diagonal", 0));
}

static tp_tensor run_arange(compare_call *c)
{
    return tp_arange(c->T, TP_F64, compare_number(c, "start", 0.0), compare_number(c, "end", 0.0),
                     compare_number(c, "step", 1.0));
}

static tp_tensor run_linspace(compare_call *c)
{
    return tp_linspace(c->T, TP_F64, compare_number(c, "first", 0.0),
                       compare_number(c, "last", 0.0), compare_int(c, "n", 0));
}

const compare_row compare_shape_rows[] = {
    OWN(permute),
    OWN(slice),
    OWN(concat),
    OWN(stack),
    OWN(split),
    OWN(expand),
    OWN(roll),
    OWN(pad),
    OWN(gather),
    OWN(scatter_add),
    OWN(index_select),
    OWN(index_add),
    OWN(flip),
    OWN(pad_nd),
    OWN(repeat),
    OWN(repeat_interleave),
    OWN(split_sizes),
    OWN(chunk),
    OWN(unsqueeze),
    OWN(squeeze),
    OWN(flatten),
    OWN(transpose),
    OWN(tril),
    OWN(triu),
    OWN(arange),
    OWN(linspace),
    { 0 },
};
