/* binary.c - functions of two broadcast operands, one of which may be a number: the rows of
 * tensor/geometry/functions.h. */
#include <math.h>

#include "autograd/ops/op_inner.h"
#include "autograd/ops/operands.h"
#include "tensor/geometry/functions.h"

static tp_code add_shape(tp_infer *q)
{
    const tp_code code = tp__two_operands(q);
    if (code != TP_OK) return code;
    tp__pass_gradient(q, 0);
    tp__pass_gradient(q, 1);
    return TP_OK;
}

static tp_code sub_shape(tp_infer *q)
{
    const tp_code code = tp__two_operands(q);
    if (code == TP_OK) tp__pass_gradient(q, 0);
    return code;
}

static size_t binary_work(const tp_call *c)
{
    return tp__operands_work(c, 0);
}

/* ---- inputs for the gradient test ---- */

static const tp_binary_attr no_number = { 0 };
#define NUMBER(i, k)          TP_ATTR(tp_binary_attr, k, 1 << (i))
#define PAIR(with, text, ...) TP_LIST(text, .in = { __VA_ARGS__ }, .fill = with, .attr = &no_number)
#define CASES(name, with, ...)                                                                     \
    static const tp_gradcase name[] = {                                                            \
        PAIR(with, "same shape", TP_DIMS(2, 3, 5), TP_DIMS(2, 3, 5)),                              \
        PAIR(with, "trailing vector", TP_DIMS(2, 3, 5), TP_DIMS(5)),                               \
        PAIR(with, "trailing matrix", TP_DIMS(4, 3, 2), TP_DIMS(3, 2)),                            \
        PAIR(with, "one element", TP_DIMS(3, 7), TP_DIMS(1)),                                      \
        PAIR(with, "one a row", TP_DIMS(3, 7), TP_DIMS(3, 1)),                                     \
        PAIR(with, "one a matrix", TP_DIMS(2, 3, 4), TP_DIMS(2, 1, 1)),                            \
        PAIR(with, "inner axis repeated", TP_DIMS(2, 3, 1, 5), TP_DIMS(2, 1, 1, 5)),               \
        PAIR(with, "axes in turn", TP_DIMS(2, 3, 2, 2, 3), TP_DIMS(1, 3, 1, 2, 1)),                \
        PAIR(with, "axes in turn, last kept", TP_DIMS(2, 3, 2, 3), TP_DIMS(2, 1, 2, 1)),           \
        PAIR(with, "a is a vector", TP_DIMS(5), TP_DIMS(2, 3, 5)),                                 \
        PAIR(with, "a is one element", TP_DIMS(1), TP_DIMS(3, 7)),                                 \
        PAIR(with, "column and row", TP_DIMS(7, 1), TP_DIMS(1, 5)),                                \
        PAIR(with, "repeated in turn", TP_DIMS(2, 1, 3, 1), TP_DIMS(4, 1, 5)),                     \
        PAIR(with, "packs of columns and rows", TP_DIMS(5, 1), TP_DIMS(24)),                       \
        PAIR(with, "empty", TP_DIMS(0, 4), TP_DIMS(4)),                                            \
        PAIR(with, "repeated no times", TP_DIMS(1, 4), TP_DIMS(0, 1)),                             \
        { "a number on the left", .in = { { 0 }, TP_DIMS(3, 11) }, .fill = with,                   \
          .attr = NUMBER(0, 1.5) },                                                                \
        { "a number on the right", .in = { TP_DIMS(3, 11) }, .fill = with,                         \
          .attr = NUMBER(1, -2.5) },                                                               \
        __VA_ARGS__                                                                                \
    }

static void base_and_exponent(int i, tp_view *x)
{
    for (int64_t e = 0; e < x->numel; e++)
        tp_st(x, e, i == 0 ? fabs(tp_ld(x, e)) + 0.2 : 3.0 * tp_ld(x, e));
}

/* Makes operands differ by at least 1/8. */
static void separated(int i, tp_view *x)
{
    for (int64_t e = 0; e < x->numel; e++)
        tp_st(x, e, rint(2.0 * tp_ld(x, e)) + (i == 0 ? 0.25 : 0.0) + 0.05);
}

#define POWER(k)                                                                                   \
    TP_LIST("exponent " #k, .in = { TP_DIMS(11) }, .fill = base_and_exponent, .attr = NUMBER(1, k))
#define POWERS                                                                                     \
    POWER(0), POWER(1), POWER(2), POWER(3), POWER(4), POWER(0.5), POWER(1.5), POWER(-0.5),         \
        POWER(-1), POWER(-2)

CASES(any, NULL, { 0 });
CASES(far, separated, { 0 });
CASES(pow_cases, base_and_exponent, POWERS,
      { "a negative base", .in = { TP_DIMS(11) }, .attr = NUMBER(1, -3) }, { 0 });

/* ---- the ops ---- */

#define BINARY(op, text, reads, rule, with)                                                        \
    TP_KERNEL(op##_fwd);                                                                           \
    TP_KERNEL(op##_bwd);                                                                           \
    const tp_op tp_op_##op = {                                                                     \
        .name = #op,                                                                               \
        .doc = text,                                                                               \
        .nx = 2,                                                                                   \
        .ny = 1,                                                                                   \
        .inputs = "a, b",                                                                          \
        .attr_size = sizeof(tp_binary_attr),                                                       \
        .saves = reads,                                                                            \
        .optional = 3,                                                                             \
        .shape = rule,                                                                             \
        .work = TP_SAME_WORK(binary_work),                                                         \
        .flags = TP_ELEMENTWISE | TP_MIXES,                                                        \
        .forward = TP_KERNELS(op##_fwd),                                                           \
        .backward = TP_KERNELS(op##_bwd),                                                          \
        .cases = with,                                                                             \
    };                                                                                             \
    tp_tensor tp_##op(tp_tape *T, tp_tensor a, tp_tensor b)                                        \
    {                                                                                              \
        return tp__apply_two(T, &tp_op_##op, a, b);                                                \
    }
#define SUM(op, text, with, ...) BINARY(op, text, 0, op##_shape, with)
#define FUNCTION(op, text, with, ...)                                                              \
    BINARY(op, text, TP_SAVE_X(0) | TP_SAVE_X(1), tp__two_operands, with)

TP_BINARY_SUMS(SUM)
TP_BINARY_PRODUCTS(FUNCTION)
TP_BINARY_POWERS(FUNCTION)
TP_BINARY(FUNCTION)
