/* weigh.c - gives tensors chosen gradients. */
#include "support/weigh.h"

#include "support/values.h"

void give_grads(tp_tape *T, int n, const tp_tensor *p, double *const *g)
{
    tp_tensor loss = TP_NONE;
    tp_reset(T);
    for (int i = 0; i < n; i++) {
        const tp_tensor w = values_constant(T, tp_dtype_of(p[i]), tp_shape_of(p[i]), g[i]);
        const tp_tensor part = tp_sum(T, tp_mul(T, p[i], w), TP_ALL);
        loss = i ? tp_add(T, loss, part) : part;
    }
    tp_backward(T, loss);
}
