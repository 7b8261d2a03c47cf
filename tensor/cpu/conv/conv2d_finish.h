/* conv2d_finish.h - what becomes of a convolution's sums before they are stored: relu(sum + bias + residual), while the
 * tile is in the caches. */
#ifndef TP_CONV2D_FINISH_H
#define TP_CONV2D_FINISH_H

#include "tensor/cpu/kit/activation.h"
#include "tensor/cpu/kit/real.h"
#include "tensor/cpu/kit/stored.h"

typedef struct finish {
    const tp_view *bias, *residual; /* or NULL                    */
    int64_t channels;               /* of a position of the result */
    bool relu;
} finish;

/* v, or NULL if it is absent. */
TP_INLINE const tp_view *if_given(const tp_view *v)
{
    return tp_absent(v) || !v->data ? NULL : v;
}

/* n sums for channels from `channel` on, which are element `at` of the result and those after it. In bf16, n is at
 * most ROOM. */
TP_INLINE void finish_row(const finish *f, int64_t at, int64_t channel, int64_t n, real *sums)
{
    real room[ROOM];
    if (f->bias) {
        const real *b = read_row(f->bias, f->bias->data, channel, n, room);
        for (int64_t k = 0; k < n; k++) sums[k] += b[k];
    }
    if (f->residual) {
        const real *r = read_row(f->residual, f->residual->data, at, n, room);
        for (int64_t k = 0; k < n; k++) sums[k] += r[k];
    }
    for (int64_t k = 0; f->relu && k < n; k++) sums[k] = relu_value(sums[k]);
}

#endif
