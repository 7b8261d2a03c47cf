/* ls_wide.cu - long-short attention that fails unless it runs on tensor cores, and with the kernel
 * of 32 queries per warp for calls of any size; tapegrad uses it from 32768 queries on. */
#include "cuda_emulation/ls_wide.h"

#include "cuda/attention/ls_mma_fwd.cuh"

extern "C" tp_code tp_cuda_ls_attention_fwd(const tp_call *c);
extern "C" tp_code tp_cuda_ls_attention_bwd(const tp_call *c);

extern "C" tp_code ls_wide_forward(const tp_call *c)
{
    const ls_call<bf16> p = ls_call_of<bf16>(c);
    if (c->x[0].dtype != TP_BF16 || p.D != 64 || !ls_mma_serves(p, 128, LS_MMA_STEP))
        return tp__cuda_fail(c, TP_E_VALUE, "not a call for 32 queries a warp");
    const tp_code code = ls_dot_products(c, p);
    return code == TP_OK ? ls_mma_launch_forward<64, 2>(c, p) : code;
}

extern "C" tp_code ls_mma_only_forward(const tp_call *c)
{
    const ls_call<bf16> p = ls_call_of<bf16>(c);
    if (c->x[0].dtype != TP_BF16 || !tp_aligned(tp_out<bf16>(&c->y[0])) ||
        !ls_mma_serves(p, p.D == 64 ? 64 : 128, LS_MMA_STEP))
        return tp__cuda_fail(c, TP_E_VALUE, "not a call for tensor cores");
    return tp_cuda_ls_attention_fwd(c);
}

extern "C" tp_code ls_mma_only_backward(const tp_call *c)
{
    const ls_call<bf16> p = ls_call_of<bf16>(c);
    if (c->x[0].dtype != TP_BF16 || !tp_aligned(tp_in<bf16>(&c->dy[0])) ||
        !ls_mma_serves(p, LS_TILE, LS_TILE))
        return tp__cuda_fail(c, TP_E_VALUE, "not a call for tensor cores");
    return tp_cuda_ls_attention_bwd(c);
}
