/* ops_elementwise.c - instructions of fuzz_ops: elementwise ops with further arguments. */
#define TP_NO_SITE /* errors name the instruction (run in fuzz_ops.c), not a line here */
#include "ops_fuzzer.h"

tp_tensor ops_clamp(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const double lo = ops_number(e);
    return tp_clamp(ops_tape(e), x.t, lo, ops_number(e));
}

tp_tensor ops_cast(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    return tp_cast(ops_tape(e), x.t, ops_dtype(e));
}

tp_tensor ops_where(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick a = ops_any(e);
    const tp_tensor b = ops_input(e, a.s);
    return tp_where(ops_tape(e), ops_take(e, a.s, OPS_MASK).t, a.t, b);
}
