/* compare.c - comparisons and logical ops of two broadcast operands, and predicates on the elements
 * of one tensor. Results are TP_U8 masks.
 *
 * A number must mean the same to a kernel that compares in the tensor's dtype: for floats it is
 * rounded; for integers, where it may be fractional or out of range, the question is replaced by an
 * equivalent one. */
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

/* Rewrites "x r v", for integers x in lo..hi, with an integer v in that range. What holds for all x
 * or for none becomes x >= lo or x < lo. */
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

/* Adapts the number to dtype dt. */
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

/* Integers of two dtypes meet in the wider one: tp_argmax gives i64, labels may be i32. */
static void widen(tp_tape *T, tp_tensor x[2])
{
    const tp_dtype dt[] = { tp_dtype_of(x[0]), tp_dtype_of(x[1]) };
    if (dt[0] == dt[1] || tp_is_float(dt[0]) || tp_is_float(dt[1])) return;
    const int narrow = tp_dtype_size(dt[0]) < tp_dtype_size(dt[1]) ? 0 : 1;
    x[narrow] = tp_cast(T, x[narrow], dt[1 - narrow]);
}

static tp_tensor compare(tp_tape *T, const tp_op *op, tp_relation r, tp_tensor a, tp_tensor b)
{
    tp_tensor x[] = { a, b };
    widen(T, x);
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

/* Few values: some 0, many equal. */
static void halves(int i, tp_view *x)
{
    (void)i;
    for (int64_t e = 0; e < x->numel; e++) tp_st(x, e, rint(2.0 * tp_ld(x, e)) / 2.0);
}

#define TENSORS(R)      TP_ATTR(tp_compare_attr, { 0, 0 }, R)
#define NUMBER(i, k, R) TP_ATTR(tp_compare_attr, { k, 1 << (i) }, R)
#define CASES(op, R)                                                                               \
    static const tp_gradcase op##_cases[] = {                                                      \
        { "same shape", .in = { TP_DIMS(5, 11), TP_DIMS(5, 11) }, .fill = halves,                  \
          .attr = TENSORS(R) },                                                                    \
        { "packs and a tail", .in = { TP_DIMS(67), TP_DIMS(67) }, .fill = halves,                  \
          .attr = TENSORS(R) },                                                                    \
        { "a row", .in = { TP_DIMS(2, 3, 5), TP_DIMS(5) }, .fill = halves, .attr = TENSORS(R) },   \
        { "packs of rows", .in = { TP_DIMS(3, 32), TP_DIMS(32) }, .fill = halves,                  \
          .attr = TENSORS(R) },                                                                    \
        { "column and row", .in = { TP_DIMS(7, 1), TP_DIMS(1, 5) }, .fill = halves,                \
          .attr = TENSORS(R) },                                                                    \
        { "a is one element", .in = { TP_DIMS(1), TP_DIMS(3, 16) }, .fill = halves,                \
          .attr = TENSORS(R) },                                                                    \
        { "repeated in turn", .in = { TP_DIMS(2, 1, 3, 1), TP_DIMS(4, 1, 5) }, .fill = halves,     \
          .attr = TENSORS(R) },                                                                    \
        { "integers", .in = { TP_DIMS(3, 21), TP_DIMS(21) }, .below = { 3, 3 },                    \
          .attr = TENSORS(R) },                                                                    \
        { "masks", .in = { TP_DIMS(3, 21), TP_DIMS(3, 21) }, .masks = 3, .attr = TENSORS(R) },     \
        { "a number on the left", .in = { { 0 }, TP_DIMS(3, 13) }, .fill = halves,                 \
          .attr = NUMBER(0, 0.5, R) },                                                             \
        { "a number on the right", .in = { TP_DIMS(3, 13) }, .fill = halves,                       \
          .attr = NUMBER(1, -1, R) },                                                              \
        { "integers and a number", .in = { TP_DIMS(3, 13) }, .below = { 3 },                       \
          .attr = NUMBER(1, 1, R) },                                                               \
        { "empty", .in = { TP_DIMS(0, 4), TP_DIMS(4) }, .attr = TENSORS(R) },                      \
        { 0 },                                                                                     \
    }

/* A mix of NaN, infinities, 0 and 1. */
static void special(int i, tp_view *x)
{
    static const double values[] = { NAN, 1, INFINITY, -INFINITY, 0 };
    (void)i;
    for (int64_t e = 0; e < x->numel; e++) tp_st(x, e, values[e * 3 % 5]);
}

#define QUESTION(Q) TP_ATTR(tp_question, Q)
#define ASK_CASES(op, Q)                                                                           \
    static const tp_gradcase op##_cases[] = {                                                      \
        { "floats", .in = { TP_DIMS(7, 11) }, .fill = special, .attr = QUESTION(Q) },              \
        { "integers", .in = { TP_DIMS(17) }, .below = { 3 }, .attr = QUESTION(Q) },                \
        { "masks", .in = { TP_DIMS(17) }, .masks = 1, .attr = QUESTION(Q) },                       \
        { "empty", .in = { TP_DIMS(3, 0) }, .attr = QUESTION(Q) },                                 \
        { 0 },                                                                                     \
    }

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

#define COMPARE(op, text)                                                                          \
    .name = #op, .doc = text, .nx = 2, .ny = 1, .inputs = "a, b", .takes = { TP_ANY, TP_ANY },     \
    .attr_size = sizeof(tp_compare_attr), .optional = 3, .flags = TP_NOT_DIFFERENTIABLE,           \
    .shape = compare_shape, .forward = TP_KERNELS(compare_fwd), .cases = op##_cases
#define ASK(op, text)                                                                              \
    .name = #op, .doc = text, .nx = 1, .ny = 1, .takes = { TP_ANY },                               \
    .attr_size = sizeof(tp_question), .flags = TP_NOT_DIFFERENTIABLE, .shape = ask_shape,          \
    .forward = TP_KERNELS(ask_fwd), .cases = op##_cases

const tp_op tp_op_eq = { COMPARE(eq, "whether a = b") };
const tp_op tp_op_ne = { COMPARE(ne, "whether a != b") };
const tp_op tp_op_lt = { COMPARE(lt, "whether a < b") };
const tp_op tp_op_le = { COMPARE(le, "whether a <= b") };
const tp_op tp_op_gt = { COMPARE(gt, "whether a > b") };
const tp_op tp_op_ge = { COMPARE(ge, "whether a >= b") };
const tp_op tp_op_logical_and = { COMPARE(logical_and, "whether both a and b are nonzero") };
const tp_op tp_op_logical_or = { COMPARE(logical_or, "whether a or b is nonzero") };
const tp_op tp_op_logical_xor = { COMPARE(logical_xor, "whether exactly one of a and b is 0") };
const tp_op tp_op_logical_not = { ASK(logical_not, "whether x is 0") };
const tp_op tp_op_isnan = { ASK(isnan, "whether x is NaN") };
const tp_op tp_op_isfinite = { ASK(isfinite, "whether x is finite") };
const tp_op tp_op_isinf = { ASK(isinf, "whether x is infinite") };

#define TWO(op, R)                                                                                 \
    tp_tensor tp_##op(tp_tape *T, tp_tensor a, tp_tensor b)                                        \
    {                                                                                              \
        return compare(T, &tp_op_##op, R, a, b);                                                   \
    }
#define ONE(op, Q)                                                                                 \
    tp_tensor tp_##op(tp_tape *T, tp_tensor x)                                                     \
    {                                                                                              \
        return tp_apply(T, &tp_op_##op, QUESTION(Q), x);                                           \
    }

TWO(eq, TP_EQ)
TWO(ne, TP_NE)
TWO(lt, TP_LT)
TWO(le, TP_LE)
TWO(gt, TP_GT)
TWO(ge, TP_GE)
TWO(logical_and, TP_AND)
TWO(logical_or, TP_OR)
TWO(logical_xor, TP_XOR)
ONE(logical_not, TP_IS_ZERO)
ONE(isnan, TP_IS_NAN)
ONE(isfinite, TP_IS_FINITE)
ONE(isinf, TP_IS_INF)
