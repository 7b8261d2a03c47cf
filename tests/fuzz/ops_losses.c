/* ops_losses.c - instructions of fuzz_ops that are loss functions. */
#define TP_NO_SITE /* errors name the instruction (run in fuzz_ops.c), not a line here */
#include "ops_fuzzer.h"

static tp_reduction draw_reduction(ops_env *e)
{
    const uint8_t b = ops_byte(e);
    return (tp_reduction)(b < 250 ? b % 4 : b);
}

tp_tensor ops_loss(ops_env *e, const ops_row *r)
{
    const ops_pick x = ops_any(e);
    const tp_tensor target = ops_input(e, x.s);
    return r->loss(ops_tape(e), x.t, target, draw_reduction(e));
}

static tp_tensor target_of(ops_env *e, tp_shape s)
{
    if (ops_flag(e)) return ops_input(e, s);
    if (s.ndim > 0 && s.ndim <= TP_MAX_DIMS) s.ndim--;
    return ops_ids(e, s);
}

tp_tensor ops_cross_entropy(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const tp_tensor target = target_of(e, x.s);
    return tp_cross_entropy(ops_tape(e), x.t, target, draw_reduction(e));
}

tp_tensor ops_cross_entropy_smooth(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const tp_tensor target = target_of(e, x.s);
    const double smoothing = ops_number(e);
    return tp_cross_entropy_smooth(ops_tape(e), x.t, target, smoothing, draw_reduction(e));
}

tp_tensor ops_focal(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const tp_tensor target = ops_input(e, x.s);
    const double alpha = ops_number(e), gamma = ops_number(e);
    return tp_focal(ops_tape(e), x.t, target, alpha, gamma, draw_reduction(e));
}

tp_tensor ops_smooth_l1(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const tp_tensor target = ops_input(e, x.s);
    const double beta = ops_number(e);
    return tp_smooth_l1(ops_tape(e), x.t, target, beta, draw_reduction(e));
}
