/* ops_elementwise.c - instructions of fuzz_ops: elementwise ops with further arguments. */
#define TP_NO_SITE /* errors name the instruction (run in fuzz_ops.c), not a line here */
#include "ops_fuzzer.h"

/* Either choice may be a number, and any of the three may be repeated. */
static tp_tensor where(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick a = ops_any(e);
    const uint8_t how = ops_byte(e);
    tp_tensor x[] = { a.t, ops_input(e, ops_fitting(a.s, how)) };
    if ((how & 12) == 12) x[how & 1] = tp_number(ops_number(e));
    const tp_tensor mask = ops_take(e, ops_fitting(a.s, ops_byte(e)), OPS_MASK).t;
    return tp_where(ops_tape(e), mask, x[0], x[1]);
}

static tp_tensor masked_fill(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const tp_tensor mask = ops_take(e, ops_fitting(x.s, ops_byte(e)), OPS_MASK).t;
    return tp_masked_fill(ops_tape(e), x.t, mask, ops_number(e));
}

const ops_row ops_elementwise[] = {
    { .name = "where", .run = where },
    { .name = "masked_fill", .run = masked_fill },
    { .name = NULL },
};
