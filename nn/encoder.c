/* encoder.c - a layer of a transformer encoder: attention and feed-forward network, each with a
 * residual around it, dropout before it is added, and a layer norm. */
#include <tapegrad/nn.h>
#include <tapegrad/tape.h>

void tp_encoder_layer_init(tp_params *P, tp_encoder_layer_m *m, const char *name,
                           tp_encoder_layer_cfg cfg)
{
    if (!tp_params_want_module(P, m, "encoder_layer")) return;
    m->path = tp_push(P, name);
    m->cfg = cfg;
    tp_mha_init(P, &m->attention, "self_attn", cfg.dim, true,
                (tp_attn_cfg){ .heads = cfg.heads, .dropout = cfg.attn_dropout });
    tp_layernorm_init(P, &m->norm1, "self_attn_layer_norm", cfg.dim, 1e-5);
    tp_mlp_init(P, &m->mlp, "fc1", "fc2", cfg.dim, cfg.hidden, cfg.act, cfg.dropout);
    tp_layernorm_init(P, &m->norm2, "final_layer_norm", cfg.dim, 1e-5);
    tp_pop(P);
}

/* x [B,N,dim], mask u8 [B,N] or TP_NONE */
tp_tensor tp_encoder_layer_forward(tp_tape *T, const tp_encoder_layer_m *m, tp_tensor x,
                                   tp_tensor mask)
{
    if (!tp_want_module(T, m, "encoder_layer")) return TP_NONE;
    const bool before = !m->cfg.norm_after;
    tp_enter(T, m->path);
    tp_tensor h = before ? tp_layernorm_forward(T, &m->norm1, x) : x;
    h = tp_mha_forward(T, &m->attention, h, mask);
    x = tp_dropout_add(T, h, TP_NONE, x, m->cfg.dropout);
    if (!before) x = tp_layernorm_forward(T, &m->norm1, x);
    h = before ? tp_layernorm_forward(T, &m->norm2, x) : x;
    x = tp_mlp_forward(T, &m->mlp, h, x);
    return tp_leave(T, before ? x : tp_layernorm_forward(T, &m->norm2, x));
}
