/* ops_reduce.c - rows of reductions that have an option, and of sorting. */
#define TP_NO_SITE
#include "ops_fuzzer.h"

tp_tensor ops_spread(ops_env *e, const ops_row *r)
{
    const ops_pick x = ops_any(e);
    const int axes = ops_axis(e);
    return r->spread(ops_tape(e), x.t, axes, ops_number(e));
}

tp_tensor ops_norm(ops_env *e, const ops_row *r)
{
    const ops_pick x = ops_any(e);
    const double p = ops_number(e);
    (void)r;
    return tp_norm(ops_tape(e), x.t, p, ops_axis(e));
}

tp_tensor ops_sort(ops_env *e, const ops_row *r)
{
    const ops_pick x = ops_any(e);
    const int axis = ops_axis(e);
    tp_tensor indices;
    (void)r;
    return tp_sort(ops_tape(e), x.t, axis, ops_flag(e), ops_flag(e) ? &indices : NULL);
}

tp_tensor ops_argsort(ops_env *e, const ops_row *r)
{
    const ops_pick x = ops_any(e);
    const int axis = ops_axis(e);
    (void)r;
    return tp_argsort(ops_tape(e), x.t, axis, ops_flag(e));
}

tp_tensor ops_topk(ops_env *e, const ops_row *r)
{
    const ops_pick x = ops_any(e);
    const int axis = ops_axis(e);
    const int64_t k = ops_near(e, ops_dim(x.s, axis) / 2);
    tp_tensor indices, y;
    (void)r;
    y = tp_topk(ops_tape(e), x.t, k, axis, ops_flag(e), &indices);
    return ops_flag(e) ? indices : y;
}
