/* ops_reduce.c - rows of reductions that have an option. */
#define TP_NO_SITE
#include "ops_fuzzer.h"

tp_tensor ops_var(ops_env *e, const ops_row *r)
{
    const ops_pick x = ops_any(e);
    const int axes = ops_axis(e);
    (void)r;
    return tp_var(ops_tape(e), x.t, axes, ops_number(e));
}

tp_tensor ops_std(ops_env *e, const ops_row *r)
{
    const ops_pick x = ops_any(e);
    const int axes = ops_axis(e);
    (void)r;
    return tp_std(ops_tape(e), x.t, axes, ops_number(e));
}

tp_tensor ops_norm(ops_env *e, const ops_row *r)
{
    const ops_pick x = ops_any(e);
    const double p = ops_number(e);
    (void)r;
    return tp_norm(ops_tape(e), x.t, p, ops_axis(e));
}
