/* mha.c - multi-head self-attention: four projections around tp_attention, heads packed in the last
 * axis throughout, so that nothing is permuted. */
#include <tapegrad/nn.h>
#include <tapegrad/tape.h>

void tp_mha_init(tp_params *P, tp_mha_m *m, const char *name, int64_t dim, bool bias,
                 tp_attn_cfg cfg)
{
    if (!tp_params_want_module(P, m, "mha")) return;
    m->path = tp_push(P, name);
    tp_linear_init(P, &m->q, "q_proj", dim, dim, bias);
    tp_linear_init(P, &m->k, "k_proj", dim, dim, bias);
    tp_linear_init(P, &m->v, "v_proj", dim, dim, bias);
    tp_linear_init(P, &m->out, "out_proj", dim, dim, bias);
    m->cfg = cfg;
    tp_pop(P);
}

/* x [B,N,dim], mask u8 [B,N] or TP_NONE */
tp_tensor tp_mha_forward(tp_tape *T, const tp_mha_m *m, tp_tensor x, tp_tensor mask)
{
    if (!tp_want_module(T, m, "mha")) return TP_NONE;
    tp_enter(T, m->path);
    const tp_tensor q = tp_linear_forward(T, &m->q, x);
    const tp_tensor k = tp_linear_forward(T, &m->k, x);
    const tp_tensor v = tp_linear_forward(T, &m->v, x);
    const tp_tensor y = tp_attention(T, q, k, v, mask, TP_NONE, m->cfg);
    return tp_leave(T, tp_linear_forward(T, &m->out, y));
}
