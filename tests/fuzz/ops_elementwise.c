/* ops_elementwise.c - instructions of fuzz_ops: elementwise ops with further arguments. */
#define TP_NO_SITE /* errors name the instruction (run in fuzz_ops.c), not a line here */
#include <string.h>

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

/* A shape that broadcasts with s: s itself, without its first axis, or with size 1 on an axis. */
static tp_shape fitting(tp_shape s, uint8_t b)
{
    if (b & 1) s = ops_with(s, b >> 4 & 3, 1);
    if ((b & 6) == 2 && s.ndim > 0 && s.ndim <= TP_MAX_DIMS)
        memmove(s.dim, s.dim + 1, (size_t)--s.ndim * sizeof *s.dim);
    return s;
}

/* Either choice may be a number, and each of the three may be repeated. */
tp_tensor ops_where(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick a = ops_any(e);
    const uint8_t how = ops_byte(e);
    tp_tensor x[] = { a.t, ops_input(e, fitting(a.s, how)) };
    if ((how & 12) == 12) x[how & 1] = tp_number(ops_number(e));
    const tp_tensor mask = ops_take(e, fitting(a.s, ops_byte(e)), OPS_MASK).t;
    return tp_where(ops_tape(e), mask, x[0], x[1]);
}

tp_tensor ops_masked_fill(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const tp_tensor mask = ops_take(e, fitting(x.s, ops_byte(e)), OPS_MASK).t;
    return tp_masked_fill(ops_tape(e), x.t, mask, ops_number(e));
}
