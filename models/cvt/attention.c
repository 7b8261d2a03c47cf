/* attention.c - convolutional attention of CvT, full and long-short.
 *
 * Queries, keys and values are separable convolutions of the map: depthwise, batch norm, linear.
 * The class token, row 0 if there is one, passes only the linear part, or neither (raw_class).
 *
 *     full        every row attends to all keys; a stride reduces their number
 *     long-short  a feature attends, in one softmax, to the keys around its window, to `rank`
 *                 dynamic projections of all keys, and to the class token; the class token attends
 *                 to itself and to the outputs of the features
 *
 * Long-short attention appends the class token's key to the projected ones, which all queries see.
 * Features and class token are therefore separate tensors; only the class token's attention copies
 * them. */
#include <math.h>
#include <stdio.h>

#include "inner.h"

/* ---- parameters ---- */

static void init_proj(tp_params *P, tp_cvt_proj *m, char which, int64_t dim, int64_t stride,
                      bool conv_bias)
{
    const tp_conv_cfg cfg = { { stride, stride }, { 1, 1 }, { 1, 1 }, dim };
    char conv[] = "conv_proj_?", linear[] = "proj_?";

    conv[sizeof conv - 2] = linear[sizeof linear - 2] = which;
    tp_push(P, conv);
    tp_conv2d_init(P, &m->conv, "conv", dim, dim, 3, conv_bias, cfg);
    tp_batchnorm_init(P, &m->bn, "bn", dim, 1e-5);
    tp_pop(P);
    tp_linear_init(P, &m->linear, linear, dim, dim, true);
}

void tp__cvt_attn_init(tp_params *P, void *module, const char *name, const void *cfg)
{
    tp_cvt_attn *m = module;
    const tp_cvt_block_cfg *b = cfg;
    const tp_cvt_cfg *c = b->model;
    const int64_t D = c->dim[b->stage], H = c->heads[b->stage];
    const tp_conv_cfg same = { { 1, 1 }, { 1, 1 }, { 1, 1 }, D };

    *m = (tp_cvt_attn){ .path = tp_push(P, name), .heads = H, .raw_class = c->raw_class };
    m->scale = 1.0 / sqrt((double)(c->wide_scale ? D : D / H));
    init_proj(P, &m->q, 'q', D, 1, c->conv_bias);
    init_proj(P, &m->k, 'k', D, c->kv_stride, c->conv_bias);
    init_proj(P, &m->v, 'v', D, c->kv_stride, c->conv_bias);
    if (c->long_short) {
        m->rank = c->rank[b->stage];
        m->window = c->window[b->stage];
        m->biased_ws = c->biased_ws;
        tp_conv2d_init(P, &m->conv_p, "conv_proj_p.conv", D, D, 3, true, same);
        tp_linear_init(P, &m->proj_p, "proj_p", D, H * m->rank, true);
        if (!c->raw_kv) tp_dualln_init(P, &m->dual_ln, "dual_ln_full", "dual_ln_dp", D, 1e-5);
    }
    if (H > 1 || c->single_proj) tp_linear_init(P, &m->proj, "proj", D, D, true);
    tp_pop(P);
}

/* ---- forward ---- */

/* [B,H,W,D] -> [B,H*W,D] */
static tp_tensor tokens(tp_tape *T, tp_tensor map)
{
    const int64_t B = tp_dim(map, 0), N = tp_dim(map, 1) * tp_dim(map, 2);
    return tp_reshape(T, map, TP_SHAPE(B, N, tp_dim(map, 3)));
}

/* f [B,H,W,D] -> [B,N',D], before the linear part. */
static tp_tensor convolved(tp_tape *T, const tp_cvt_proj *m, tp_tensor f)
{
    return tokens(T, tp_batchnorm_forward(T, &m->bn, tp_conv2d_forward(T, &m->conv, f)));
}

/* The class token's query, key or value. */
static tp_tensor of_class(tp_tape *T, const tp_cvt_attn *m, const tp_cvt_proj *p, tp_tensor c)
{
    return m->raw_class ? c : tp_linear_forward(T, &p->linear, c);
}

static tp_tensor norm(tp_tape *T, const tp_layernorm_m *m, tp_tensor x)
{
    return tp_given(m->weight) ? tp_layernorm_forward(T, m, x) : x;
}

/* f [B,H,W,D], c [B,1,D] or TP_NONE -> [B,c+N',D] */
static tp_tensor joined(tp_tape *T, const tp_cvt_attn *m, const tp_cvt_proj *p, tp_tensor f,
                        tp_tensor c)
{
    const tp_tensor t = convolved(T, p, f);

    if (!tp_given(c)) return tp_linear_forward(T, &p->linear, t);
    if (m->raw_class) return tp_concat(T, 1, c, tp_linear_forward(T, &p->linear, t));
    return tp_linear_forward(T, &p->linear, tp_concat(T, 1, c, t));
}

static tp_tensor full(tp_tape *T, const tp_cvt_attn *m, tp_tensor f, tp_tensor c)
{
    const tp_tensor q = joined(T, m, &m->q, f, c);
    const tp_tensor k = joined(T, m, &m->k, f, c);
    const tp_tensor v = joined(T, m, &m->v, f, c);
    const tp_attn_cfg cfg = { .heads = (int)m->heads, .scale = m->scale };
    return tp_attention(T, q, k, v, TP_NONE, TP_NONE, cfg);
}

/* The scores of the dynamic projection, [B,N,heads*rank]. */
static tp_tensor scores(tp_tape *T, const tp_cvt_attn *m, tp_tensor f)
{
    const tp_conv2d_m *conv = &m->conv_p;
    const tp_tensor w = tp_weight_standardize(T, conv->weight, 1e-5, m->biased_ws);
    const tp_tensor y = tp_conv2d(T, f, w, conv->bias, conv->cfg);
    return tp_linear_forward(T, &m->proj_p, tokens(T, y));
}

/* Projects the N rows of k and of v to `rank` rows per head. */
static tp_kv compressed(tp_tape *T, const tp_cvt_attn *m, tp_tensor k, tp_tensor v, tp_tensor p)
{
    const int heads = (int)m->heads, N = (int)tp_dim(k, 1), rank = (int)m->rank;
    const tp_kv low = tp_chunk_project_kv(T, k, v, p, TP_NONE, heads, N, rank);
    return (tp_kv){ norm(T, &m->dual_ln.global, low.k), norm(T, &m->dual_ln.global, low.v) };
}

/* The class token c attends to keys [k; o] and values [v; o]; o: the features' outputs. */
static tp_tensor class_attention(tp_tape *T, const tp_cvt_attn *m, tp_tensor c, tp_tensor k,
                                 tp_tensor v, tp_tensor o)
{
    const tp_attn_cfg cfg = { .heads = (int)m->heads, .scale = m->scale };
    const tp_tensor q = of_class(T, m, &m->q, c);
    const tp_tensor keys = tp_concat(T, 1, k, o), values = tp_concat(T, 1, v, o);
    return tp_attention(T, q, keys, values, TP_NONE, TP_NONE, cfg);
}

static tp_tensor long_short(tp_tape *T, const tp_cvt_attn *m, tp_tensor f, tp_tensor c)
{
    const int64_t w = m->window, s = w > 1 ? w / 2 : 1;
    const tp_layernorm_m *ln = &m->dual_ln.local;
    const tp_tensor q = tp_linear_forward(T, &m->q.linear, convolved(T, &m->q, f));
    const tp_tensor k = norm(T, ln, tp_linear_forward(T, &m->k.linear, convolved(T, &m->k, f)));
    const tp_tensor v = norm(T, ln, tp_linear_forward(T, &m->v.linear, convolved(T, &m->v, f)));
    const tp_kv low = compressed(T, m, k, v, scores(T, m, f));
    tp_window_in in = { .q = q, .k = k, .v = v, .low_k = low.k, .low_v = low.v };
    tp_tensor kc = TP_NONE, vc = TP_NONE;

    if (tp_given(c)) {
        kc = norm(T, ln, of_class(T, m, &m->k, c));
        vc = norm(T, ln, of_class(T, m, &m->v, c));
        in.low_k = tp_concat(T, 1, in.low_k, kc);
        in.low_v = tp_concat(T, 1, in.low_v, vc);
    }
    const tp_window_attn_cfg cfg = { .heads = (int)m->heads,
                                     .height = tp_dim(f, 1),
                                     .width = tp_dim(f, 2),
                                     .window = { w, w },
                                     .halo = { s, s },
                                     .edge = TP_EDGE_MASK,
                                     .scale = m->scale };
    const tp_tensor o = tp_window_attention_2d(T, in, cfg);
    if (!tp_given(c)) return o;
    return tp_concat(T, 1, class_attention(T, m, c, kc, vc, o), o);
}

/* Fails T unless x has the rows of the map, with or without a class token. */
static void check_rows(tp_tape *T, tp_tensor x, tp_tensor grid)
{
    const long long rows = (long long)tp_dim(x, 1);
    const long long H = (long long)tp_dim(grid, 0), W = (long long)tp_dim(grid, 1);

    if (tp_ok(T) && rows != H * W && rows != H * W + 1)
        tp_raise(T, TP_E_SHAPE,
                 "%lld tokens do not match a map of %lld x %lld, with or without a class token",
                 rows, H, W);
}

tp_tensor tp__cvt_attn(tp_tape *T, const void *module, void *with, tp_tensor x)
{
    const tp_cvt_attn *m = module;
    const tp_tensor grid = *(tp_tensor *)with;
    const int64_t B = tp_dim(x, 0), D = tp_dim(x, 2), H = tp_dim(grid, 0), W = tp_dim(grid, 1);
    tp_tensor f = x, c = TP_NONE;

    tp_enter(T, m->path);
    check_rows(T, x, grid);
    if (tp_dim(x, 1) == H * W + 1) {
        c = tp_slice(T, x, 1, 0, 1);
        f = tp_slice(T, x, 1, 1, H * W);
    }
    f = tp_reshape(T, f, TP_SHAPE(B, H, W, D));
    const tp_tensor y = m->rank > 0 ? long_short(T, m, f, c) : full(T, m, f, c);
    return tp_leave(T, tp_given(m->proj.weight) ? tp_linear_forward(T, &m->proj, y) : y);
}
