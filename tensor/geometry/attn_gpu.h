/* attn_gpu.h - the work of attention on a GPU: for the op files, which ask for it, and the CUDA
 * kernels, which use it. */
#ifndef TP_ATTN_GPU_H
#define TP_ATTN_GPU_H

#include <tapegrad/op.h>
#include <tapegrad/ops.h>

/* Where the pieces begin, in floats. */
typedef struct tp_attn_gpu {
    int64_t bias;   /* bf16: [B+1,H,S]: r_w k, then r_r pos; all that forward has               */
    int64_t delta;  /* [B,H,N]: rowsum(dO * O)                                                  */
    int64_t dr;     /* [B * tiles of 64 queries][2][H*D]: parts of the gradients of r_w and r_r */
    int64_t dpos;   /* [splits][S][H*D]: parts of the gradient of pos                           */
    int64_t splits; /* of the batch, so that there are enough tiles of distances                */
    int64_t total;
} tp_attn_gpu;

static inline tp_attn_gpu tp__attn_gpu(const tp_view *x, const tp_attn_cfg *cfg, bool positions,
                                       bool backward)
{
    const int64_t batch = x[0].dim[0], n = x[0].dim[1], s = x[1].dim[1], width = x[0].dim[2];
    const int64_t tiles = (s + 63) / 64 * cfg->heads;
    const int64_t splits = tiles > 0 ? (512 + tiles - 1) / tiles : 1;
    tp_attn_gpu w = { 0, 0, 0, 0, 1, 0 };
    if (positions && x[0].dtype == TP_BF16) w.delta = (batch + 1) * cfg->heads * s;
    w.total = w.dpos = w.dr = w.delta + (backward ? batch * cfg->heads * n : 0);
    if (!positions || !backward) return w;
    w.dpos += batch * ((n + 63) / 64) * 2 * width;
    w.splits = splits < batch ? splits : batch > 0 ? batch : 1;
    w.total = w.dpos + w.splits * s * width;
    return w;
}

#endif
