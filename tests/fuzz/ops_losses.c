/* ops_losses.c - instructions of fuzz_ops that are loss functions. */
#define TP_NO_SITE /* errors name the instruction (run in fuzz_ops.c), not a line here */
#include "ops_fuzzer.h"

static tp_reduction draw_reduction(ops_env *e)
{
    const uint8_t b = ops_byte(e);
    return (tp_reduction)(b < 250 ? b % 4 : b);
}

static tp_tensor target_of(ops_env *e, tp_shape s)
{
    if (ops_flag(e)) return ops_input(e, s);
    if (s.ndim > 0 && s.ndim <= TP_MAX_DIMS) s.ndim--;
    return ops_ids(e, s);
}

static tp_tensor cross_entropy(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const tp_tensor target = target_of(e, x.s);
    return tp_cross_entropy(ops_tape(e), x.t, target, draw_reduction(e));
}

static tp_tensor cross_entropy_smooth(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const tp_tensor target = target_of(e, x.s);
    const double smoothing = ops_number(e);
    return tp_cross_entropy_smooth(ops_tape(e), x.t, target, smoothing, draw_reduction(e));
}

/* Weights of the classes of x, or none. */
static tp_tensor weights_of(ops_env *e, tp_shape s)
{
    if (ops_flag(e)) return TP_NONE;
    return ops_input(e, TP_SHAPE(ops_near(e, ops_dim(s, s.ndim - 1))));
}

static tp_tensor cross_entropy_weighted(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const tp_tensor target = target_of(e, x.s), weights = weights_of(e, x.s);
    const double smoothing = ops_flag(e) ? ops_number(e) : 0.0;
    return tp_cross_entropy_weighted(ops_tape(e), x.t, target, weights, smoothing,
                                     draw_reduction(e));
}

static tp_tensor nll_weighted(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const tp_tensor target = target_of(e, x.s), weights = weights_of(e, x.s);
    return tp_nll_weighted(ops_tape(e), x.t, target, weights, draw_reduction(e));
}

static tp_tensor focal(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const tp_tensor target = ops_flag(e) ? target_of(e, x.s) : ops_input(e, x.s); /* or classes */
    const double alpha = ops_flag(e) ? ops_number(e) : 0.25,
                 gamma = ops_flag(e) ? ops_number(e) : 2.0;
    return tp_focal(ops_tape(e), x.t, target, alpha, gamma, draw_reduction(e));
}

static tp_tensor giou(ops_env *e, const ops_row *r)
{
    (void)r;
    tp_shape s = TP_SHAPE(ops_size(e), 4);
    if (ops_flag(e)) s = TP_SHAPE(4);
    if (ops_flag(e)) s.dim[0] = ops_size(e);
    const tp_tensor x = ops_input(e, s), target = ops_input(e, s);
    const double eps = ops_flag(e) ? ops_number(e) : 1e-7;
    return tp_giou(ops_tape(e), x, target, eps, draw_reduction(e));
}

static tp_tensor nll(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const tp_tensor target = target_of(e, x.s);
    return tp_nll(ops_tape(e), x.t, target, draw_reduction(e));
}

static tp_tensor cosine_similarity(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const tp_tensor other = ops_input(e, x.s);
    const double eps = ops_flag(e) ? ops_number(e) : 1e-8;
    return tp_cosine_similarity(ops_tape(e), x.t, other, eps);
}

static tp_shape without_last(tp_shape s)
{
    if (s.ndim > 0 && s.ndim <= TP_MAX_DIMS) s.ndim--;
    return s;
}

static tp_tensor cosine_embedding(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const tp_tensor other = ops_input(e, x.s), target = ops_input(e, without_last(x.s));
    const double margin = ops_flag(e) ? ops_number(e) : 0.1;
    return tp_cosine_embedding(ops_tape(e), x.t, other, target, margin, draw_reduction(e));
}

static tp_tensor triplet_margin(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const tp_tensor positive = ops_input(e, x.s), negative = ops_input(e, x.s);
    tp_triplet_cfg cfg = { .margin = ops_number(e), .swap = ops_flag(e) };
    if (ops_flag(e)) cfg.p = ops_flag(e) ? 1.0 : ops_number(e);
    return tp_triplet_margin(ops_tape(e), x.t, positive, negative, cfg, draw_reduction(e));
}

static tp_tensor dice(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const tp_tensor target = ops_input(e, x.s);
    const int axes = (int)ops_near(e, x.s.ndim);
    const double smooth = ops_flag(e) ? ops_number(e) : 1.0;
    return tp_dice(ops_tape(e), x.t, target, axes, smooth, draw_reduction(e));
}

static tp_tensor ctc(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_map(e, 3);
    const int64_t B = ops_dim(x.s, 0), S = ops_size(e);
    const tp_tensor target = ops_ids(e, TP_SHAPE(ops_near(e, B), S));
    const tp_tensor rows = ops_flag(e) ? ops_ids(e, TP_SHAPE(B)) : TP_NONE;
    const tp_tensor lengths = ops_ids(e, TP_SHAPE(B));
    const tp_ctc_cfg cfg = { .blank = ops_flag(e) ? ops_integer(e) : ops_plus(ops_dim(x.s, 2), -1),
                             .zero_infinity = ops_flag(e) };
    return tp_ctc(ops_tape(e), x.t, target, rows, lengths, cfg, draw_reduction(e));
}

const ops_row ops_losses[] = {
    { .name = "cross_entropy", .run = cross_entropy },
    { .name = "cross_entropy_smooth", .run = cross_entropy_smooth },
    { .name = "cross_entropy_weighted", .run = cross_entropy_weighted },
    { .name = "nll_weighted", .run = nll_weighted },
    { .name = "focal", .run = focal },
    { .name = "giou", .run = giou },
    { .name = "nll", .run = nll },
    { .name = "cosine_similarity", .run = cosine_similarity },
    { .name = "cosine_embedding", .run = cosine_embedding },
    { .name = "triplet_margin", .run = triplet_margin },
    { .name = "dice", .run = dice },
    { .name = "ctc", .run = ctc },
    { .name = NULL },
};
