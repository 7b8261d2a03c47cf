/* attn.h - shape checks shared by the full-attention ops. */
#ifndef TP_ATTN_INNER_H
#define TP_ATTN_INNER_H

#include <math.h>

#include "autograd/ops/op_inner.h"
#include "tensor/geometry/attn.h"

static inline tp_code tp__attn_check_cfg(tp_infer *q)
{
    const tp_attn_cfg *cfg = q->attr;
    const int64_t width = q->x[0].dim[2];
    if (cfg->heads < 1) return tp_fail(q, TP_E_VALUE, "heads must be positive, not %d", cfg->heads);
    if (cfg->kv_heads < 0 || (cfg->kv_heads > 0 && cfg->heads % cfg->kv_heads))
        return tp_fail(q, TP_E_VALUE, "kv_heads must divide the %d heads; %d does not", cfg->heads,
                       cfg->kv_heads);
    if (width % cfg->heads)
        return tp_fail(q, TP_E_SHAPE, "a width of %lld does not divide into %d heads",
                       (long long)width, cfg->heads);
    if (!(cfg->dropout >= 0 && cfg->dropout < 1))
        return tp_fail(q, TP_E_VALUE, "dropout must be in [0, 1), not %g", cfg->dropout);
    if (!isfinite(cfg->scale)) return tp_fail(q, TP_E_VALUE, "scale must be finite");
    return TP_OK;
}

/* Checks q [B,N,H*D] and k, v [B,S,H*D] in x[0..2]. Describes y [B,N,H*D] and the hidden
 * log-sum-exp of each query's logits [B,H,N], in f32 for bf16 data. */
static inline tp_code tp__attn_infer(tp_infer *q)
{
    const tp_view *x = q->x;
    for (int i = 0; i < 3; i++) {
        if (x[i].ndim != 3) return tp_fail(q, TP_E_SHAPE, "q must be [B,N,H*D], k and v [B,S,H*D]");
    }
    if (x[1].dim[0] != x[0].dim[0])
        return tp_fail(q, TP_E_SHAPE, "batch sizes of q and k differ: %lld and %lld",
                       (long long)x[0].dim[0], (long long)x[1].dim[0]);
    if (x[1].dim[2] != x[0].dim[2] && !((const tp_attn_cfg *)q->attr)->kv_heads)
        return tp_fail(q, TP_E_SHAPE, "widths of q and k differ: %lld and %lld",
                       (long long)x[0].dim[2], (long long)x[1].dim[2]);
    if (!tp__same_shape(&x[1], &x[2]))
        return tp_fail(q, TP_E_SHAPE, "k and v must be of one shape");
    const tp_code code = tp__attn_check_cfg(q);
    if (code != TP_OK) return code;
    const tp_attn_cfg *cfg = q->attr;
    const int heads = cfg->heads;
    const int64_t dim = x[0].dim[2] / heads;
    if (cfg->kv_heads && x[1].dim[2] != dim * cfg->kv_heads)
        return tp_fail(q, TP_E_SHAPE, "k and v must be [B,S,%lld], %d heads of %lld",
                       (long long)(dim * cfg->kv_heads), cfg->kv_heads, (long long)dim);
    q->y[0] = x[0];
    q->y[1] = (tp_view){ .dtype = tp__sum_dtype(x[0].dtype),
                         .ndim = 3,
                         .dim = { x[0].dim[0], heads, x[0].dim[1] } };
    return TP_OK;
}

/* Query-key pairs per head within causality and span. Masks are data and do not count. An empty q
 * has no pairs, whatever its shape. */
static inline double tp__attn_pairs(const tp_infer *q, bool positions)
{
    if (q->x[0].numel == 0) return 0.0;
    const tp_attn a = tp__attn(q->x, q->attr, positions);
    double pairs = 0.0;
    for (int64_t i = 0; i < a.queries; i++) {
        const int64_t seen = tp__end_key(&a, i) - tp__first_key(&a, i);
        if (seen > 0) pairs += (double)seen;
    }
    return pairs * (double)a.batch;
}

#endif
