/* row_param.cuh - a parameter along the last axis (weight, bias) that may be absent and may differ
 * in type from the data, such as f32 with bf16. A uniform branch tests the type at each load, so
 * kernels are not instantiated for each type. */
#ifndef TP_ROW_PARAM_CUH
#define TP_ROW_PARAM_CUH

#include "cuda/kit/kernel.cuh"

/* Every element is `none` if `at` is NULL. */
struct tp_row_param {
    const void *at;
    bool half;
    float none;
};

/* The parameter at input i of the call. */
static inline tp_row_param tp_row_param_of(const tp_call *c, int i, float none)
{
    if (i >= c->nx || tp_absent(&c->x[i])) return { NULL, false, none };
    return { c->x[i].data, c->x[i].dtype == TP_BF16, none };
}

/* Loads elements i .. i + N into v, aligned if N > 1. */
template <int N> static __device__ inline void tp_take(float v[N], const tp_row_param &p, int64_t i)
{
    if (p.at && p.half) {
        const tp_pack<bf16, N> h = tp_load_n<bf16, N>(static_cast<const bf16 *>(p.at) + i);
        for (int k = 0; k < N; k++) v[k] = tp_float(h.at[k]);
    } else if (p.at) {
        const tp_pack<float, N> f = tp_load_n<float, N>(static_cast<const float *>(p.at) + i);
        for (int k = 0; k < N; k++) v[k] = f.at[k];
    } else {
        for (int k = 0; k < N; k++) v[k] = p.none;
    }
}

#endif
