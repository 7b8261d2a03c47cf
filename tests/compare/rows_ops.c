/* rows_ops.c - ops whose calls need more than their prototypes say. */
#define TP_NO_SITE
#include <math.h>
#include <string.h>

#include "rows.h"

/* Casts back to f64 to fit the file's gradient. */
static tp_tensor run_cast(compare_call *c)
{
    const char *to = compare_text(c, "to", "");
    tp_dtype dt = TP_F32;
    while (dt < TP_NDTYPES && strcmp(tp_dtype_name(dt), to) != 0) dt++;
    return tp_cast(c->T, tp_cast(c->T, c->x[0], dt), TP_F64);
}

static tp_tensor run_masked_fill(compare_call *c)
{
    return tp_masked_fill(c->T, c->x[0], c->x[1], compare_number(c, "k", 0.0));
}

/* JSON has no infinity: a negative p stands for it. */
static tp_tensor run_norm(compare_call *c)
{
    const double p = compare_number(c, "p", 2.0);
    return tp_norm(c->T, c->x[0], p < 0 ? INFINITY : p, compare_axes(c));
}

/* Results in an array whose length the options give. */
static tp_tensor run_split(compare_call *c)
{
    c->ny = (int)compare_int(c, "n", 1);
    tp_split(c->T, c->x[0], (int)compare_int(c, "axis", 0), c->ny, c->y);
    return c->y[0];
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
    const int axis = (int)compare_int(c, "axis", 0), n = (int)compare_int(c, "n", 1);
    c->ny = tp_chunk(c->T, c->x[0], axis, n, c->y);
    return c->y[0];
}

/* The usual eps. */
static tp_tensor run_instancenorm(compare_call *c)
{
    return tp_instancenorm(c->T, c->x[0], compare_input(c, 1), compare_input(c, 2), 1e-5);
}

/* One map; x1: boxes, x2: the image of each. */
static tp_tensor run_roi_align(compare_call *c)
{
    tp_roi_align_cfg cfg = { .samples = (int)compare_int(c, "samples", 0),
                             .aligned = compare_flag(c, "aligned") };
    cfg.scale[0] = compare_number(c, "scale", 1.0);
    compare_list(c, "size", 2, cfg.size);
    return tp_roi_align(c->T, 1, c->x, c->x[1], c->x[2], cfg);
}

/* The option "axes" is a count of axes, not a set. */
static tp_tensor run_dice(compare_call *c)
{
    return tp_dice(c->T, c->x[0], c->x[1], (int)compare_int(c, "axes", 1),
                   compare_number(c, "smooth", 0.0), compare_reduction(c));
}

/* The gradient of logits: PyTorch's of log-probabilities differs (ops/loss.h). */
static tp_tensor run_ctc(compare_call *c)
{
    const tp_ctc_cfg cfg = { .blank = compare_int(c, "blank", 0),
                             .zero_infinity = compare_flag(c, "zero_infinity") };
    return tp_ctc(c->T, tp_log_softmax(c->T, c->x[0]), c->x[1], compare_input(c, 2), c->x[3], cfg,
                  compare_reduction(c));
}

/* Windows of a sequence: a map of height 1. */
static tp_tensor windows(compare_call *c, tp_window_in in, int64_t width)
{
    const int64_t window = compare_int(c, "window", 0);
    return tp_window_attention_2d(c->T, in,
                                  (tp_window_attn_cfg){ .heads = (int)compare_int(c, "heads", 1),
                                                        .height = 1,
                                                        .width = width,
                                                        .window = { window > 0, window },
                                                        .halo = { 0, compare_int(c, "halo", 0) } });
}

static tp_window_in window_in(const compare_call *c)
{
    return (tp_window_in){ .q = c->x[0],
                           .k = c->x[1],
                           .v = c->x[2],
                           .low_k = compare_input(c, 3),
                           .low_v = compare_input(c, 4) };
}

static tp_tensor run_window_attention_2d(compare_call *c)
{
    tp_window_in in = window_in(c);
    in.mask = compare_input(c, 5);
    in.low_mask = compare_input(c, 6);
    return windows(c, in, tp_dim(c->x[0], 1));
}

static tp_tensor run_packed_window_attention(compare_call *c)
{
    tp_window_in in = window_in(c);
    in.offset = c->x[5];
    return windows(c, in, compare_int(c, "longest", 0));
}

const compare_row compare_op_rows[] = {
    OWN(cast),
    OWN(masked_fill),
    OWN(norm),
    OWN(split),
    OWN(split_sizes),
    OWN(chunk),
    OWN(instancenorm),
    OWN(roi_align),
    OWN(dice),
    OWN(ctc),
    OWN(window_attention_2d),
    OWN(packed_window_attention),
    { .op = "matmul", .function = "matmul_t" },
    { .op = "cross_entropy", .function = "cross_entropy_smooth" },
    { .op = "focal_class", .function = "focal" },
    { .op = "grouped_attention", .function = "attention" },
    { 0 },
};
