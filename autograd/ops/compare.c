/* compare.c - comparisons and logical ops of two operands, which broadcast, and questions about the elements
 * of one tensor. Results are masks, TP_U8.
 *
 * A number must mean the same to a kernel that compares in the dtype of the tensor: it is rounded for floats,
 * and for integers, which it may lie between or beyond, the question is replaced by an equivalent one. */
#include <math.h>

#include "autograd/ops/op_inner.h"
#include "autograd/ops/operands.h"

TP_KERNEL(compare_fwd);
TP_KERNEL(ask_fwd);

/* ---- numbers ---- */

/* a R b is b mirrored(R) a. */
static tp_relation mirrored(tp_relation r)
{
    switch (r) {
    case TP_LT: return TP_GT;
    case TP_LE: return TP_GE;
    case TP_GT: return TP_LT;
    case TP_GE: return TP_LE;
    default: return r;
    }
}

/* Makes "x r v", for integers x in lo..hi, a question with a whole v of that range. What holds for all x or
 * for none becomes x >= lo or x < lo. */
static void settle_whole(tp_relation *r, double *v, double lo, double hi)
{
    const tp_relation R = *r;
    const double whole = R == TP_LT || R == TP_GE ? ceil(*v) : floor(*v);
    bool always = R == TP_NE;
    if (whole < lo)
        always = always || R == TP_GT || R == TP_GE;
    else if (whole > hi)
        always = always || R == TP_LT || R == TP_LE;
    else if (!isnan(whole) && (whole == *v || (R != TP_EQ && R != TP_NE))) {
        *v = whole;
        return;
    }
    *r = always ? TP_GE : TP_LT;
    *v = lo;
}

/* The number beside a tensor of dtype dt. */
static void settle(tp_compare_attr *k, tp_dtype dt)
{
    double *v = &k->operands.number;
    const bool left = k->operands.numbers == 1;
    tp_relation r = left ? mirrored(k->relation) : k->relation;
    if (r >= TP_AND) {
        *v = *v != 0;
    } else if (tp_is_float(dt)) {
        uint64_t room;
        const tp_view one = { .data = &room, .dtype = dt };
        tp_st(&one, 0, *v);
        *v = tp_ld(&one, 0);
    } else if (dt == TP_U8) {
        settle_whole(&r, v, 0, UINT8_MAX);
    } else if (dt == TP_I32) {
        settle_whole(&r, v, INT32_MIN, INT32_MAX);
    } else {
        settle_whole(&r, v, -0x1p63, 0x1.fffffffffffffp62);
    }
    k->relation = left ? mirrored(r) : r;
}

static tp_tensor compare(tp_tape *T, const tp_op *op, tp_relation r, tp_tensor a, tp_tensor b)
{
    tp_tensor x[] = { a, b };
    tp_compare_attr k = { tp__take_number(x), r };
    if (k.operands.numbers) settle(&k, tp_dtype_of(x[k.operands.numbers == 1]));
    return tp_apply_n(T, op, &k, 2, x, 1, NULL);
}

/* ---- shapes, inputs for the test ---- */

static tp_code compare_shape(tp_infer *q)
{
    const tp_code code = tp__two_operands(q);
    q->y[0].dtype = TP_U8;
    return code;
}

static tp_code ask_shape(tp_infer *q)
{
    q->y[0] = q->x[0];
    q->y[0].dtype = TP_U8;
    return TP_OK;
}

/* Few values, of which some are 0 and many are equal. */
static void few(int i, tp_view *x)
{
    (void)i;
    for (int64_t e = 0; e < x->numel; e++) tp_st(x, e, rint(2.0 * tp_ld(x, e)) / 2.0);
}

/* clang-format off */
#define TENSORS(R) &(tp_compare_attr){ { 0, 0 }, R }
#define NUMBER(i, k, R) &(tp_compare_attr){ { k, 1 << (i) }, R }
#define CASES(op, R)                                                                                                    \
    static const tp_gradcase op##_cases[] = {                                                                           \
        { "same shape", .in = { TP_DIMS(5, 11), TP_DIMS(5, 11) }, .fill = few, .attr = TENSORS(R) },                \
        { "packs and a tail", .in = { TP_DIMS(67), TP_DIMS(67) }, .fill = few, .attr = TENSORS(R) },                \
        { "a row", .in = { TP_DIMS(2, 3, 5), TP_DIMS(5) }, .fill = few, .attr = TENSORS(R) },                       \
        { "packs of rows", .in = { TP_DIMS(3, 32), TP_DIMS(32) }, .fill = few, .attr = TENSORS(R) },                \
        { "column and row", .in = { TP_DIMS(7, 1), TP_DIMS(1, 5) }, .fill = few, .attr = TENSORS(R) },              \
        { "a is one element", .in = { TP_DIMS(1), TP_DIMS(3, 16) }, .fill = few, .attr = TENSORS(R) },              \
        { "repeated in turn", .in = { TP_DIMS(2, 1, 3, 1), TP_DIMS(4, 1, 5) }, .fill = few, .attr = TENSORS(R) },   \
        { "integers", .in = { TP_DIMS(3, 21), TP_DIMS(21) }, .below = { 3, 3 }, .attr = TENSORS(R) },               \
        { "masks", .in = { TP_DIMS(3, 21), TP_DIMS(3, 21) }, .masks = 3, .attr = TENSORS(R) },                      \
        { "a number on the left", .in = { { 0 }, TP_DIMS(3, 13) }, .fill = few, .attr = NUMBER(0, 0.5, R) },          \
        { "a number on the right", .in = { TP_DIMS(3, 13) }, .fill = few, .attr = NUMBER(1, -1, R) },                 \
        { "integers and a number", .in = { TP_DIMS(3, 13) }, .below = { 3 }, .attr = NUMBER(1, 1, R) },               \
        { "empty", .in = { TP_DIMS(0, 4), TP_DIMS(4) }, .attr = TENSORS(R) },                                       \
        { 0 },                                                                                                          \
    }
/* clang-format on */

/* A NaN, infinities and zeros among other numbers. */
static void odd(int i, tp_view *x)
{
    static const double values[] = { NAN, 1, INFINITY, -INFINITY, 0 };
    (void)i;
    for (int64_t e = 0; e < x->numel; e++) tp_st(x, e, values[e * 3 % 5]);
}

/* clang-format off */
#define QUESTION(Q) &(tp_question){ Q }
#define ASK_CASES(op, Q)                                                                           \
    static const tp_gradcase op##_cases[] = {                                                      \
        { "floats", .in = { TP_DIMS(7, 11) }, .fill = odd, .attr = QUESTION(Q) },                \
        { "integers", .in = { TP_DIMS(17) }, .below = { 3 }, .attr = QUESTION(Q) },              \
        { "masks", .in = { TP_DIMS(17) }, .masks = 1, .attr = QUESTION(Q) },                     \
        { "empty", .in = { TP_DIMS(3, 0) }, .attr = QUESTION(Q) },                               \
        { 0 },                                                                                     \
    }
/* clang-format on */

CASES(eq, TP_EQ);
CASES(ne, TP_NE);
CASES(lt, TP_LT);
CASES(le, TP_LE);
CASES(gt, TP_GT);
CASES(ge, TP_GE);
CASES(logical_and, TP_AND);
CASES(logical_or, TP_OR);
CASES(logical_xor, TP_XOR);
ASK_CASES(logical_not, TP_IS_ZERO);
ASK_CASES(isnan, TP_IS_NAN);
ASK_CASES(isfinite, TP_IS_FINITE);
ASK_CASES(isinf, TP_IS_INF);

/* ---- the ops ---- */

/* clang-format off */
#define COMPARE(op, text)                                                                          \
    .name = #op, .doc = text, .nx = 2, .ny = 1, .inputs = "a, b", .takes = { TP_ANY, TP_ANY }, .attr_size = sizeof(tp_compare_attr),              \
    .optional = 3, .flags = TP_NOT_DIFFERENTIABLE, .shape = compare_shape,                         \
    .forward = TP_KERNELS(compare_fwd), .cases = op##_cases
#define ASK(op, text)                                                                              \
    .name = #op, .doc = text, .nx = 1, .ny = 1, .takes = { TP_ANY }, .attr_size = sizeof(tp_question),                  \
    .flags = TP_NOT_DIFFERENTIABLE, .shape = ask_shape,                                            \
    .forward = TP_KERNELS(ask_fwd), .cases = op##_cases

const tp_op tp_op_eq = { COMPARE(eq, "a = b?") };
const tp_op tp_op_ne = { COMPARE(ne, "a != b?") };
const tp_op tp_op_lt = { COMPARE(lt, "a < b?") };
const tp_op tp_op_le = { COMPARE(le, "a <= b?") };
const tp_op tp_op_gt = { COMPARE(gt, "a > b?") };
const tp_op tp_op_ge = { COMPARE(ge, "a >= b?") };
const tp_op tp_op_logical_and = { COMPARE(logical_and, "are a and b not 0?") };
const tp_op tp_op_logical_or = { COMPARE(logical_or, "is a or b not 0?") };
const tp_op tp_op_logical_xor = { COMPARE(logical_xor, "is one of a and b 0 and the other not?") };
const tp_op tp_op_logical_not = { ASK(logical_not, "is x 0?") };
const tp_op tp_op_isnan = { ASK(isnan, "is x NaN?") };
const tp_op tp_op_isfinite = { ASK(isfinite, "is x neither NaN nor infinite?") };
const tp_op tp_op_isinf = { ASK(isinf, "is x infinite?") };

tp_tensor tp_eq(tp_tape *T, tp_tensor a, tp_tensor b)          { return compare(T, &tp_op_eq, TP_EQ, a, b); }
tp_tensor tp_ne(tp_tape *T, tp_tensor a, tp_tensor b)          { return compare(T, &tp_op_ne, TP_NE, a, b); }
tp_tensor tp_lt(tp_tape *T, tp_tensor a, tp_tensor b)          { return compare(T, &tp_op_lt, TP_LT, a, b); }
tp_tensor tp_le(tp_tape *T, tp_tensor a, tp_tensor b)          { return compare(T, &tp_op_le, TP_LE, a, b); }
tp_tensor tp_gt(tp_tape *T, tp_tensor a, tp_tensor b)          { return compare(T, &tp_op_gt, TP_GT, a, b); }
tp_tensor tp_ge(tp_tape *T, tp_tensor a, tp_tensor b)          { return compare(T, &tp_op_ge, TP_GE, a, b); }
tp_tensor tp_logical_and(tp_tape *T, tp_tensor a, tp_tensor b) { return compare(T, &tp_op_logical_and, TP_AND, a, b); }
tp_tensor tp_logical_or(tp_tape *T, tp_tensor a, tp_tensor b)  { return compare(T, &tp_op_logical_or, TP_OR, a, b); }
tp_tensor tp_logical_xor(tp_tape *T, tp_tensor a, tp_tensor b) { return compare(T, &tp_op_logical_xor, TP_XOR, a, b); }
tp_tensor tp_logical_not(tp_tape *T, tp_tensor x)              { return tp_apply(T, &tp_op_logical_not, QUESTION(TP_IS_ZERO), x); }
tp_tensor tp_isnan(tp_tape *T, tp_tensor x)                    { return tp_apply(T, &tp_op_isnan, QUESTION(TP_IS_NAN), x); }
tp_tensor tp_isfinite(tp_tape *T, tp_tensor x)                 { return tp_apply(T, &tp_op_isfinite, QUESTION(TP_IS_FINITE), x); }
tp_tensor tp_isinf(tp_tape *T, tp_tensor x)                    { return tp_apply(T, &tp_op_isinf, QUESTION(TP_IS_INF), x); }
/* clang-format on */
