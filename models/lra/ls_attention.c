/* ls_attention.c - bidirectional long-short attention (Zhu et al. 2021, section 3), as in the official
 * code.
 *
 *     k, v   = LN_L(W_k x), LN_L(W_v x)                   low = LN_G([cls; P^T (k, v)])
 *     y      = softmax([q low_k, q k of the window]) [low_v, v]
 *     y_cls  = softmax(q_cls [k_cls, y]) [v_cls, y]       k_cls, v_cls without norms
 *
 * The sequence is a map of height 1, whose low keys are the CLS and the projections. Packed sequences keep the
 * rows of CLS and tokens apart. */
#include "inner.h"

/* Keys or values of the tokens [B,n,d], those that all queries see [B,r,d], and the CLS's own [B,1,d]; the
 * last two may be TP_NONE. */
typedef struct rows {
    tp_tensor token, low, cls;
} rows;

static tp_tensor norm(tp_tape *T, const tp_lra_attn *m, const tp_layernorm_m *ln, tp_tensor x)
{
    return m->cfg.raw_kv ? x : tp_layernorm_forward(T, ln, x);
}

/* What the tokens are compressed to, [B,r,d] of k and of v. */
static tp_kv compress(tp_tape *T, const tp_lra_attn *m, tp_tensor x, tp_kv token,
                      const tp__lra_batch *of)
{
    const tp_tensor mask = of->mask;
    if (tp_given(of->packed.offset))
        return tp_packed_project_kv(T, token.k, token.v, tp_linear_forward(T, &m->dynamic, x),
                                    of->packed, m->cfg.heads, (int)m->cfg.rank);
    if (m->cfg.fixed)
        return (tp_kv){ tp__lra_mix(T, m->mix, tp__lra_hide(T, token.k, mask)),
                        tp__lra_mix(T, m->mix, tp__lra_hide(T, token.v, mask)) };
    return tp_chunk_project_kv(T, token.k, token.v, tp_linear_forward(T, &m->dynamic, x), mask,
                               m->cfg.heads, (int)tp_dim(x, 1), (int)m->cfg.rank);
}

/* low: what the tokens are compressed to, or TP_NONE; the CLS comes before it. */
static rows rows_of(tp_tape *T, const tp_lra_attn *m, const tp_linear_m *linear, tp_tensor token,
                    tp_tensor low, tp_tensor cls)
{
    rows y = { token, low, tp_given(cls) ? tp_linear_forward(T, linear, cls) : TP_NONE };
    if (tp_given(low) && tp_given(cls))
        y.low = tp_concat(T, 1, y.cls, low);
    else if (tp_given(cls))
        y.low = y.cls;
    if (tp_given(y.low)) y.low = norm(T, m, &m->dual_ln.global, y.low);
    return y;
}

/* Tokens of a sequence with its padding; packed: of the longest. */
static int64_t length_of(tp_tensor x, const tp__lra_batch *of)
{
    return tp_given(of->packed.offset) ? of->packed.longest : tp_dim(x, 1);
}

/* The results of the tokens, zeros at padding. Without a window and projections, which needs a CLS, a token
 * also sees itself. */
static tp_tensor tokens(tp_tape *T, const tp_lra_attn *m, tp_tensor q, const rows *k, const rows *v,
                        const tp__lra_batch *of)
{
    const int64_t w = m->cfg.window;
    tp_window_attn_cfg c = {
        .heads = m->cfg.heads, .height = 1, .width = length_of(q, of), .dropout = m->cfg.dropout
    };
    if (w > 0) {
        c.window[0] = 1;
        c.window[1] = w;
        c.halo[1] = w > 1 ? w / 2 : 1;
    } else if (m->cfg.rank == 0) {
        c.window[0] = c.window[1] = 1;
    }
    const tp_window_in in = { .q = q,
                              .k = k->token,
                              .v = v->token,
                              .low_k = k->low,
                              .low_v = v->low,
                              .mask = of->mask,
                              .offset = of->packed.offset };
    return tp_window_attention_2d(T, in, c);
}

/* [B,1,d] -> [B,d]. */
static tp_tensor flat(tp_tape *T, tp_tensor x)
{
    return tp_reshape(T, x, TP_SHAPE(tp_dim(x, 0), tp_dim(x, 2)));
}

/* The attention of one query for each sequence, q [B,1,d], to its own row and to the tokens' -> as q. */
static tp_tensor attend(tp_tape *T, const tp_lra_attn *m, tp_tensor q, tp_kv own, tp_kv token,
                        const tp__lra_batch *of)
{
    const tp_attn_cfg c = { .heads = m->cfg.heads };
    const int64_t B = tp_dim(q, 0);
    if (tp_given(of->packed.offset)) {
        const tp_packed one = { tp_arange(T, TP_I32, 0.0, (double)(B + 1), 1.0), 1 };
        tp_packed longer;
        const tp_tensor k = tp_packed_prepend(T, flat(T, own.k), token.k, of->packed, &longer);
        const tp_tensor v = tp_packed_prepend(T, flat(T, own.v), token.v, of->packed, NULL);
        return tp_packed_attention(T, flat(T, q), k, v, one, longer, c);
    }
    tp_tensor seen = of->mask;
    if (tp_given(seen)) seen = tp_concat(T, 1, tp_full(T, TP_U8, TP_SHAPE(B, 1), 1.0), seen);
    return tp_attention(T, q, tp_concat(T, 1, own.k, token.k), tp_concat(T, 1, own.v, token.v),
                        seen, TP_NONE, c);
}

/* The result of the CLS; y: those of the tokens. */
static tp_tensor of_cls(tp_tape *T, const tp_lra_attn *m, tp_tensor cls, const rows *k,
                        const rows *v, tp_tensor y, const tp__lra_batch *of)
{
    const tp_tensor q = tp_linear_forward(T, &m->q, cls);
    if (!m->cfg.cls_values) return attend(T, m, q, (tp_kv){ k->cls, v->cls }, (tp_kv){ y, y }, of);
    const tp_kv own = { tp_slice(T, k->low, 1, 0, 1), tp_slice(T, v->low, 1, 0, 1) };
    return attend(T, m, q, own, (tp_kv){ k->token, v->token }, of);
}

static void check(tp_tape *T, const tp_lra_attn *m, int64_t n, bool packed, bool cls)
{
    const tp_lra_attn_cfg *c = &m->cfg;
    if (c->window == 0 && c->rank == 0 && !cls)
        tp_raise(T, TP_E_VALUE,
                 "%s: without a window, projections and a CLS there is nothing to attend to",
                 m->path);
    else if (c->window > 0 && n % c->window && !packed)
        tp_raise(T, TP_E_SHAPE, "%s: %lld tokens are no multiple of the window %lld: pad them",
                 m->path, (long long)n, (long long)c->window);
    else if (c->rank > 0 && c->fixed && n != tp_dim(m->mix, 2))
        tp_raise(T, TP_E_SHAPE, "%s: there are %lld tokens, but E is for %lld: pad them", m->path,
                 (long long)n, (long long)tp_dim(m->mix, 2));
}

/* The CLS of a sequence that begins with it, [B,1,d]. *x and *of become those of the tokens alone. */
static tp_tensor take_cls(tp_tape *T, tp_tensor *x, tp__lra_batch *of)
{
    const tp_tensor all = *x;
    if (tp_given(of->packed.offset)) {
        const int64_t B = tp_dim(of->packed.offset, 0) - 1, d = tp_dim(all, 1);
        *x = tp_slice(T, all, 0, B, tp_dim(all, 0) - B);
        return tp_reshape(T, tp_slice(T, all, 0, 0, B), TP_SHAPE(B, 1, d));
    }
    const int64_t n = tp_dim(all, 1) - 1;
    *x = tp_slice(T, all, 1, 1, n);
    if (tp_given(of->mask)) of->mask = tp_slice(T, of->mask, 1, 1, n);
    return tp_slice(T, all, 1, 0, 1);
}

tp_tensor tp__lra_long_short(tp_tape *T, const tp_lra_attn *m, tp_tensor x, tp_tensor cls,
                             tp__lra_batch of, bool cls_only)
{
    const bool packed = tp_given(of.packed.offset);
    if (m->cfg.cls_from_seq) cls = take_cls(T, &x, &of);
    check(T, m, length_of(x, &of), packed, tp_given(cls));
    const tp_tensor q = tp_linear_forward(T, &m->q, x);
    const tp_kv token = { norm(T, m, &m->dual_ln.local, tp_linear_forward(T, &m->k, x)),
                          norm(T, m, &m->dual_ln.local, tp_linear_forward(T, &m->v, x)) };
    tp_kv low = { TP_NONE, TP_NONE };
    if (m->cfg.rank > 0) low = compress(T, m, x, token, &of);
    const rows k = rows_of(T, m, &m->k, token.k, low.k, cls);
    const rows v = rows_of(T, m, &m->v, token.v, low.v, cls);
    tp_tensor y = tokens(T, m, q, &k, &v, &of), c = TP_NONE;
    if (tp_given(cls)) c = of_cls(T, m, cls, &k, &v, y, &of);
    if (cls_only) return tp_linear_forward(T, &m->out, c);
    y = tp__lra_convolve(T, m, y, v.token, of.mask);
    return tp_linear_forward(T, &m->out, tp_given(cls) ? tp_concat(T, packed ? 0 : 1, c, y) : y);
}
