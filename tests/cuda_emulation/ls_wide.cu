/* ls_wide.cu - runs the long-short attention kernel with 32 queries per warp for calls of any size;
 * tapegrad uses it from 32768 queries on. */
#include "cuda_emulation/ls_wide.h"

#include "cuda/attention/ls_mma_fwd.cuh"

extern "C" tp_code ls_wide_forward(const tp_call *c)
{
    const ls_call<bf16> p = ls_call_of<bf16>(c);
    if (c->x[0].dtype != TP_BF16 || p.D != 64 || !ls_mma_serves(p, 128, LS_MMA_STEP))
        return tp__cuda_fail(c, TP_E_VALUE, "not a call for 32 queries a warp");
    const tp_code code = ls_bias_logits(c, p);
    return code == TP_OK ? ls_mma_launch_forward<64, 2>(c, p) : code;
}
