/* reduced.h - decodes the axes of a reduction, for the shape rules and both backends. */
#ifndef TP_REDUCED_H
#define TP_REDUCED_H

#include <tapegrad/op.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tp_reduce_attr {
    int axes; /* as the user gave it: an axis, TP_ALL, TP_AXES, TP_KEEP */
    double k; /* var, std: the correction; norm: p */
} tp_reduce_attr;

/* Bit i of *set: axis i of ndim is reduced; *keep: it stays, with size 1. False, with the reason in
 * why, if no tensor of ndim axes fits. */
bool tp__axes(int axes, int ndim, unsigned *set, bool *keep, char *why, size_t size);

/* x with size 1 along the axes, which must fit; the result broadcasts from it. */
tp_view tp__reduced(const tp_view *x, int axes);

/* Bytes of c->work for a forward call with `state` bytes per result and block of tp__fold. */
size_t tp__reduce_work(const tp_call *c, size_t state);

#ifdef __cplusplus
}
#endif

#endif
