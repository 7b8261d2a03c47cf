/* attention.c - the attentions of Vision Longformer, from tokens [B,g+N,d] to tokens.
 *
 *     window, full   local rows see their window (or the map) and the global tokens; global rows
 *                    see all tokens
 *     Linformer      keys and values of all tokens are mixed to K rows: proj_k^T k
 *     SRA            keys and values come from a map reduced by a convolution and instance norm
 *     performer      phi(q) (phi(k)^T v) / (phi(q) sum phi(k)), phi positive random features
 *     LS             window and dynamic projections, with norms of keys and values; the global row
 *                    then attends to the outputs of the local rows
 *
 * Queries, keys and values are products with slices of the stored matrices, which are views. */
#include <tapegrad/random.h>

#include "inner.h"
#include "model_inner.h"

/* ---- pieces ---- */

static tp_tensor global_rows(tp_tape *T, const tp_vil_attn *m, tp_tensor x)
{
    return tp_slice(T, x, 1, 0, m->stage.global);
}

/* x itself if there are no global rows. */
static tp_tensor local_rows(tp_tape *T, const tp_vil_attn *m, tp_tensor x)
{
    const int64_t g = m->stage.global;
    return g ? tp_slice(T, x, 1, g, tp_dim(x, 1) - g) : x;
}

static tp_tensor attend(tp_tape *T, const tp_vil_attn *m, tp_tensor q, tp_tensor k, tp_tensor v,
                        tp_tensor bias)
{
    return tp_attention(T, q, k, v, TP_NONE, bias, (tp_attn_cfg){ .heads = m->stage.heads });
}

/* Row 0 or 1 of g2l, [H,g]: the bias of global queries and local keys, or of local queries and
 * global keys. */
static tp_tensor between(tp_tape *T, const tp_vil_attn *m, int row)
{
    const tp_shape s = TP_SHAPE(m->stage.heads, m->stage.global);
    return tp_reshape(T, tp_slice(T, m->g2l, 0, row, 1), s);
}

/* The bias of global queries and all keys, [H,g,g+N]. */
static tp_tensor global_query_bias(tp_tape *T, const tp_vil_attn *m, int64_t local)
{
    const int64_t H = m->stage.heads, g = m->stage.global;
    if (!tp_given(m->g2l)) return TP_NONE;
    const tp_tensor each = tp_reshape(T, between(T, m, 0), TP_SHAPE(H, g, 1));
    return tp_concat(T, 2, m->g2g, tp_expand(T, each, TP_SHAPE(H, g, local)));
}

static tp_window_attn_cfg window_of(const tp_vil_attn *m, const int64_t size[2])
{
    tp_window_attn_cfg c = {
        .heads = m->stage.heads, .height = size[0], .width = size[1], .global = m->stage.global
    };
    for (int i = 0; i < 2; i++) {
        const int64_t w = m->stage.feature;
        if (m->kind == TP_VIL_FULL) {
            c.window[i] = size[i];
        } else if (m->kind != TP_VIL_GLOBAL) {
            c.window[i] = w;
            c.halo[i] = m->kind == TP_VIL_LS ? (w == 1 ? 1 : w / 2) : w;
        }
    }
    if (m->kind == TP_VIL_LS && tp_given(m->table) && !m->distinct_bias)
        c.stride = 2 * (m->stage.feature / 2) + m->stage.feature;
    if (m->kind == TP_VIL_WINDOW) {
        c.edge = m->edge;
        c.mask_wrapped = m->mask_wrapped;
    }
    return c;
}

/* Which of the neighbouring chunks are visible in this call. */
static int block_of(tp_tape *T, const tp_vil_attn *m)
{
    uint64_t seed, offset;
    if (m->shift == TP_BLOCK_OWN) return TP_BLOCK_OWN;
    if (!tp_is_training(T)) return TP_BLOCK_ALL;
    if (m->shift != TP_VIL_SHIFT_RANDOM) return m->shift;
    tp_random_state(T, &seed, &offset);
    tp_set_random_state(T, seed, offset + 1);
    tp_random r = tp_random_stream(seed, "vil.shift", offset, 0);
    return 1 + (int)tp_random_below(&r, 8);
}

/* ---- kinds: x -> context; windows() includes the last projection ---- */

/* The context of the local rows, [B,N,d]. */
static tp_tensor local_attention(tp_tape *T, const tp_vil_attn *m, tp_tensor q, tp_tensor k,
                                 tp_tensor v, const int64_t size[2])
{
    tp_window_attn_cfg c = window_of(m, size);
    tp_window_in in = { .q = q, .k = k, .v = v };
    if (m->kind == TP_VIL_WINDOW) c.block = block_of(T, m);
    if (m->kind != TP_VIL_GLOBAL) {
        in.table = m->table;
        if (tp_given(m->g2l)) in.global_bias = between(T, m, 1);
    }
    return tp_window_attention_2d(T, in, c);
}

static tp_tensor windows(tp_tape *T, const tp_vil_attn *m, tp_tensor x, const int64_t size[2])
{
    const tp_tensor q = tp_linear_forward(T, &m->query, x);
    const tp_tensor k = tp__project(T, &m->kv, x, 0, 2), v = tp__project(T, &m->kv, x, 1, 2);
    const tp_tensor local = local_attention(T, m, q, k, v, size);
    if (m->stage.global == 0) return tp_linear_forward(T, &m->proj, local);

    const tp_tensor bias = global_query_bias(T, m, size[0] * size[1]);
    if (!m->separate_global) {
        const tp_tensor global = attend(T, m, global_rows(T, m, q), k, v, bias);
        return tp_linear_forward(T, &m->proj, tp_concat(T, 1, global, local));
    }
    const tp_tensor own = tp_linear_forward(T, &m->query_global, global_rows(T, m, x));
    const tp_tensor keys = tp__project(T, &m->kv_global, x, 0, 2);
    const tp_tensor values = tp__project(T, &m->kv_global, x, 1, 2);
    const tp_tensor global = attend(T, m, own, keys, values, bias);
    return tp_concat(T, 1, tp_linear_forward(T, &m->proj_global, global),
                     tp_linear_forward(T, &m->proj, local));
}

static tp_tensor full(tp_tape *T, const tp_vil_attn *m, tp_tensor x, const int64_t size[2])
{
    const tp_tensor q = tp__project(T, &m->qkv, x, 0, 3), k = tp__project(T, &m->qkv, x, 1, 3);
    const tp_tensor v = tp__project(T, &m->qkv, x, 2, 3);
    if (!tp_given(m->table)) return attend(T, m, q, k, v, TP_NONE);
    const tp_tensor local = local_attention(T, m, q, k, v, size);
    if (m->stage.global == 0) return local;
    const tp_tensor bias = global_query_bias(T, m, size[0] * size[1]);
    return tp_concat(T, 1, attend(T, m, global_rows(T, m, q), k, v, bias), local);
}

/* mix [g+N,K], x [B,g+N,d] -> mix^T x [B,K,d] */
static tp_tensor mixed(tp_tape *T, tp_tensor mix, tp_tensor x)
{
    return tp_permute(T, tp_matmul_t(T, x, true, mix, false), TP_SHAPE(0, 2, 1));
}

static tp_tensor linformer(tp_tape *T, const tp_vil_attn *m, tp_tensor x)
{
    const tp_tensor q = tp_linear_forward(T, &m->query, x);
    const tp_tensor k = mixed(T, m->proj_k, tp__project(T, &m->kv, x, 0, 2));
    const tp_tensor v = mixed(T, m->proj_v, tp__project(T, &m->kv, x, 1, 2));
    return attend(T, m, q, k, v, TP_NONE);
}

static tp_tensor reduced(tp_tape *T, const tp_vil_attn *m, tp_tensor x, const int64_t size[2])
{
    const int64_t B = tp_dim(x, 0), d = m->stage.dim;
    const tp_tensor map = tp_reshape(T, local_rows(T, m, x), TP_SHAPE(B, size[0], size[1], d));
    tp_tensor z = tp_conv2d_forward(T, &m->proj_sr, map);
    z = tp_reshape(T, tp_instancenorm(T, z, TP_NONE, TP_NONE, 1e-5), TP_SHAPE(B, -1, d));
    if (m->stage.global) z = tp_concat(T, 1, global_rows(T, m, x), z);
    const tp_tensor k = tp__project(T, &m->kv, z, 0, 2), v = tp__project(T, &m->kv, z, 1, 2);
    return attend(T, m, tp_linear_forward(T, &m->query, x), k, v, TP_NONE);
}

/* Long-short attention: the global row attends to the outputs of the local ones. */
static tp_tensor long_short(tp_tape *T, const tp_vil_attn *m, tp_tensor x, const int64_t size[2])
{
    const int H = m->stage.heads, r = m->stage.rank;
    const int64_t N = size[0] * size[1];
    const tp_tensor q = tp__project(T, &m->qkv, x, 0, 3);
    const tp_tensor k = tp_layernorm_forward(T, &m->ln_full, tp__project(T, &m->qkv, x, 1, 3));
    const tp_tensor v = tp_layernorm_forward(T, &m->ln_full, tp__project(T, &m->qkv, x, 2, 3));
    tp_window_in in = { .q = q, .k = k, .v = v, .table = m->table };

    if (r > 0) {
        const tp_tensor p = local_rows(T, m, tp_linear_forward(T, &m->dynamic, x));
        in.low_k = tp_chunk_project(T, local_rows(T, m, k), p, TP_NONE, H, (int)N, r);
        in.low_v = tp_chunk_project(T, local_rows(T, m, v), p, TP_NONE, H, (int)N, r);
        in.low_k = tp_layernorm_forward(T, &m->ln_dp, in.low_k);
        in.low_v = tp_layernorm_forward(T, &m->ln_dp, in.low_v);
    }
    const tp_tensor local = tp_window_attention_2d(T, in, window_of(m, size));
    if (m->stage.global == 0) return local;
    const tp_tensor keys = tp_concat(T, 1, global_rows(T, m, k), local);
    const tp_tensor values = tp_concat(T, 1, global_rows(T, m, v), local);
    return tp_concat(T, 1, attend(T, m, global_rows(T, m, q), keys, values, TP_NONE), local);
}

static void check_map(tp_tape *T, const tp_vil_attn *m, tp_tensor x, const int64_t size[2])
{
    const long long g = (long long)m->stage.global, h = (long long)size[0], w = (long long)size[1];
    const bool fixed =
        m->kind == TP_VIL_LINFORMER || (m->kind == TP_VIL_FULL && tp_given(m->table));
    if (tp_ndim(x) != 3 || tp_dim(x, 1) != g + h * w)
        tp_raise(T, TP_E_SHAPE,
                 "%s: x must be [batch,%lld,width]: %lld global tokens, then a map of %lld x %lld",
                 m->path, g + h * w, g, h, w);
    else if (fixed && (h != m->map[0] || w != m->map[1]))
        tp_raise(T, TP_E_SHAPE, "%s: the map has %lld x %lld tokens, but the %s is for %lld x %lld",
                 m->path, h, w, m->kind == TP_VIL_FULL ? "table of positions" : "mixture",
                 (long long)m->map[0], (long long)m->map[1]);
}

/* The input of the last projection. */
static tp_tensor context(tp_tape *T, const tp_vil_attn *m, tp_tensor x, const int64_t size[2])
{
    switch (m->kind) {
    case TP_VIL_LINFORMER: return linformer(T, m, x);
    case TP_VIL_SRA: return reduced(T, m, x, size);
    case TP_VIL_PERFORMER: return tp__vil_performer(T, m, x);
    case TP_VIL_LS: return long_short(T, m, x, size);
    default: return full(T, m, x, size);
    }
}

tp_tensor tp_vil_attn_forward(tp_tape *T, const tp_vil_attn *m, tp_tensor x, const int64_t size[2])
{
    if (!tp_want_module(T, m, "vil_attn")) return TP_NONE;
    tp_enter(T, m->path);
    check_map(T, m, x, size);
    if (m->kind == TP_VIL_WINDOW || m->kind == TP_VIL_GLOBAL)
        return tp_leave(T, windows(T, m, x, size));
    return tp_leave(T, tp_linear_forward(T, &m->proj, context(T, m, x, size)));
}
