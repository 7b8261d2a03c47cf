/* window.cuh - attention over maps: the problem, for f32 and tensor core kernels. */
#ifndef TP_WINDOW_CUH
#define TP_WINDOW_CUH

#include "cuda/attention/attention.cuh"
#include "tensor/geometry/window.h"

template <class S> struct win {
    tp_window g;
    float scale;
    const S *q, *k, *v, *low_k, *low_v, *table, *bias, *dout;
    S *out;
    float *lse, *delta; /* [B,H,N] */
    attn_sink<S> dq, dk, dv, dlow_k, dlow_v, dtable, dbias;
};

/* The first chunk with queries that may see row or column `at`, and the number of such chunks (modulo
 * all of them). */
static __device__ inline int64_t win_first_chunk(const tp_window &g, int axis, int64_t at,
                                                 int64_t *count)
{
    const int64_t own = tp_div(at, g.chunk[axis]), n = g.chunks[axis];
    if (g.cyclic) {
        *count = min((int64_t)3, n);
        return own + n - 1;
    }
    const int64_t first = max(own - 1, (int64_t)0);
    *count = min(own + 1, n - 1) - first + 1;
    return first;
}

/* Tensor cores: supported calls; gradients except delta and dq of global tokens. */
bool tp__window_mma_serves(const win<bf16> &p);
tp_code tp__window_mma_fwd(const tp_call *c, const win<bf16> &p);
bool tp__window_mma_serves_bwd(const win<bf16> &p);
tp_code tp__window_mma_bwd(const tp_call *c, const win<bf16> &p); /* dq, dtable, dbias */
tp_code tp__window_mma_grad_keys(const tp_call *c, const win<bf16> &p);

#endif
