/* rows_elementwise.c - elementwise ops of one and of two operands. */
#define TP_NO_SITE
#include <string.h>

#include "rows.h"

static tp_tensor run_clamp(compare_call *c)
{
    return tp_clamp(c->T, c->x[0], compare_number(c, "lo", 0.0), compare_number(c, "hi", 0.0));
}

static tp_tensor run_where(compare_call *c)
{
    return tp_where(c->T, c->x[0], compare_operand(c, 1), compare_operand(c, 2));
}

static tp_tensor run_masked_fill(compare_call *c)
{
    return tp_masked_fill(c->T, c->x[0], c->x[1], compare_number(c, "k", 0.0));
}

/* In f64 again, so that the gradient of the file fits. */
static tp_tensor run_cast(compare_call *c)
{
    static const struct {
        const char *name;
        tp_dtype dtype;
    } names[] = { { "f32", TP_F32 },
                  { "bf16", TP_BF16 },
                  { "i32", TP_I32 },
                  { "i64", TP_I64 },
                  { "u8", TP_U8 } };
    const char *to = compare_text(c, "to", "");
    tp_dtype dt = TP_F64;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].name, to) == 0) dt = names[i].dtype;
    return tp_cast(c->T, tp_cast(c->T, c->x[0], dt), TP_F64);
}

const compare_row compare_elementwise_rows[] = {
    TWO(add),
    TWO(sub),
    TWO(mul),
    TWO(div),
    NUMBER(scale),
    ONE(neg),
    ONE(exp),
    ONE(log),
    ONE(sqrt),
    ONE(square),
    ONE(abs),
    ONE(relu),
    ONE(gelu),
    ONE(gelu_tanh),
    ONE(quick_gelu),
    ONE(hardswish),
    ONE(silu),
    ONE(sigmoid),
    ONE(tanh),
    ONE(mish),
    ONE(softplus),
    ONE(expm1),
    ONE(log1p),
    ONE(reciprocal),
    ONE(rsqrt),
    ONE(floor),
    ONE(round),
    ONE(sign),
    NUMBER(leaky_relu),
    NUMBER(elu),
    OWN(clamp),
    TWO(pow),
    TWO(maximum),
    TWO(minimum),
    TWO(eq),
    TWO(ne),
    TWO(lt),
    TWO(le),
    TWO(gt),
    TWO(ge),
    TWO(logical_and),
    TWO(logical_or),
    TWO(logical_xor),
    ONE(logical_not),
    ONE(isnan),
    ONE(isfinite),
    ONE(isinf),
    OWN(where),
    OWN(masked_fill),
    ONE(sin),
    ONE(cos),
    OWN(cast),
    { 0 },
};
