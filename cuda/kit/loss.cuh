/* loss.cuh - the last step of a reduced loss: adds the partial sums of blocks.
 *
 * A part is the loss of some rows or elements and how many counted, or their weights. Its extent
 * depends only on the shape, and parts are added in order, so results are bit-identical on every
 * GPU. */
#ifndef TP_LOSS_CUH
#define TP_LOSS_CUH

#include "cuda/kit/kernel.cuh"
#include "tensor/geometry/loss.h"

struct tp_loss_part {
    float sum, counted;
};

/* Runs as one block. divisor 0: divides by the number counted, if any. */
static __global__ void __launch_bounds__(1024)
    tp_loss_sum(int64_t parts, const tp_loss_part *part, double divisor, float *loss)
{
    double sum = 0.0, counted = 0.0;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < parts; i += blockDim.x) {
        sum += (double)part[i].sum;
        counted += (double)part[i].counted;
    }
    sum = tp_block<tp_sum_of>(sum);
    counted = tp_block<tp_sum_of>(counted);
    if (divisor == 0.0) divisor = counted != 0.0 ? counted : 1.0;
    if (threadIdx.x == 0) *loss = (float)(sum / divisor);
}

static inline tp_code tp_finish_loss(const tp_call *c, int64_t parts, const tp_loss_part *part,
                                     double divisor)
{
    return tp_launch(c, tp_loss_sum, 1, parts > TP_THREADS ? 1024 : TP_THREADS, 0, parts, part,
                     divisor, tp_out<float>(&c->y[0]));
}

#endif
