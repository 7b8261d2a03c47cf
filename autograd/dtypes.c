/* dtypes.c - checks the dtypes of an op's inputs and words the refusals. */
#include <string.h>

#include "autograd/ops/op_inner.h"
#include "autograd/tape.h"

/* Appends the name of input i, or its number if the op names none. */
static void print_input(char *text, size_t size, const tp_op *op, int i)
{
    const char *at = op->inputs;
    for (int k = 0; at && k < i; k++) {
        at = strchr(at, ',');
        if (at) at += strspn(at, ", ");
    }
    if (at)
        tp__append(text, size, "%.*s", (int)strcspn(at, ","), at);
    else
        tp__append(text, size, "input %d", i);
}

/* Appends a set of dtypes: "i32, i64 or floating point". */
static void print_dtypes(char *text, size_t size, unsigned set)
{
    const char *name[TP_NDTYPES + 1];
    const bool floats = (set & TP_FLOATS) == TP_FLOATS;
    int n = 0;
    for (int dt = 0; dt < TP_NDTYPES; dt++)
        if ((set >> dt & 1u) && !(floats && tp_is_float((tp_dtype)dt)))
            name[n++] = tp_dtype_name((tp_dtype)dt);
    if (floats) name[n++] = "floating point";
    for (int i = 0; i < n; i++)
        tp__append(text, size, "%s%s", i == 0 ? "" : i == n - 1 ? " or " : ", ", name[i]);
}

static unsigned taken(const tp_op *op, int i)
{
    const unsigned set = op->takes[op->nx < 0 ? 0 : i];
    return set ? set : TP_FLOATS;
}

static bool refuse_dtype(tp_infer *q, const tp_op *op, int i)
{
    char name[64] = "", wanted[64] = "";
    print_input(name, sizeof name, op, i);
    print_dtypes(wanted, sizeof wanted, taken(op, i));
    tp_fail(q, TP_E_DTYPE, "%s must be %s, not %s; tp_cast converts", name, wanted,
            tp_dtype_name(q->x[i].dtype));
    return false;
}

bool tp__check_taken(tp_infer *q, const tp_op *op)
{
    int any = -1; /* the first TP_ANY input */
    for (int i = 0; i < q->nx; i++) {
        if (tp_absent(&q->x[i])) continue;
        const tp_dtype dt = q->x[i].dtype;
        const unsigned set = taken(op, i);
        if (!(set >> dt & 1u)) return refuse_dtype(q, op, i);
        if (set != TP_ANY) continue;
        if (any < 0) any = i;
        const tp_dtype first = q->x[any].dtype;
        if (dt != first && !(tp_is_float(dt) && tp_is_float(first))) {
            tp_fail(q, TP_E_DTYPE, "inputs mix %s and %s; convert with tp_cast",
                    tp_dtype_name(first), tp_dtype_name(dt));
            return false;
        }
    }
    return true;
}

/* Fails the op, whose inputs have the floating dtypes a and b, with what to do. */
static bool refuse_mix(tp_infer *q, tp_dtype a, tp_dtype b)
{
    const char *hint = a != TP_F64 && b != TP_F64 ? "a tape with compute = TP_BF16 mixes these"
                       : q->T->compute == TP_F64  ? "an f64 tape wants parameters opened as f64"
                                                  : "f64 data want a tape with compute = TP_F64";
    tp_fail(q, TP_E_DTYPE, "inputs mix %s and %s; convert with tp_cast (%s)", tp_dtype_name(a),
            tp_dtype_name(b), hint);
    return false;
}

bool tp__check_dtypes(tp_infer *q, const tp_op *op, tp_node *const *x, tp_dtype *real)
{
    tp_dtype first = TP_NDTYPES;
    *real = TP_NDTYPES;
    for (int i = 0; i < q->nx; i++) {
        if (tp_absent(&q->x[i]) || !tp_is_float(q->x[i].dtype)) continue;
        const tp_dtype dt = q->x[i].dtype;
        if (*real != TP_F64) *real = dt == TP_F64 ? TP_F64 : TP_F32;
        const bool kept = (x[i]->params && tp__mixes(op, i)) || op->exact & tp__bit(i);
        if (first == TP_NDTYPES)
            first = dt;
        else if (dt != first && !(first == TP_BF16 && dt == TP_F32 && kept))
            return refuse_mix(q, first, dt);
    }
    return true;
}
