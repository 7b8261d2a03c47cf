/* einsum.h - what a specification of tp_einsum says. Private to einsum.c and einsum_spec.c.
 *
 * A label stands for an axis: a letter, or one of the axes that "..." stands for, counted from the last.
 * Labels are numbered in the order of an implicit output: axes of "...", then capitals, then small letters. */
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
    const char *text, *at;          /* `at` is the next character to be read     */
    int taken;                      /* operands that tp__einsum_next has read    */
    int dots;                       /* axes that "..." stands for, at most       */
    int count[TP_EINSUM_LABELS];    /* how often a label occurs in the operands  */
    int64_t size[TP_EINSUM_LABELS]; /* of the label's axes that are not repeated */
    tp_einsum_axes out;
} tp_einsum_spec;

/* Reads the specification for n tensors. False, with T failed, if it is wrong or does not fit them. */
bool tp__einsum_read(tp_einsum_spec *s, tp_tape *T, const char *text, int n, const tp_tensor *x);

/* Reads the axes of the next operand, x, of a specification that tp__einsum_read has accepted. It begins with
 * the first operand after tp__einsum_read. */
tp_einsum_axes tp__einsum_next(tp_einsum_spec *s, tp_tensor x);

#endif
