/* nystrom.c - attention through landmarks (Nystroemformer, Xiong et al. 2021), as in the official code.
 *
 *     q~, k~ = means of n / L consecutive rows          F = softmax(q k~^T)   A = softmax(q~ k~^T)
 *     y = F (A^+ (G v))                                 G = softmax(q~ k^T), without padding
 *
 * G v and F times the rest are tiled attentions, so that nothing of size n * L is stored. Padding is zero
 * in q and k, and counts in the means. */
#include <math.h>

#include "inner.h"

/* Six steps z <- z (13 - y (15 - y (7 - y))) / 4, y = a z, towards the pseudo-inverse of a [B,h,L,L] (Razavi et
 * al. 2014). The start divides by the largest column sum of the whole batch or, per_head, of each matrix;
 * that has a gradient. */
static tp_tensor inverse(tp_tape *T, tp_tensor a, bool per_head)
{
    const tp_tensor sums = tp_sum(T, a, TP_KEEP(-2)); /* [B,h,1,L] */
    const tp_tensor top = tp_max(T, sums, per_head ? TP_KEEP(-1) : TP_KEEP(TP_ALL));
    tp_tensor z = tp_div(T, tp_transpose(T, a, -2, -1), tp_cast(T, top, tp_dtype_of(a)));
    for (int i = 0; i < 6; i++) {
        const tp_tensor y = tp_matmul(T, a, z);
        tp_tensor u = tp_sub(T, tp_scale(T, z, 7.0), tp_matmul(T, z, y));
        u = tp_sub(T, tp_scale(T, z, 15.0), tp_matmul(T, u, y));
        u = tp_sub(T, tp_scale(T, z, 13.0), tp_matmul(T, u, y));
        z = tp_scale(T, u, 0.25);
    }
    return z;
}

/* Means of n / L consecutive rows, [B,L,d]. */
static tp_tensor landmarks(tp_tape *T, tp_tensor x, int64_t L)
{
    const int64_t B = tp_dim(x, 0), n = tp_dim(x, 1), d = tp_dim(x, 2);
    return tp_mean(T, tp_reshape(T, x, TP_SHAPE(B, L, n / L, d)), 2);
}

tp_tensor tp__lra_nystrom(tp_tape *T, const tp_lra_attn *m, tp_tensor q, tp_tensor k, tp_tensor v,
                          tp_tensor mask)
{
    const tp_attn_cfg c = { .heads = m->cfg.heads };
    const int64_t L = m->cfg.rank, n = tp_dim(q, 1);
    if (tp_ok(T) && n % L)
        return tp_raise(T, TP_E_SHAPE,
                        "%s: %lld tokens are no multiple of %lld landmarks: pad them", m->path,
                        (long long)n, (long long)L);
    q = tp__lra_hide(T, q, mask);
    k = tp__lra_hide(T, k, mask);
    if (n == L) return tp_attention(T, q, k, v, mask, TP_NONE, c);

    const tp_tensor lq = landmarks(T, q, L), lk = landmarks(T, k, L);
    const tp_tensor hq = tp__lra_split(T, lq, c.heads), hk = tp__lra_split(T, lk, c.heads);
    const double scale = 1.0 / sqrt((double)tp_dim(hq, 3));
    const tp_tensor a = tp_softmax(T, tp_scale(T, tp_matmul_t(T, hq, false, hk, true), scale));
    const tp_tensor gv = tp_attention(T, lq, k, v, mask, TP_NONE, c); /* [B,L,d] */
    const tp_tensor z = inverse(T, a, m->cfg.inverse_per_head);
    const tp_tensor zgv = tp__lra_merge(T, tp_matmul(T, z, tp__lra_split(T, gv, c.heads)));
    return tp_attention(T, q, lk, zgv, TP_NONE, TP_NONE, c);
}
