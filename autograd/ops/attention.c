/* attention.c - scaled dot-product attention of packed heads.
 *
 *     y[i] = sum_j P[i,j] v[j]      P = dropout(softmax_j(scale q[i] k[j] + bias[i,j]))
 *
 * The sum is over the keys j that query i sees. Grouped heads share k and v; ALiBi's bias is -slope
 * |i + S - N - j|. Backward reads the inputs, y and each row's log-sum-exp, and recomputes P:
 * nothing of size N * S is stored. */
#include "autograd/ops/attn.h"

TP_KERNEL(attention_fwd);
TP_KERNEL(attention_bwd);
TP_WORK(attention_work);

static tp_code check_mask(tp_infer *q)
{
    const tp_view *k = &q->x[1], *mask = &q->x[3];
    const int64_t keys = tp__attn_keys(k, q->attr);
    if (mask->ndim == 2 && mask->dim[0] == k->dim[0] && mask->dim[1] == keys) return TP_OK;
    return tp_fail(q, TP_E_SHAPE, "mask must be u8[B,S] = u8[%lld,%lld]", (long long)k->dim[0],
                   (long long)keys);
}

static tp_code check_bias(tp_infer *q)
{
    const tp_attn_cfg *cfg = q->attr;
    const tp_view *bias = &q->x[4];
    const int64_t want[4] = { q->x[0].dim[0], cfg->heads, q->x[0].dim[1],
                              tp__attn_keys(&q->x[1], cfg) };
    bool fits = bias->ndim == 3 || bias->ndim == 4;
    for (int i = 1; fits && i <= bias->ndim; i++) fits = bias->dim[bias->ndim - i] == want[4 - i];
    if (bias->ndim == 1 && bias->dim[0] == cfg->heads && cfg->alibi)
        return tp_fail(q, TP_E_VALUE, "give the slopes [H] or set alibi, not both");
    if (!fits && !(bias->ndim == 1 && bias->dim[0] == cfg->heads))
        return tp_fail(q, TP_E_SHAPE,
                       "bias must be [H,N,S] or [B,H,N,S] = [%lld,%lld,%lld,%lld], or slopes [H]",
                       (long long)want[0], (long long)want[1], (long long)want[2],
                       (long long)want[3]);
    return TP_OK;
}

static tp_code attention_shape(tp_infer *q)
{
    const tp_attn_cfg *cfg = q->attr;
    tp_code code = tp__attn_infer(q);
    if (code == TP_OK && cfg->max_span != 0)
        code = tp_fail(q, TP_E_VALUE, "max_span is an option of tp_rel_attention");
    if (code == TP_OK && (cfg->keys < 0 || cfg->keys > q->x[1].dim[1]))
        code = tp_fail(q, TP_E_VALUE, "keys must be in [0,%lld], not %lld",
                       (long long)q->x[1].dim[1], (long long)cfg->keys);
    if (code == TP_OK && !tp_absent(&q->x[3])) code = check_mask(q);
    if (code == TP_OK && !tp_absent(&q->x[4])) code = check_bias(q);
    return code;
}

/* q k^T and P v. */
static double attention_macs(const tp_infer *q)
{
    return 2.0 * tp__attn_pairs(q, false) * (double)q->x[0].dim[2];
}

/* Masks for the cases: every third key is masked. In the case with seven keys, the batch's second
 * row sees no key at all. */
static void fill_mask(int i, tp_view *x)
{
    if (i != 3) return;
    for (int64_t e = 0; e < x->numel; e++) tp_st(x, e, x->dim[1] == 7 && e >= 7 ? 0.0 : e % 3 != 1);
}

#define QKV(B, N, S, C)        TP_DIMS(B, N, C), TP_DIMS(B, S, C), TP_DIMS(B, S, C)
#define GROUPED(B, N, S, C, G) TP_DIMS(B, N, C), TP_DIMS(B, S, G), TP_DIMS(B, S, G)
#define CFG(...)               TP_ATTR(tp_attn_cfg, .heads = __VA_ARGS__)
static const tp_gradcase attention_cases[] = {
    { "plain", .in = { QKV(2, 3, 4, 6) }, .attr = CFG(2) },
    { "one head of 5, a scale", .in = { QKV(1, 4, 4, 5) }, .attr = CFG(1, .scale = 0.7) },
    { "causal", .in = { QKV(1, 5, 5, 4) }, .attr = CFG(2, .causal = true) },
    { "causal, more keys", .in = { QKV(2, 3, 5, 2) }, .attr = CFG(2, .causal = true) },
    { "causal, blind queries", .in = { QKV(1, 5, 3, 4) }, .attr = CFG(2, .causal = true) },
    { "mask", .in = { QKV(2, 3, 5, 4), TP_DIMS(2, 5) }, .attr = CFG(2), .masks = 1 << 3,
      .fill = fill_mask },
    { "mask, a blind row", .in = { QKV(2, 2, 7, 4), TP_DIMS(2, 7) }, .attr = CFG(1),
      .masks = 1 << 3, .fill = fill_mask },
    { "bias of all", .in = { QKV(3, 3, 4, 4), { 0 }, TP_DIMS(2, 3, 4) }, .attr = CFG(2) },
    { "bias of each, causal", .in = { QKV(2, 3, 4, 4), { 0 }, TP_DIMS(2, 2, 3, 4) },
      .attr = CFG(2, .causal = true) },
    { "mask and bias", .in = { QKV(2, 2, 4, 3), TP_DIMS(2, 4), TP_DIMS(1, 2, 4) }, .attr = CFG(1),
      .masks = 1 << 3, .fill = fill_mask },
    { "dropout", .in = { QKV(2, 4, 6, 4) }, .attr = CFG(2, .dropout = 0.4) },
    { "all", .in = { QKV(2, 4, 5, 4), TP_DIMS(2, 5), TP_DIMS(2, 4, 5) },
      .attr = CFG(2, .causal = true, .dropout = 0.3), .masks = 1 << 3, .fill = fill_mask },
    { "grouped heads", .in = { GROUPED(2, 3, 4, 12, 6) }, .attr = CFG(4, .kv_heads = 2) },
    { "one head for all, causal", .in = { GROUPED(2, 5, 5, 12, 3) },
      .attr = CFG(4, .causal = true, .kv_heads = 1) },
    { "grouped, several tiles", .in = { GROUPED(1, 70, 67, 4, 2) }, .attr = CFG(2, .kv_heads = 1) },
    { "grouped, padded tiles", .in = { GROUPED(1, 35, 40, 32, 16) },
      .attr = CFG(4, .causal = true, .kv_heads = 2) },
    { "grouped, mask, bias, dropout",
      .in = { GROUPED(2, 3, 5, 8, 4), TP_DIMS(2, 5), TP_DIMS(4, 3, 5) },
      .attr = CFG(4, .kv_heads = 2, .dropout = 0.3), .masks = 1 << 3, .fill = fill_mask },
    { "alibi", .in = { QKV(2, 3, 5, 6) }, .attr = CFG(3, .causal = true, .alibi = true) },
    { "alibi, both directions", .in = { QKV(2, 4, 4, 16) }, .attr = CFG(2, .alibi = true) },
    { "slopes", .in = { GROUPED(3, 5, 4, 8, 4), { 0 }, TP_DIMS(4) },
      .attr = CFG(4, .causal = true, .kv_heads = 2) },
    { "slopes, several tiles", .in = { QKV(2, 70, 70, 2), { 0 }, TP_DIMS(1) }, .attr = CFG(1) },
    { "first keys of a cache", .in = { GROUPED(2, 3, 9, 16, 8), TP_DIMS(2, 5) },
      .attr = CFG(2, .causal = true, .kv_heads = 1, .alibi = true, .keys = 5), .masks = 1 << 3,
      .fill = fill_mask },
    { "one query, a long cache", .in = { QKV(2, 1, 150, 8) },
      .attr = CFG(1, .causal = true, .keys = 67) },
    { "no keys", .in = { QKV(2, 3, 0, 4) }, .attr = CFG(2) },
    { 0 },
};
#undef QKV
#undef GROUPED
#undef CFG

const tp_op tp_op_attention = {
    .name = "attention",
    .nx = 5,
    .inputs = "q, k, v, mask, bias",
    .takes = { [3] = TP_MASKS },
    .ny = 2, /* y, and the log-sum-exp for backward */
    .attr_size = sizeof(tp_attn_cfg),
    .doc = "softmax(scale q k^T + bias) v for packed heads, causal or masked; tiled",
    .saves = TP_SAVE_X(0) | TP_SAVE_X(1) | TP_SAVE_X(2) | TP_SAVE_X(3) | TP_SAVE_X(4) |
             TP_SAVE_Y(0) | TP_SAVE_Y(1),
    .optional = 1u << 3 | 1u << 4,
    .flags = TP_RANDOM | TP_COMPUTES,
    .shape = attention_shape,
    .macs = attention_macs,
    .forward = TP_KERNELS(attention_fwd),
    .backward = TP_KERNELS(attention_bwd),
    .work = TP_WORKS(attention_work),
    .cases = attention_cases,
};

tp_tensor tp_attention(tp_tape *T, tp_tensor q, tp_tensor k, tp_tensor v, tp_tensor mask,
                       tp_tensor bias, tp_attn_cfg cfg)
{
    return tp_apply(T, &tp_op_attention, &cfg, q, k, v, mask, bias);
}
