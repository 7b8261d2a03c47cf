/* gradcase.h - the inputs of a gradient case: those past the last one given are like it. */
#ifndef TP_GRADCASE_H
#define TP_GRADCASE_H

#include <tapegrad/op.h>

enum { TP_CASE_INPUTS = 64 }; /* most inputs of a case */

/* The number of inputs given in k->in. */
static inline int tp__case_given(const tp_gradcase *k)
{
    int n = TP_MAX_INPUTS;
    while (n > 0 && k->in[n - 1].ndim == 0) n--;
    return n;
}

/* The number of inputs with which the case calls op. */
static inline int tp__case_inputs(const tp_op *op, const tp_gradcase *k)
{
    const int n = op->nx >= 0 ? op->nx : k->nx > 0 ? k->nx : tp__case_given(k);
    return n < TP_CASE_INPUTS ? n : TP_CASE_INPUTS;
}

/* The index of input i in k's tables. */
static inline int tp__case_like(const tp_gradcase *k, int i)
{
    const int last = tp__case_given(k) - 1;
    return k->nx > 0 && i > last ? last : i;
}

/* Input i without data: of dtype `real`, indices (TP_I64) or a mask (TP_U8). */
tp_view tp__case_view(const tp_gradcase *k, int i, tp_dtype real);

/* Writes its values: the case's or, by default, random ones. */
void tp__case_fill(const tp_gradcase *k, int i, tp_view *v);

#endif
