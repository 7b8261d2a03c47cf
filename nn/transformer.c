/* transformer.c - transformer encoder and decoder layers: attention and a feed-forward network,
 * each with a residual, dropout before the sum, and a norm. A decoder layer is an encoder layer
 * with cross-attention in between. */
#include <tapegrad/nn.h>
#include <tapegrad/tape.h>

/* RMS norms have no bias. */
static void norm_init(tp_params *P, tp_layernorm_m *m, const char *name,
                      const tp_encoder_layer_cfg *cfg)
{
    const double eps = cfg->eps > 0 ? cfg->eps : 1e-5;
    tp_rmsnorm_m r;
    if (!cfg->rms) {
        tp_layernorm_init(P, m, name, cfg->dim, eps);
        return;
    }
    tp_rmsnorm_init(P, &r, name, cfg->dim, eps);
    *m = (tp_layernorm_m){ r.path, r.weight, TP_NONE, r.eps };
}

static tp_tensor norm(tp_tape *T, const tp_encoder_layer_cfg *cfg, const tp_layernorm_m *m,
                      tp_tensor x)
{
    const tp_rmsnorm_m r = { m->path, m->weight, m->eps };
    return cfg->rms ? tp_rmsnorm_forward(T, &r, x) : tp_layernorm_forward(T, m, x);
}

/* Returns a part's input: x, normalised unless norms follow the sums. */
static tp_tensor before(tp_tape *T, const tp_encoder_layer_cfg *cfg, const tp_layernorm_m *m,
                        tp_tensor x)
{
    return cfg->norm_after ? x : norm(T, cfg, m, x);
}

/* Adds a part's result h to x. */
static tp_tensor after(tp_tape *T, const tp_encoder_layer_cfg *cfg, const tp_layernorm_m *m,
                       tp_tensor h, tp_tensor x)
{
    x = tp_dropout_add(T, h, TP_NONE, x, cfg->dropout);
    return cfg->norm_after ? norm(T, cfg, m, x) : x;
}

static void parts_init(tp_params *P, tp_encoder_layer_m *m, const tp_encoder_layer_cfg *cfg)
{
    tp_mha_cfg attention = cfg->attention;
    attention.attn.heads = cfg->heads;
    attention.attn.dropout = cfg->attn_dropout;
    m->cfg = *cfg;
    tp_mha_init(P, &m->attention, "self_attn", cfg->dim, !cfg->bias_free, attention);
    norm_init(P, &m->norm1, "self_attn_layer_norm", cfg);
    if (cfg->gated)
        tp_glu_mlp_init(P, &m->glu, NULL, cfg->dim, cfg->hidden, !cfg->bias_free, cfg->kind,
                        cfg->dropout);
    else
        tp_mlp_init(P, &m->mlp, "fc1", "fc2", cfg->dim, cfg->hidden, cfg->act, cfg->dropout);
    norm_init(P, &m->norm2, "final_layer_norm", cfg);
}

/* cache: NULL, or the tokens before x. */
static tp_tensor attend(tp_tape *T, const tp_encoder_layer_m *m, tp_kv_cache *cache, tp_tensor x,
                        tp_tensor mask)
{
    tp_tensor h = before(T, &m->cfg, &m->norm1, x);
    h = cache ? tp_mha_decode(T, &m->attention, cache, h, mask)
              : tp_mha_forward(T, &m->attention, h, mask);
    return after(T, &m->cfg, &m->norm1, h, x);
}

static tp_tensor feed(tp_tape *T, const tp_encoder_layer_m *m, tp_tensor x)
{
    const tp_tensor h = before(T, &m->cfg, &m->norm2, x);
    x = m->cfg.gated ? tp_glu_mlp_forward(T, &m->glu, h, x) : tp_mlp_forward(T, &m->mlp, h, x);
    return m->cfg.norm_after ? norm(T, &m->cfg, &m->norm2, x) : x;
}

/* ---- encoder ---- */

void tp_encoder_layer_init(tp_params *P, tp_encoder_layer_m *m, const char *name,
                           tp_encoder_layer_cfg cfg)
{
    if (!tp_params_want_module(P, m, "encoder_layer")) return;
    *m = (tp_encoder_layer_m){ .path = tp_push(P, name) };
    parts_init(P, m, &cfg);
    tp_pop(P);
}

tp_tensor tp_encoder_layer_forward(tp_tape *T, const tp_encoder_layer_m *m, tp_tensor x,
                                   tp_tensor mask)
{
    if (!tp_want_module(T, m, "encoder_layer")) return TP_NONE;
    tp_enter(T, m->path);
    return tp_leave(T, feed(T, m, attend(T, m, NULL, x, mask)));
}

tp_tensor tp_encoder_layer_decode(tp_tape *T, const tp_encoder_layer_m *m, tp_kv_cache *cache,
                                  tp_tensor x, tp_tensor mask)
{
    if (!tp_want_module(T, m, "encoder_layer") || !tp_want(T, cache, "encoder_layer", "a cache"))
        return TP_NONE;
    tp_enter(T, m->path);
    if (!m->cfg.attention.attn.causal)
        return tp_leave(T, tp_raise_here(T, TP_E_STATE,
                                         "encoder_layer: only a causal layer can decode; set "
                                         "attention.attn.causal"));
    return tp_leave(T, feed(T, m, attend(T, m, cache, x, mask)));
}

/* ---- decoder ---- */

void tp_decoder_layer_init(tp_params *P, tp_decoder_layer_m *m, const char *name,
                           tp_decoder_layer_cfg cfg)
{
    if (!tp_params_want_module(P, m, "decoder_layer")) return;
    const tp_mha_cfg cross = {
        .attn = { .heads = cfg.heads,
                  .kv_heads = cfg.attention.attn.kv_heads,
                  .scale = cfg.attention.attn.scale,
                  .dropout = cfg.attn_dropout },
        .memory = cfg.memory,
        .qk_norm = cfg.attention.qk_norm,
    };
    cfg.attention.attn.causal = true;
    *m = (tp_decoder_layer_m){ .layer = { .path = tp_push(P, name) } };
    parts_init(P, &m->layer, &cfg);
    tp_mha_init(P, &m->cross, "encoder_attn", cfg.dim, !cfg.bias_free, cross);
    norm_init(P, &m->norm, "encoder_attn_layer_norm", &cfg);
    tp_pop(P);
}

static tp_tensor cross(tp_tape *T, const tp_decoder_layer_m *m, tp_kv_cache *cache, tp_tensor x,
                       tp_tensor memory, tp_tensor mask)
{
    tp_tensor h = before(T, &m->layer.cfg, &m->norm, x);
    h = cache ? tp_mha_cross_decode(T, &m->cross, cache, h, memory, mask)
              : tp_mha_cross(T, &m->cross, h, memory, mask);
    return after(T, &m->layer.cfg, &m->norm, h, x);
}

tp_tensor tp_decoder_layer_forward(tp_tape *T, const tp_decoder_layer_m *m, tp_tensor x,
                                   tp_tensor memory, tp_tensor mask, tp_tensor memory_mask)
{
    if (!tp_want_module(T, m, "decoder_layer")) return TP_NONE;
    tp_enter(T, m->layer.path);
    x = attend(T, &m->layer, NULL, x, mask);
    x = cross(T, m, NULL, x, memory, memory_mask);
    return tp_leave(T, feed(T, &m->layer, x));
}

tp_tensor tp_decoder_layer_decode(tp_tape *T, const tp_decoder_layer_m *m, tp_decoder_cache *cache,
                                  tp_tensor x, tp_tensor memory, tp_tensor memory_mask)
{
    if (!tp_want_module(T, m, "decoder_layer") || !tp_want(T, cache, "decoder_layer", "a cache"))
        return TP_NONE;
    tp_enter(T, m->layer.path);
    if (cache->own.filled == 0) cache->memory.filled = 0; /* new texts, new memory */
    x = attend(T, &m->layer, &cache->own, x, TP_NONE);
    x = cross(T, m, &cache->memory, x, memory, memory_mask);
    return tp_leave(T, feed(T, &m->layer, x));
}
