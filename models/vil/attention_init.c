/* attention_init.c - the parameters of Vision Longformer's attentions. */
#include <math.h>

#include "inner.h"

static int64_t table_rows(const tp_vil_attn *m)
{
    const int64_t w = m->stage.feature, half = w / 2;
    if (m->kind == TP_VIL_FULL) return (2 * m->map[0] - 1) * (2 * m->map[1] - 1);
    if (m->kind != TP_VIL_LS) return (4 * w - 1) * (4 * w - 1);
    if (m->distinct_bias) return (2 * (w + half) - 1) * (2 * (w + half) - 1);
    return 2 * (w + half - 1) * (2 * half + w + 1) + 1;
}

static void init_bias(tp_params *P, tp_vil_attn *m)
{
    const tp_init normal = { TP_INIT_NORMAL, 0.02, 0.0 };
    const int64_t H = m->stage.heads, g = m->stage.global;
    const bool local = m->kind == TP_VIL_WINDOW || m->kind == TP_VIL_GLOBAL;

    if (m->kind == TP_VIL_LS && m->stage.feature == 0) return;
    if (!local && m->kind != TP_VIL_FULL && m->kind != TP_VIL_LS) return;
    m->table = tp_param(P, TP_VIL_TABLE, TP_SHAPE(table_rows(m), H), normal, 0);
    if (g == 0 || m->kind == TP_VIL_LS) return;
    m->g2l = tp_param(P, "g2l_relative_position_bias", TP_SHAPE(2, H, g), normal, 0);
    m->g2g = tp_param(P, "g2g_relative_position_bias", TP_SHAPE(H, g, g), normal, 0);
}

/* Declares a projection of global queries: its own parameters, or aliases of the local one's. */
static void init_global(tp_params *P, tp_linear_m *m, const char *name, const tp_linear_m *same,
                        bool own)
{
    const int64_t out = tp_dim(same->weight, 0), in = tp_dim(same->weight, 1);
    if (own) {
        tp_linear_init(P, m, name, in, out, tp_given(same->bias));
        return;
    }
    *m = *same;
    tp_push(P, name);
    tp_tie(P, "weight", same->weight);
    if (tp_given(same->bias)) tp_tie(P, "bias", same->bias);
    tp_pop(P);
}

static void init_linformer(tp_params *P, tp_vil_attn *m, bool separate)
{
    const int64_t tokens = m->stage.global + m->map[0] * m->map[1], K = m->stage.feature;
    const tp_init uniform = { TP_INIT_UNIFORM, 1.0 / sqrt((double)K), 0.0 };
    m->proj_k = tp_param(P, "proj_k", TP_SHAPE(tokens, K), uniform, 0);
    m->proj_v = m->proj_k;
    if (separate)
        m->proj_v = tp_param(P, "proj_v", TP_SHAPE(tokens, K), uniform, 0);
    else
        tp_tie(P, "proj_v", m->proj_k);
}

static void init_kind(tp_params *P, tp_vil_attn *m, const tp_vil_cfg *cfg)
{
    const int64_t d = m->stage.dim, H = m->stage.heads, R = m->stage.feature;
    switch (m->kind) {
    case TP_VIL_LINFORMER: init_linformer(P, m, cfg->separate_kv); break;
    case TP_VIL_SRA:
        tp_conv2d_init(P, &m->proj_sr, "proj_sr", d, d, R, false,
                       (tp_conv_cfg){ .stride = { R, R } });
        break;
    case TP_VIL_PERFORMER:
        m->features = tp_param(P, "fast_attention.projection_matrix", TP_SHAPE(R, d / H),
                               (tp_init){ TP_INIT_NORMAL, 1.0, 0.0 }, TP_BUFFER);
        break;
    case TP_VIL_LS:
        if (m->stage.rank > 0)
            tp_linear_init(P, &m->dynamic, "to_dynamic_projection", d, H * m->stage.rank, true);
        tp_layernorm_init(P, &m->ln_dp, "dual_ln_dp", d, 1e-5);
        tp_layernorm_init(P, &m->ln_full, "dual_ln_full", d, 1e-5);
        break;
    default: break;
    }
}

void tp_vil_attn_init(tp_params *P, tp_vil_attn *m, const char *name, const tp_vil_cfg *cfg,
                      int stage)
{
    if (!tp_params_want_module(P, m, "vil_attn")) return;
    const int64_t d = cfg->stage[stage].dim;
    const bool bias = !cfg->linear_qkv;

    *m = (tp_vil_attn){ .path = tp_push(P, name),
                        .kind = cfg->stage[stage].dense ? TP_VIL_FULL : cfg->kind,
                        .stage = cfg->stage[stage],
                        .edge = cfg->edge,
                        .shift = cfg->shift,
                        .mask_wrapped = cfg->mask_wrapped,
                        .separate_global = cfg->separate_global,
                        .distinct_bias = cfg->distinct_bias };
    tp__vil_map(cfg, stage, m->map);
    const bool whole =
        m->kind == TP_VIL_FULL || m->kind == TP_VIL_PERFORMER || m->kind == TP_VIL_LS;
    const bool windows = m->kind == TP_VIL_WINDOW || m->kind == TP_VIL_GLOBAL;

    if (!m->stage.absolute) init_bias(P, m);
    if (whole) {
        tp_linear_init(P, &m->qkv, "qkv", d, 3 * d, bias);
    } else {
        tp_linear_init(P, &m->query, "query", d, d, bias);
        tp_linear_init(P, &m->kv, "kv", d, 2 * d, bias);
    }
    tp_linear_init(P, &m->proj, "proj", d, d, true);
    if (windows && m->stage.global > 0) {
        init_global(P, &m->query_global, "query_global", &m->query, m->separate_global);
        init_global(P, &m->kv_global, "kv_global", &m->kv, m->separate_global);
        init_global(P, &m->proj_global, "proj_global", &m->proj, m->separate_global);
    }
    init_kind(P, m, cfg);
    tp_pop(P);
}
