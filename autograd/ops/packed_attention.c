/* packed_attention.c - attention within each of several documents stored back to back.
 *
 * Per document, the kernels compute tp_attention on slices of the tensors. The hidden log-sum-exp
 * holds each document's [H,N] in turn. */
#include "autograd/ops/attn.h"
#include "autograd/ops/packing.h"

TP_KERNEL(packed_attention_fwd);
TP_KERNEL(packed_attention_bwd);
TP_WORK(packed_attention_work);

/* Checks q, k and v as one document. */
static tp_code check_rows(tp_infer *q)
{
    tp_view x[3];
    tp_infer one = *q;
    for (int i = 0; i < 3; i++) {
        if (q->x[i].ndim != 2)
            return tp_fail(q, TP_E_SHAPE, "q must be [Mq,H*D], k and v [Mk,G*D]");
        x[i] = q->x[i];
        x[i].ndim = 3;
        x[i].dim[0] = 1;
        x[i].dim[1] = q->x[i].dim[0];
        x[i].dim[2] = q->x[i].dim[1];
    }
    one.x = x;
    return tp__attn_infer(&one);
}

static tp_code packed_shape(tp_infer *q)
{
    const tp_packed_attn *a = q->attr;
    const tp_view *x = q->x;
    tp_code code = check_rows(q);
    if (code != TP_OK) return code;
    if (a->cfg.max_span != 0 || a->cfg.keys != 0)
        return tp_fail(q, TP_E_VALUE, "max_span and keys must be 0 for packed documents");
    code = tp__expect_packing(q, PACKED_OF_Q, "of_q.offset", x[0].dim[0], a->queries);
    if (code == TP_OK)
        code = tp__expect_packing(q, PACKED_OF_K, "of_k.offset", x[1].dim[0], a->keys);
    if (code == TP_OK && x[PACKED_OF_Q].dim[0] != x[PACKED_OF_K].dim[0])
        code =
            tp_fail(q, TP_E_SHAPE, "q has %lld documents, k has %lld",
                    (long long)(x[PACKED_OF_Q].dim[0] - 1), (long long)(x[PACKED_OF_K].dim[0] - 1));
    q->y[0] = x[0];
    q->y[1] = (tp_view){ .dtype = tp__sum_dtype(x[0].dtype),
                         .ndim = 1,
                         .dim = { x[0].dim[0] * a->cfg.heads } };
    return code;
}

/* Query-key pairs as if lengths, which are data, were equal: fewer than real. */
static double packed_macs(const tp_infer *q)
{
    const tp_packed_attn *a = q->attr;
    const int64_t n = q->x[PACKED_OF_Q].dim[0] - 1;
    const double pairs = n > 0 ? (double)q->x[0].dim[0] * (double)q->x[1].dim[0] / (double)n : 0.0;
    return 2.0 * (a->cfg.causal ? 0.5 : 1.0) * pairs * (double)q->x[0].dim[1];
}

/* Cases have 17 queries and 17 keys in five documents, two of which have unequal numbers of queries
 * and keys, or 150 of both in two documents. */
static void fill_offsets(int i, tp_view *x)
{
    if (i != PACKED_OF_Q && i != PACKED_OF_K) return;
    const int64_t n = x->dim[0] - 1;
    tp__fill_offsets(x, n == 5 ? 17 : n == 2 ? 150 : 0);
    if (i == PACKED_OF_K && n == 5) tp_st(x, 3, 6.0);
    if (n == 2) tp_st(x, 1, 70.0);
}

#define IN(Mq, Mk, C, G, n)                                                                        \
    TP_LIST(TP_DIMS(Mq, C), TP_DIMS(Mk, G), TP_DIMS(Mk, G), TP_DIMS(n + 1), TP_DIMS(n + 1))
#define FILL              .below = { 0, 0, 0, 1, 1 }, .fill = fill_offsets
#define CFG(longest, ...) TP_ATTR(tp_packed_attn, { .heads = __VA_ARGS__ }, longest, longest)
static const tp_gradcase packed_cases[] = {
    { "five documents", .in = IN(17, 17, 6, 6, 5), FILL, .attr = CFG(7, 2) },
    { "causal, a looser bound", .in = IN(17, 17, 4, 4, 5), FILL,
      .attr = CFG(30, 2, .causal = true) },
    { "grouped heads, a scale", .in = IN(17, 17, 8, 4, 5), FILL,
      .attr = CFG(8, 4, .kv_heads = 2, .scale = 0.7) },
    { "alibi", .in = IN(17, 17, 6, 6, 5), FILL, .attr = CFG(7, 3, .causal = true, .alibi = true) },
    { "dropout", .in = IN(17, 17, 4, 4, 5), FILL, .attr = CFG(7, 2, .dropout = 0.4) },
    { "several tiles", .in = IN(150, 150, 4, 4, 2), FILL, .attr = CFG(80, 1) },
    { "no documents", .in = IN(0, 0, 4, 4, 0), FILL, .attr = CFG(0, 2) },
    { 0 },
};
#undef IN
#undef CFG

const tp_op tp_op_packed_attention = {
    .name = "packed_attention",
    .nx = 5,
    .inputs = "q, k, v, of_q.offset, of_k.offset",
    .takes = { [PACKED_OF_Q] = TP_INDICES, [PACKED_OF_K] = TP_INDICES },
    .ny = 2, /* y, and the log-sum-exp for backward */
    .attr_size = sizeof(tp_packed_attn),
    .doc = "attention within each packed document, without padding; tiled",
    .saves = 31u | TP_SAVE_Y(0) | TP_SAVE_Y(1),
    .flags = TP_RANDOM | TP_COMPUTES,
    .shape = packed_shape,
    .macs = packed_macs,
    .forward = TP_KERNELS(packed_attention_fwd),
    .backward = TP_KERNELS(packed_attention_bwd),
    .work = TP_WORKS(packed_attention_work),
    .cases = packed_cases,
};

tp_tensor tp_packed_attention(tp_tape *T, tp_tensor q, tp_tensor k, tp_tensor v, tp_packed of_q,
                              tp_packed of_k, tp_attn_cfg cfg)
{
    const tp_packed_attn a = { cfg, of_q.longest, of_k.longest };
    return tp_apply(T, &tp_op_packed_attention, &a, q, k, v, of_q.offset, of_k.offset);
}
