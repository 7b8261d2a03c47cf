/* lsla.cuh - light self-limited attention: problem and windows, for f32 and tensor core kernels. */
#ifndef TP_LSLA_CUH
#define TP_LSLA_CUH

#include "cuda/attention/attention.cuh"
#include "cuda/kit/mask.cuh"
#include "tensor/geometry/lsla.h"

template <class S> struct lsla {
    tp_lsla g;
    float fixed; /* the scale, unless it is learned */
    bool mask_outer;
    const S *q, *k, *v, *scale, *inner, *outer, *dout;
    S *out;
    float *lse;  /* [B,H,N]                                                                 */
    float *work; /* [H][slices][5][n][n]: sums of scale, inner, outer; ds and W of a window */
    attn_sink<S> dq, dk, dv;
    tp_mask drop; /* of element [B,H,N,n] */
};

/* A window of one head. */
struct lsla_place {
    int64_t b, y, x; /* its corner in the rolled map */
    int h;
    bool mixed; /* contains several regions */
};

template <class S>
static __device__ inline lsla_place lsla_window(const lsla<S> &p, int64_t window, int h)
{
    const int64_t row = tp_div(window, p.g.across), b = tp_div(row, p.g.down);
    const int64_t down = row - b * p.g.down, across = window - row * p.g.across;
    const bool last = down == p.g.down - 1 || across == p.g.across - 1;
    return { b, down * p.g.window, across * p.g.window, h, p.g.shift > 0 && last };
}

/* The offset of the head's slice of token i of the window in q, k, v and y. */
template <class S>
static __device__ inline int64_t lsla_at(const lsla<S> &p, const lsla_place &t, int i)
{
    const int w = (int)p.g.window;
    const int64_t token = tp__lsla_token(&p.g, t.y + i / w, t.x + i % w);
    return (t.b * p.g.size[0] * p.g.size[1] + token) * p.g.width + t.h * p.g.dim;
}

template <class S>
static __device__ inline int lsla_region(const lsla<S> &p, const lsla_place &t, int i)
{
    const int w = (int)p.g.window;
    return tp__lsla_region(&p.g, t.y + i / w, t.x + i % w);
}

/* Tensor cores: supported calls. Backward leaves the slices' sums in p.work. */
bool tp__lsla_mma_serves(const lsla<bf16> &p);
bool tp__lsla_mma_serves_bwd(const lsla<bf16> &p);
tp_code tp__lsla_mma_fwd(const tp_call *c, const lsla<bf16> &p);
tp_code tp__lsla_mma_bwd(const tp_call *c, const lsla<bf16> &p);

#endif
