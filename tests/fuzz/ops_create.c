/* ops_create.c - instructions of fuzz_ops that make tensors. */
#define TP_NO_SITE
#include "ops_fuzzer.h"

tp_tensor ops_arange(ops_env *e, const ops_row *r)
{
    (void)r;
    const tp_dtype dt = ops_dtype(e);
    const double start = ops_number(e), end = ops_number(e);
    return tp_arange(ops_tape(e), dt, start, end, ops_number(e));
}

tp_tensor ops_linspace(ops_env *e, const ops_row *r)
{
    (void)r;
    const tp_dtype dt = ops_dtype(e);
    const double first = ops_number(e), last = ops_number(e);
    return tp_linspace(ops_tape(e), dt, first, last, ops_integer(e));
}

tp_tensor ops_triangle(ops_env *e, const ops_row *r)
{
    const ops_pick x = ops_any(e);
    return r->diagonal(ops_tape(e), x.t, ops_integer(e));
}

tp_tensor ops_random(ops_env *e, const ops_row *r)
{
    const tp_dtype dt = ops_dtype(e);
    return r->random(ops_tape(e), dt, ops_shape(e));
}
