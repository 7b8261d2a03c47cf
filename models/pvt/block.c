/* block.c - attention and feed-forward network of PVT and PVTv2.
 *
 *     attention   queries of all tokens; keys and values of a smaller map:
 * convolved with kernel and stride R and normalised, or pooled to a fixed size,
 * projected, normalised, GELU mlp         fc1, GELU, fc2; PVTv2: fc1, depthwise
 * 3x3, GELU, fc2 (linear: ReLU after fc1)
 *
 * Tokens are a map [B,H,W,D], so that convolutions can read them. */
#include <tapegrad/pvt.h>

#include "parts.h"

static tp_conv_cfg square(int64_t stride, int64_t pad, int64_t groups)
{
    return (tp_conv_cfg){ { stride, stride }, { pad, pad }, { 1, 1 }, groups };
}

/* [B,H,W,D] -> [B,H*W,D] */
static tp_tensor rows(tp_tape *T, tp_tensor x)
{
    return tp_reshape(T, x, TP_SHAPE(tp_dim(x, 0), tp_dim(x, 1) * tp_dim(x, 2), tp_dim(x, 3)));
}

/* ---- attention ---- */

void tp_pvt_attn_init(tp_params *P, tp_pvt_attn *m, const char *name, const tp_pvt_cfg *cfg,
                      int stage)
{
    if (!tp_params_want_module(P, m, "pvt_attn")) return;
    const int64_t D = cfg->dim[stage], R = cfg->reduction[stage];
    *m = (tp_pvt_attn){ .path = tp_push(P, name), .heads = cfg->heads[stage] };
    if (cfg->kind == TP_PVT2_LINEAR) m->pool = cfg->pool;
    tp_linear_init(P, &m->q, "q", D, D, true);
    tp_linear_init(P, &m->kv, "kv", D, 2 * D, true);
    tp_linear_init(P, &m->proj, "proj", D, D, true);
    if (m->pool > 0 || R > 1) {
        const int64_t kernel = m->pool > 0 ? 1 : R;
        tp_conv2d_init(P, &m->sr, "sr", D, D, kernel, true, square(kernel, 0, 1));
        tp_layernorm_init(P, &m->norm, "norm", D, 1e-5);
    }
    tp_pop(P);
}

/* The tokens that keys and values come from, [B,S,D]. */
static tp_tensor reduced(tp_tape *T, const tp_pvt_attn *m, tp_tensor x)
{
    if (!tp_given(m->sr.weight)) return rows(T, x);
    if (m->pool > 0) x = tp_adaptive_avg_pool2d(T, x, m->pool, m->pool);
    const tp_tensor y = tp_layernorm_forward(T, &m->norm, rows(T, tp_conv2d_forward(T, &m->sr, x)));
    return m->pool > 0 ? tp_gelu(T, y) : y;
}

tp_tensor tp_pvt_attn_forward(tp_tape *T, const tp_pvt_attn *m, tp_tensor x, tp_tensor residual)
{
    if (!tp_want_module(T, m, "pvt_attn")) return TP_NONE;
    const tp_attn_cfg cfg = { .heads = m->heads };
    tp_enter(T, m->path);
    const tp_tensor q = tp_linear_forward(T, &m->q, rows(T, x)), z = reduced(T, m, x);
    const tp_tensor k = tp__project(T, &m->kv, z, 0, 2), v = tp__project(T, &m->kv, z, 1, 2);
    const tp_tensor y = tp_attention(T, q, k, v, TP_NONE, TP_NONE, cfg);
    const tp_tensor map = tp_reshape(T, y, tp_shape_of(x));
    return tp_leave(T, tp__linear_add(T, &m->proj, map, residual, 0.0));
}

/* ---- block ---- */

void tp_pvt_block_init(tp_params *P, tp_pvt_block *m, const char *name, const tp_pvt_cfg *cfg,
                       int stage, double drop_path)
{
    if (!tp_params_want_module(P, m, "pvt_block")) return;
    const int64_t D = cfg->dim[stage], wide = cfg->mlp_ratio[stage] * D;
    *m = (tp_pvt_block){ .path = tp_push(P, name),
                         .kind = cfg->kind,
                         .drop_path = drop_path,
                         .recompute = cfg->recompute };
    tp_layernorm_init(P, &m->norm1, "norm1", D, 1e-6);
    tp_pvt_attn_init(P, &m->attn, "attn", cfg, stage);
    tp_layernorm_init(P, &m->norm2, "norm2", D, 1e-6);
    tp_mlp_init(P, &m->mlp, "mlp.fc1", "mlp.fc2", D, wide, TP_ACT_GELU, 0.0);
    if (cfg->kind != TP_PVT)
        tp_conv2d_init(P, &m->dwconv, "mlp.dwconv.dwconv", wide, wide, 3, true, square(1, 1, wide));
    tp_pop(P);
}

/* x + attn(norm1(x)) */
static tp_tensor attend(tp_tape *T, const void *self, tp_tensor x)
{
    const tp_pvt_block *m = self;
    const tp_tensor u = tp_layernorm_forward(T, &m->norm1, x);
    const tp_tensor to = tp__residual(T, x, m->drop_path);
    return tp__add_branch(T, x, tp_pvt_attn_forward(T, &m->attn, u, to), m->drop_path);
}

/* x + mlp(norm2(x)) with the depthwise convolution. */
static tp_tensor convolved_mlp(tp_tape *T, const tp_pvt_block *m, tp_tensor x)
{
    const tp_act act = m->kind == TP_PVT2_LINEAR ? TP_ACT_RELU : TP_ACT_NONE;
    const tp_tensor u = tp_layernorm_forward(T, &m->norm2, x);
    const tp_tensor wide = tp_conv2d_forward(T, &m->dwconv, tp_linear_act(T, &m->mlp.fc1, u, act));
    const tp_tensor to = tp__residual(T, x, m->drop_path);
    return tp__add_branch(T, x, tp__linear_add(T, &m->mlp.fc2, tp_gelu(T, wide), to, 0.0),
                          m->drop_path);
}

static tp_tensor run_block(tp_tape *T, const void *self, tp_tensor x)
{
    const tp_pvt_block *m = self;
    tp_enter(T, m->path);
    x = m->recompute == TP_RECOMPUTE_ATTENTION ? tp_checkpoint(T, attend, m, x) : attend(T, m, x);
    return tp_leave(T, m->kind == TP_PVT ? tp__feed_forward(T, &m->norm2, &m->mlp, x, m->drop_path)
                                         : convolved_mlp(T, m, x));
}

tp_tensor tp_pvt_block_forward(tp_tape *T, const tp_pvt_block *m, tp_tensor x)
{
    if (!tp_want_module(T, m, "pvt_block")) return TP_NONE;
    if (tp_ok(T) && tp_ndim(x) != 4)
        return tp_raise(T, TP_E_SHAPE, "x must be a map [batch,height,width,channels]");
    return m->recompute == TP_RECOMPUTE_BLOCK ? tp_checkpoint(T, run_block, m, x)
                                              : run_block(T, m, x);
}
