/* attention.c - the LRA encoders' attentions: parameters, Nystroem, kernels, long-short, and those
 * of one step. */
#include <math.h>

#include "inner.h"
#include "model_inner.h"

/* ---- pieces ---- */

tp_tensor tp__lra_hide(tp_tape *T, tp_tensor x, tp_tensor mask)
{
    if (!tp_given(mask)) return x;
    return tp_masked_fill(T, x, tp_logical_not(T, tp_unsqueeze(T, mask, -1)), 0.0);
}

static tp_tensor split(tp_tape *T, tp_tensor x, int heads)
{
    const int64_t B = tp_dim(x, 0), n = tp_dim(x, 1), D = tp_dim(x, 2) / heads;
    return tp_permute(T, tp_reshape(T, x, TP_SHAPE(B, n, heads, D)), TP_SHAPE(0, 2, 1, 3));
}

static tp_tensor merge(tp_tape *T, tp_tensor x)
{
    const tp_shape s = TP_SHAPE(tp_dim(x, 0), tp_dim(x, 2), tp_dim(x, 1) * tp_dim(x, 3));
    return tp_reshape(T, tp_permute(T, x, TP_SHAPE(0, 2, 1, 3)), s);
}

/* Per-head products [k,n] [n,B D], which avoid repeating the mixtures per sample. */
static tp_tensor mix(tp_tape *T, tp_tensor mix, tp_tensor x)
{
    const int64_t h = tp_dim(mix, 0), k = tp_dim(mix, 1);
    const int64_t B = tp_dim(x, 0), n = tp_dim(x, 1), D = tp_dim(x, 2) / h;
    tp_tensor y = tp_permute(T, tp_reshape(T, x, TP_SHAPE(B, n, h, D)), TP_SHAPE(2, 1, 0, 3));
    y = tp_matmul(T, tp_cast(T, mix, tp_dtype_of(x)), tp_reshape(T, y, TP_SHAPE(h, n, B * D)));
    y = tp_permute(T, tp_reshape(T, y, TP_SHAPE(h, k, B, D)), TP_SHAPE(2, 1, 0, 3));
    return tp_reshape(T, y, TP_SHAPE(B, k, h * D));
}

static tp_tensor convolve(tp_tape *T, const tp_lra_attn *m, tp_tensor y, tp_tensor v,
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

void tp__lra_attn_init(tp_params *P, void *module, const char *name, const void *of)
{
    tp_lra_attn *m = module;
    const tp_lra_attn_cfg cfg = *(const tp_lra_attn_cfg *)of;
    char why[256];
    const tp_tensor mix = m->mix;
    *m = (tp_lra_attn){ .cfg = cfg };
    if (!tp__lra_check_attn(&cfg, why, sizeof why)) {
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

/* ---- landmarks (Nystroemformer, Xiong et al. 2021), official code ----
 *
 *     q~, k~ = means of n / L consecutive rows          F = softmax(q k~^T)   A = softmax(q~ k~^T)
 *     y = F (A^+ (G v))                                 G = softmax(q~ k^T), without padding
 *
 * G v and F times the rest are tiled attentions, so nothing of size n * L is stored. Padding is
 * zero in q and k, but counts in the means. */

/* Six steps z <- z (13 - y (15 - y (7 - y))) / 4, y = a z, towards the pseudo-inverse of a
 * [B,h,L,L] (Razavi et al. 2014). The start divides by the largest column sum, which has a
 * gradient: of the batch or, per_head, of each matrix. */
static tp_tensor inverse(tp_tape *T, tp_tensor a, bool per_head)
{
    const tp_tensor sums = tp_sum(T, a, TP_KEEP(-2)); /* [B,h,1,L] */
    const tp_tensor top = tp_max(T, sums, per_head ? TP_KEEP(-1) : TP_KEEP(TP_ALL));
    tp_tensor z = tp_div(T, tp_transpose(T, a, -2, -1), tp_cast(T, top, tp_dtype_of(a)));
    for (int i = 0; i < 6; i++) {
        const tp_tensor y = tp_matmul(T, a, z);
        tp_tensor u = tp_sub(T, tp_scale(T, z, 7.0), tp_matmul(T, z, y));
        u = tp_sub(T, tp_scale(T, z, 15.0), tp_matmul(T, u, y));
        u = tp_sub(T, tp_scale(T, z, 13.0), tp_matmul(T, u, y));
        z = tp_scale(T, u, 0.25);
    }
    return z;
}

/* Means of n / L consecutive rows, [B,L,d]. */
static tp_tensor landmarks(tp_tape *T, tp_tensor x, int64_t L)
{
    const int64_t B = tp_dim(x, 0), n = tp_dim(x, 1), d = tp_dim(x, 2);
    return tp_mean(T, tp_reshape(T, x, TP_SHAPE(B, L, n / L, d)), 2);
}

static tp_tensor nystrom(tp_tape *T, const tp_lra_attn *m, tp_tensor q, tp_tensor k, tp_tensor v,
                         tp_tensor mask)
{
    const tp_attn_cfg c = { .heads = m->cfg.heads };
    const int64_t L = m->cfg.rank, n = tp_dim(q, 1);
    if (tp_ok(T) && n % L)
        return tp_raise(T, TP_E_SHAPE,
                        "%s: %lld tokens are no multiple of %lld landmarks: pad them", m->path,
                        (long long)n, (long long)L);
    q = tp__lra_hide(T, q, mask);
    k = tp__lra_hide(T, k, mask);
    if (n == L) return tp_attention(T, q, k, v, mask, TP_NONE, c);

    const tp_tensor lq = landmarks(T, q, L), lk = landmarks(T, k, L);
    const tp_tensor hq = split(T, lq, c.heads), hk = split(T, lk, c.heads);
    const double scale = 1.0 / sqrt((double)tp_dim(hq, 3));
    const tp_tensor a = tp_softmax(T, tp_scale(T, tp_matmul_t(T, hq, false, hk, true), scale));
    const tp_tensor gv = tp_attention(T, lq, k, v, mask, TP_NONE, c); /* [B,L,d] */
    const tp_tensor z = inverse(T, a, m->cfg.inverse_per_head);
    const tp_tensor zgv = merge(T, tp_matmul(T, z, split(T, gv, c.heads)));
    return tp_attention(T, q, lk, zgv, TP_NONE, TP_NONE, c);
}

/* ---- products of features: phi(q) (phi(k)^T v), linear in n ----
 *
 * Like the official code, Performer scales queries and keys by (d / h)^(-1/4) twice, so the
 * effective score is q k / (d / h). Linear attention is divided by the root of n, padding
 * included. */

static tp_tensor kernel(tp_tape *T, const tp_lra_attn *m, tp_tensor q, tp_tensor k, tp_tensor v,
                        tp_tensor mask)
{
    const tp_lra_attn_cfg *c = &m->cfg;
    tp_linear_attn_cfg a = { .heads = c->heads, .features = TP_FEATURES_ELU };
    if (c->kind == TP_LRA_PERFORMER) {
        a.features = c->relu ? TP_FEATURES_RELU : TP_FEATURES_POSITIVE;
        a.scale = 1.0 / sqrt((double)(c->dim / c->heads));
    }
    return tp_linear_attention(T, q, k, v, m->features, mask, a);
}

/* ---- long-short (Zhu et al. 2021, section 3), as in the official code ----
 *
 *     k, v   = LN_L(W_k x), LN_L(W_v x)                   low = LN_G([cls; P^T (k, v)])
 *     y      = softmax([q low_k, q k of the window]) [low_v, v]
 *     y_cls  = softmax(q_cls [k_cls, y]) [v_cls, y]       k_cls, v_cls without norms
 *
 * The sequence is a map of height 1 with the CLS and projections as low keys. Packed sequences
 * separate rows of CLS and tokens. */

/* Keys or values: of the tokens [B,n,d], visible to all queries [B,r,d], and of the CLS [B,1,d];
 * the last two may be TP_NONE. */
typedef struct rows {
    tp_tensor token, low, cls;
} rows;

static tp_tensor norm(tp_tape *T, const tp_lra_attn *m, const tp_layernorm_m *ln, tp_tensor x)
{
    return m->cfg.raw_kv ? x : tp_layernorm_forward(T, ln, x);
}

/* Compresses the tokens' k and v to [B,r,d]. */
static tp_kv compress(tp_tape *T, const tp_lra_attn *m, tp_tensor x, tp_kv token,
                      const tp__lra_batch *of)
{
    const tp_tensor mask = of->mask;
    if (tp_given(of->packed.offset))
        return tp_packed_project_kv(T, token.k, token.v, tp_linear_forward(T, &m->dynamic, x),
                                    of->packed, m->cfg.heads, (int)m->cfg.rank);
    if (m->cfg.fixed)
        return (tp_kv){ mix(T, m->mix, tp__lra_hide(T, token.k, mask)),
                        mix(T, m->mix, tp__lra_hide(T, token.v, mask)) };
    return tp_chunk_project_kv(T, token.k, token.v, tp_linear_forward(T, &m->dynamic, x), mask,
                               m->cfg.heads, (int)tp_dim(x, 1), (int)m->cfg.rank);
}

/* low: compressed tokens, or TP_NONE; the CLS precedes them. */
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

/* Padded length of a sequence; packed: of the longest. */
static int64_t length_of(tp_tensor x, const tp__lra_batch *of)
{
    return tp_given(of->packed.offset) ? of->packed.longest : tp_dim(x, 1);
}

/* Results of the tokens, zero at padding. Without window and projections, which requires a CLS, a
 * token also sees itself. */
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

/* Attention of one query per sequence, q [B,1,d], to its own row and the tokens -> like q. */
static tp_tensor attend_once(tp_tape *T, const tp_lra_attn *m, tp_tensor q, tp_kv own, tp_kv token,
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

/* Result of the CLS; y: results of the tokens. */
static tp_tensor of_cls(tp_tape *T, const tp_lra_attn *m, tp_tensor cls, const rows *k,
                        const rows *v, tp_tensor y, const tp__lra_batch *of)
{
    const tp_tensor q = tp_linear_forward(T, &m->q, cls);
    if (!m->cfg.cls_values)
        return attend_once(T, m, q, (tp_kv){ k->cls, v->cls }, (tp_kv){ y, y }, of);
    const tp_kv own = { tp_slice(T, k->low, 1, 0, 1), tp_slice(T, v->low, 1, 0, 1) };
    return attend_once(T, m, q, own, (tp_kv){ k->token, v->token }, of);
}

static void check_rows(tp_tape *T, const tp_lra_attn *m, int64_t n, bool packed, bool cls)
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

/* Splits the leading CLS [B,1,d] off; *x and *of keep only the tokens. */
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
    check_rows(T, m, length_of(x, &of), packed, tp_given(cls));
    const tp_tensor q = tp_linear_forward(T, &m->q, x);
    const tp_kv raw = { tp_linear_forward(T, &m->k, x), tp_linear_forward(T, &m->v, x) };
    const tp_kv token = m->cfg.raw_kv ? raw : tp_layernorm_forward_kv(T, &m->dual_ln.local, raw);
    tp_kv low = { TP_NONE, TP_NONE };
    if (m->cfg.rank > 0) low = compress(T, m, x, token, &of);
    const rows k = rows_of(T, m, &m->k, token.k, low.k, cls);
    const rows v = rows_of(T, m, &m->v, token.v, low.v, cls);
    tp_tensor y = tokens(T, m, q, &k, &v, &of), c = TP_NONE;
    if (tp_given(cls)) c = of_cls(T, m, cls, &k, &v, y, &of);
    if (cls_only) return tp_linear_forward(T, &m->out, c);
    y = convolve(T, m, y, v.token, of.mask);
    return tp_linear_forward(T, &m->out, tp_given(cls) ? tp_concat(T, packed ? 0 : 1, c, y) : y);
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
    const tp_tensor mk = mix(T, m->mix, tp__lra_hide(T, k, mask));
    const tp_tensor mv = mix(T, m->mix, tp__lra_hide(T, v, mask));
    return tp_attention(T, q, mk, mv, TP_NONE, TP_NONE, (tp_attn_cfg){ .heads = m->cfg.heads });
}

/* Queries and values are projected without bias; keys are normalised queries. */
static tp_tensor reformer(tp_tape *T, const tp_lra_attn *m, tp_tensor x, tp_tensor mask)
{
    const tp_lra_attn_cfg *c = &m->cfg;
    const tp_lsh_attn_cfg lsh = { .heads = c->heads,
                                  .chunk = c->chunk,
                                  .rounds = c->rounds,
                                  .buckets = { c->buckets[0], c->buckets[1] },
                                  .longest = c->length };
    const tp_tensor qk = tp_linear_product(T, &m->q, x);
    const tp_tensor v = tp_linear_product(T, &m->v, x);
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
    case TP_LRA_LINFORMER: return convolve(T, m, linformer(T, m, q, k, v, mask), v, mask);
    case TP_LRA_NYSTROM: return convolve(T, m, nystrom(T, m, q, k, v, mask), v, mask);
    case TP_LRA_PERFORMER:
    case TP_LRA_LINEAR: return kernel(T, m, q, k, v, mask);
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

tp_tensor tp__lra_attn(tp_tape *T, const void *module, void *with, tp_tensor x)
{
    const tp_lra_attn *m = module;
    const tp_tensor *in = with, cls = in[0], mask = in[1];
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
