/* operands.h - shared by ops whose operands broadcast and may be numbers. */
#ifndef TP_OPERANDS_H
#define TP_OPERANDS_H

#include "autograd/nodes.h"
#include "autograd/ops/op_inner.h"
#include "tensor/geometry/broadcast.h"
#include "tensor/geometry/elementwise.h"
#include "tensor/geometry/meet.h"

/* Replaces a number operand by TP_NONE and an attribute. */
static inline tp_binary_attr tp__take_number(tp_tensor x[2])
{
    tp_binary_attr k = { 0 };
    for (int i = 0; i < 2; i++) {
        if (!tp__is_number(x[i])) continue;
        k.number = tp__number_of(x[i]);
        k.numbers |= 1 << i;
        x[i] = TP_NONE;
    }
    return k;
}

/* Applies an op of two operands. */
static inline tp_tensor tp__apply_two(tp_tape *T, const tp_op *op, tp_tensor a, tp_tensor b)
{
    tp_tensor x[] = { a, b };
    const tp_binary_attr k = tp__take_number(x);
    return tp_apply_n(T, op, &k, 2, x, 1, NULL);
}

/* Workspace of ops whose backward sums dy over a repeated operand. Operands are the inputs from
 * `first` on. */
static inline size_t tp__operands_work(const tp_call *c, int first)
{
    size_t most = 0;
    for (int i = first; tp_is_backward(c) && i < c->nx; i++) {
        if (tp_absent(&c->x[i])) continue;
        const size_t bytes = tp__fold_work(&c->y[0], &c->x[i], c->y[0].dtype);
        if (bytes > most) most = bytes;
    }
    return most;
}

/* Sets y[0] to the common shape of the inputs; fails if they disagree on an axis. NULL ends the
 * input names. */
static inline tp_code tp__broadcast_inputs(tp_infer *q, const char *const *names)
{
    const tp_view *x[TP_MEETING];
    int64_t size[TP_MEETING] = { 0 };
    char text[128] = "";
    for (int i = 0; i < q->nx; i++) x[i] = &q->x[i];
    const int last = tp__common_shape(&q->y[0], q->nx, x, size);
    if (last < 0) return TP_OK;
    for (int i = 0; i < TP_MEETING && names[i]; i++)
        if (size[i] != 1)
            tp__append(text, sizeof text, "%s%lld in %s", *text ? ", " : "", (long long)size[i],
                       names[i]);
    return tp_fail(
        q, TP_E_SHAPE,
        "along axis %d the sizes are %s: operands broadcast only if sizes are equal or 1", -last,
        text);
}

/* Fails unless operands `at` and at + 1 are given, at most one as a number. y[0] gets the first
 * tensor's dtype. */
static inline tp_code tp__expect_two(tp_infer *q, int at)
{
    const tp_binary_attr *k = q->attr;
    const tp_view *a = &q->x[at], *b = &q->x[at + 1];
    if (k->numbers == 3)
        return tp_fail(q, TP_E_VALUE,
                       "both operands are numbers; make a tensor of one with tp_full");
    for (int i = 0; i < 2; i++)
        if (tp_absent(&q->x[at + i]) && !(k->numbers >> i & 1))
            return tp_fail(q, TP_E_VALUE, "input %d: is missing (TP_NONE)", at + i);
    q->y[0].dtype = tp_absent(a) ? b->dtype : a->dtype;
    return TP_OK;
}

/* The shape rule of two operands of one dtype, one of which may be a number: y[0] has their common
 * shape and the first tensor's dtype. */
static inline tp_code tp__two_operands(tp_infer *q)
{
    static const char *const names[TP_MEETING + 1] = { "a", "b" };
    const tp_code code = tp__expect_two(q, 0);
    return code == TP_OK ? tp__broadcast_inputs(q, names) : code;
}

#endif
