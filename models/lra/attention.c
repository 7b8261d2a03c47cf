/* attention.c - the parameters of all attentions, and those that attend to projected queries, keys and
 * values. The others: ls_attention.c, nystrom.c, kernels.c. */
#include <math.h>

#include "inner.h"

/* ---- pieces ---- */

tp_tensor tp__lra_hide(tp_tape *T, tp_tensor x, tp_tensor mask)
{
    if (!tp_given(mask)) return x;
    return tp_masked_fill(T, x, tp_logical_not(T, tp_unsqueeze(T, mask, -1)), 0.0);
}

tp_tensor tp__lra_split(tp_tape *T, tp_tensor x, int heads)
{
    const int64_t B = tp_dim(x, 0), n = tp_dim(x, 1), D = tp_dim(x, 2) / heads;
    return tp_permute(T, tp_reshape(T, x, TP_SHAPE(B, n, heads, D)), TP_SHAPE(0, 2, 1, 3));
}

tp_tensor tp__lra_merge(tp_tape *T, tp_tensor x)
{
    const tp_shape s = TP_SHAPE(tp_dim(x, 0), tp_dim(x, 2), tp_dim(x, 1) * tp_dim(x, 3));
    return tp_reshape(T, tp_permute(T, x, TP_SHAPE(0, 2, 1, 3)), s);
}

/* As products [k,n] [n,B D] of each head: the mixtures are not repeated for each sample. */
tp_tensor tp__lra_mix(tp_tape *T, tp_tensor mix, tp_tensor x)
{
    const int64_t h = tp_dim(mix, 0), k = tp_dim(mix, 1);
    const int64_t B = tp_dim(x, 0), n = tp_dim(x, 1), D = tp_dim(x, 2) / h;
    tp_tensor y = tp_permute(T, tp_reshape(T, x, TP_SHAPE(B, n, h, D)), TP_SHAPE(2, 1, 0, 3));
    y = tp_matmul(T, tp_cast(T, mix, tp_dtype_of(x)), tp_reshape(T, y, TP_SHAPE(h, n, B * D)));
    y = tp_permute(T, tp_reshape(T, y, TP_SHAPE(h, k, B, D)), TP_SHAPE(2, 1, 0, 3));
    return tp_reshape(T, y, TP_SHAPE(B, k, h * D));
}

tp_tensor tp__lra_convolve(tp_tape *T, const tp_lra_attn *m, tp_tensor y, tp_tensor v,
                           tp_tensor mask)
{
    if (!tp_given(m->conv)) return y;
    const int64_t h = m->cfg.heads, D = m->cfg.dim / h, K = m->cfg.conv;
    tp_tensor w = tp_reshape(T, m->conv, TP_SHAPE(h, 1, 1, K));
    w = tp_reshape(T, tp_expand(T, w, TP_SHAPE(h, D, 1, K)), TP_SHAPE(h * D, 1, K));
    const tp_conv_cfg c = { .pad = { K / 2, 0 } };
    return tp_add(T, y, tp_depthwise_conv1d(T, tp__lra_hide(T, v, mask), w, TP_NONE, c));
}

/* ---- parameters ---- */

static void init_ls(tp_params *P, tp_lra_attn *m, tp_tensor mix)
{
    const tp_lra_attn_cfg *c = &m->cfg;
    const int64_t h = c->heads;
    tp_linear_init(P, &m->out, "W_o", c->dim, c->dim, true);
    if (!c->raw_kv) tp_dualln_init(P, &m->dual_ln, "dual_ln_l", "dual_ln_s", c->dim, 1e-5);
    if (c->rank > 0 && !c->fixed)
        tp_linear_init(P, &m->dynamic, "dconv_fc", c->dim, h * c->rank, true);
    if (c->rank > 0 && c->fixed) {
        const tp_init normal = { TP_INIT_NORMAL, 0.02, 0.0 };
        m->mix = mix;
        if (tp_given(mix))
            tp_tie(P, "E", mix);
        else
            m->mix = tp_param(P, "E", TP_SHAPE(h, c->rank, c->length - c->cls_from_seq), normal, 0);
    }
    if (c->conv > 0)
        m->conv = tp_param(P, "conv.weight", TP_SHAPE(h, 1, c->conv, 1),
                           (tp_init){ .kind = TP_INIT_ZERO }, 0);
}

static void init_inner(tp_params *P, tp_lra_attn *m, tp_tensor mix)
{
    const tp_lra_attn_cfg *c = &m->cfg;
    const tp_init normal = { TP_INIT_NORMAL, 0.02, 0.0 }, unit = { TP_INIT_NORMAL, 1.0, 0.0 };
    const int64_t h = c->heads;
    const bool convolves = c->kind == TP_LRA_LINFORMER || c->kind == TP_LRA_NYSTROM;

    if (c->kind == TP_LRA_LINFORMER && tp_given(mix))
        tp_tie(P, "E", m->mix = mix);
    else if (c->kind == TP_LRA_LINFORMER)
        m->mix = tp_param(P, "E", TP_SHAPE(h, c->rank, c->length), normal, 0);
    if (c->kind == TP_LRA_PERFORMER)
        m->features = tp_param(P, "attn_fn.projection_matrix", TP_SHAPE(c->rank, c->dim / h), unit,
                               TP_BUFFER);
    if (convolves && c->conv > 0) {
        const tp_init uniform = { TP_INIT_UNIFORM, 1.0 / sqrt((double)c->conv), 0.0 };
        m->conv = tp_param(P, "conv.weight", TP_SHAPE(h, 1, c->conv, 1), uniform, 0);
    }
}

void tp_lra_attn_init(tp_params *P, tp_lra_attn *m, const char *name, tp_lra_attn_cfg cfg,
                      tp_tensor mix)
{
    if (!tp_params_want_module(P, m, "lra_attn")) return;
    char why[256];
    *m = (tp_lra_attn){ .cfg = cfg };
    if (!tp_lra_attn_cfg_check(&cfg, why, sizeof why)) {
        tp_params_raise(P, TP_E_VALUE, "attention %s: %s", name, why);
        return;
    }
    m->path = tp_push(P, name);
    tp_linear_init(P, &m->q, "W_q", cfg.dim, cfg.dim, true);
    tp_linear_init(P, &m->k, "W_k", cfg.dim, cfg.dim, true);
    tp_linear_init(P, &m->v, "W_v", cfg.dim, cfg.dim, true);
    if (cfg.kind == TP_LRA_LS) {
        init_ls(P, m, mix);
    } else {
        tp_push(P, "attn");
        init_inner(P, m, mix);
        tp_pop(P);
        tp_linear_init(P, &m->out, "ff", cfg.dim, cfg.dim, true);
    }
    tp_pop(P);
}

/* ---- forward ---- */

static tp_tensor softmax(tp_tape *T, const tp_lra_attn *m, tp_tensor q, tp_tensor k, tp_tensor v,
                         tp_tensor mask)
{
    const tp_attn_cfg c = { .heads = m->cfg.heads, .dropout = m->cfg.dropout };
    return tp_attention(T, q, k, v, mask, TP_NONE, c);
}

static tp_tensor linformer(tp_tape *T, const tp_lra_attn *m, tp_tensor q, tp_tensor k, tp_tensor v,
                           tp_tensor mask)
{
    const int64_t n = tp_dim(q, 1);
    if (tp_ok(T) && n != m->cfg.length)
        return tp_raise(T, TP_E_SHAPE, "%s: there are %lld tokens, but E is for %lld: pad them",
                        m->path, (long long)n, (long long)m->cfg.length);
    const tp_tensor mk = tp__lra_mix(T, m->mix, tp__lra_hide(T, k, mask));
    const tp_tensor mv = tp__lra_mix(T, m->mix, tp__lra_hide(T, v, mask));
    return tp_attention(T, q, mk, mv, TP_NONE, TP_NONE, (tp_attn_cfg){ .heads = m->cfg.heads });
}

/* Queries, which normalised are the keys, and values are projected without biases. */
static tp_tensor reformer(tp_tape *T, const tp_lra_attn *m, tp_tensor x, tp_tensor mask)
{
    const tp_lra_attn_cfg *c = &m->cfg;
    const tp_lsh_attn_cfg lsh = { .heads = c->heads,
                                  .chunk = c->chunk,
                                  .rounds = c->rounds,
                                  .buckets = { c->buckets[0], c->buckets[1] },
                                  .longest = c->length };
    const tp_tensor qk = tp_linear(T, x, m->q.weight, TP_NONE, TP_ACT_NONE);
    const tp_tensor v = tp_linear(T, x, m->v.weight, TP_NONE, TP_ACT_NONE);
    return tp_lsh_attention(T, qk, v, m->rotations, mask, lsh);
}

/* The input of the last projection. */
static tp_tensor context(tp_tape *T, const tp_lra_attn *m, tp_tensor x, tp_tensor mask)
{
    if (m->cfg.kind == TP_LRA_REFORMER) return reformer(T, m, x, mask);
    const tp_tensor v = tp_linear_forward(T, &m->v, x);
    if (m->cfg.kind == TP_LRA_NONE) return v;
    const tp_tensor q = tp_linear_forward(T, &m->q, x), k = tp_linear_forward(T, &m->k, x);
    switch (m->cfg.kind) {
    case TP_LRA_LINFORMER: return tp__lra_convolve(T, m, linformer(T, m, q, k, v, mask), v, mask);
    case TP_LRA_NYSTROM:
        return tp__lra_convolve(T, m, tp__lra_nystrom(T, m, q, k, v, mask), v, mask);
    case TP_LRA_PERFORMER:
    case TP_LRA_LINEAR: return tp__lra_kernel(T, m, q, k, v, mask);
    default: return softmax(T, m, q, k, v, mask);
    }
}

static bool check(tp_tape *T, const tp_lra_attn *m, tp_tensor x, tp_tensor cls, tp_tensor mask)
{
    const long long d = (long long)m->cfg.dim;
    const bool own = m->cfg.kind == TP_LRA_LS && !m->cfg.cls_from_seq;
    if (!tp_ok(T)) return false;
    if (tp_ndim(x) != 3 || tp_dim(x, 2) != d || (m->cfg.cls_from_seq && tp_dim(x, 1) < 1))
        tp_raise(T, TP_E_SHAPE, "%s: x must be [batch,tokens,%lld]", m->path, d);
    else if (tp_given(cls) && !own)
        tp_raise(T, TP_E_VALUE,
                 "%s: only long-short attention takes a CLS beside its tokens, and only one",
                 m->path);
    else if (tp_given(mask) && (tp_dtype_of(mask) != TP_U8 || tp_ndim(mask) != 2 ||
                                tp_dim(mask, 0) != tp_dim(x, 0) || tp_dim(mask, 1) != tp_dim(x, 1)))
        tp_raise(T, TP_E_SHAPE, "%s: the mask must be u8 [batch,tokens], as the tokens are",
                 m->path);
    return tp_ok(T);
}

tp_tensor tp_lra_attn_forward(tp_tape *T, const tp_lra_attn *m, tp_tensor x, tp_tensor cls,
                              tp_tensor mask)
{
    if (!tp_want_module(T, m, "lra_attn")) return TP_NONE;
    tp_enter(T, m->path);
    if (!check(T, m, x, cls, mask)) return tp_leave(T, TP_NONE);
    if (m->cfg.kind == TP_LRA_LS)
        return tp_leave(T,
                        tp__lra_long_short(T, m, x, cls, (tp__lra_batch){ .mask = mask }, false));
    return tp_leave(T, tp_linear_forward(T, &m->out, context(T, m, x, mask)));
}

tp_tensor tp__lra_attn_cls(tp_tape *T, const tp_lra_attn *m, tp_tensor x, tp_tensor cls,
                           tp_tensor mask)
{
    tp_enter(T, m->path);
    if (!check(T, m, x, cls, mask)) return tp_leave(T, TP_NONE);
    return tp_leave(T, tp__lra_long_short(T, m, x, cls, (tp__lra_batch){ .mask = mask }, true));
}
