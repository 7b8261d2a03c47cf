/* rel_attention.c - Transformer-XL's relative-position attention over memory and segment.
 *
 *     y[i] = sum_j P[i,j] v[j]      d = i + S - N - j, 0 <= d (< max_span)
 *     P = dropout(softmax_j(scale ((q[i] + r_w) k[j] + (q[i] + r_r) pos[d])))
 *
 * Like tp_attention, saves the inputs, y and the log-sum-exp, and recomputes P in backward. The
 * gradients of pos, r_w and r_r are summed over the batch. */
#include "autograd/ops/attn.h"

TP_KERNEL(rel_attention_fwd);
TP_KERNEL(rel_attention_bwd);
TP_WORK(rel_attention_work);

/* x[i] must be [m,n]. */
static tp_code check_matrix(tp_infer *q, int i, const char *what, int64_t m, int64_t n)
{
    const tp_view *x = &q->x[i];
    if (x->ndim == 2 && x->dim[0] == m && x->dim[1] == n) return TP_OK;
    return tp_fail(q, TP_E_SHAPE, "%s = [%lld,%lld]", what, (long long)m, (long long)n);
}

static tp_code rel_attention_shape(tp_infer *q)
{
    const tp_attn_cfg *cfg = q->attr;
    const int64_t n = q->x[0].dim[1], s = q->x[1].dim[1], width = q->x[0].dim[2];
    tp_code code = tp__attn_infer(q);
    if (code == TP_OK && (cfg->kv_heads != 0 || cfg->alibi || cfg->keys != 0))
        code = tp_fail(q, TP_E_VALUE, "kv_heads, alibi and keys are options of tp_attention");
    if (code == TP_OK && s < n)
        code = tp_fail(q, TP_E_SHAPE,
                       "there must be at least as many keys as queries, not %lld and %lld",
                       (long long)s, (long long)n);
    if (code == TP_OK && cfg->max_span < 0)
        code = tp_fail(q, TP_E_VALUE, "max_span must not be negative");
    if (code == TP_OK) code = check_matrix(q, 3, "pos must be [S,H*D]", s, width);
    for (int i = 4; i < 6 && code == TP_OK; i++)
        code = check_matrix(q, i, "r_w and r_r must be [H,D]", cfg->heads, width / cfg->heads);
    return code;
}

/* q k^T, q pos^T and P v. */
static double rel_attention_macs(const tp_infer *q)
{
    return 3.0 * tp__attn_pairs(q, true) * (double)q->x[0].dim[2];
}

#define INPUTS(B, N, S, H, D)                                                                      \
    TP_DIMS(B, N, H *D), TP_DIMS(B, S, H *D), TP_DIMS(B, S, H *D), TP_DIMS(S, H *D),               \
        TP_DIMS(H, D), TP_DIMS(H, D)
#define CFG(...) TP_ATTR(tp_attn_cfg, .heads = __VA_ARGS__)
static const tp_gradcase rel_attention_cases[] = {
    { "no memory", .in = { INPUTS(2, 4, 4, 2, 3) }, .attr = CFG(2) },
    { "memory", .in = { INPUTS(2, 3, 5, 2, 2) }, .attr = CFG(2) },
    { "one query, a scale", .in = { INPUTS(1, 1, 6, 1, 4) }, .attr = CFG(1, .scale = 0.8) },
    { "limited span", .in = { INPUTS(2, 5, 7, 1, 3) }, .attr = CFG(1, .max_span = 3) },
    { "span of one", .in = { INPUTS(1, 3, 4, 1, 2) }, .attr = CFG(1, .max_span = 1) },
    { "heads of 8, two steps", .in = { INPUTS(2, 3, 35, 1, 8) }, .attr = CFG(1) },
    { "heads of 40", .in = { INPUTS(1, 2, 4, 1, 40) }, .attr = CFG(1) },
    { "dropout", .in = { INPUTS(2, 4, 6, 2, 2) }, .attr = CFG(2, .dropout = 0.3) },
    { "no queries", .in = { INPUTS(1, 0, 3, 2, 2) }, .attr = CFG(2) },
    { 0 },
};
#undef INPUTS
#undef CFG

const tp_op tp_op_rel_attention = {
    .name = "rel_attention",
    .nx = 6,
    .inputs = "q, k, v, pos, r_w, r_r",
    .ny = 2, /* y, and the log-sum-exp for backward */
    .attr_size = sizeof(tp_attn_cfg),
    .doc = "causal attention of packed heads with relative positions (Transformer-XL); tiled",
    .saves = TP_SAVE_X(0) | TP_SAVE_X(1) | TP_SAVE_X(2) | TP_SAVE_X(3) | TP_SAVE_X(4) |
             TP_SAVE_X(5) | TP_SAVE_Y(0) | TP_SAVE_Y(1),
    .flags = TP_RANDOM | TP_COMPUTES,
    .shape = rel_attention_shape,
    .macs = rel_attention_macs,
    .forward = TP_KERNELS(rel_attention_fwd),
    .backward = TP_KERNELS(rel_attention_bwd),
    .work = TP_WORKS(rel_attention_work),
    .cases = rel_attention_cases,
};

tp_tensor tp_rel_attention(tp_tape *T, tp_tensor q, tp_tensor k, tp_tensor v, tp_tensor pos,
                           tp_tensor r_w, tp_tensor r_r, tp_attn_cfg cfg)
{
    return tp_apply(T, &tp_op_rel_attention, &cfg, q, k, v, pos, r_w, r_r);
}
