/* einsum.h - the parsed specification of tp_einsum, private to einsum*.c.
 *
 * A label names an axis: a letter, or one of the axes of "...", counted from the last. Labels are
 * numbered in the order of an implicit output: "..." axes, then capitals, then small letters. */
#ifndef TP_EINSUM_H
#define TP_EINSUM_H

#include <stdbool.h>
#include <tapegrad/tape.h>

enum { TP_EINSUM_LABELS = TP_MAX_DIMS + 52 };

/* The labels of the axes of one tensor, in order. */
typedef struct tp_einsum_axes {
    int n, label[TP_MAX_DIMS];
} tp_einsum_axes;

typedef struct tp_einsum_spec {
    tp_tape *T;
    const char *text, *at;          /* `at`: next character to read */
    int taken;                      /* operands that tp__einsum_next has read    */
    int dots;                       /* most axes that "..." stands for */
    int count[TP_EINSUM_LABELS];    /* occurrences in the operands */
    int64_t size[TP_EINSUM_LABELS]; /* of the label's axes not broadcast */
    tp_einsum_axes out;
} tp_einsum_spec;

/* Parses the specification for n tensors. False, with T failed, if it is wrong or does not fit. */
bool tp__einsum_read(tp_einsum_spec *s, tp_tape *T, const char *text, int n, const tp_tensor *x);

/* Returns the axes of the next operand, x, of a specification accepted by tp__einsum_read, after
 * which it starts with the first operand. */
tp_einsum_axes tp__einsum_next(tp_einsum_spec *s, tp_tensor x);

#endif
