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
#include <math.h>

#include "inner.h"

/* ---- parameters ---- */

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

/* Declares a global-query projection: new parameters, or aliases of the local one. */
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

void tp__vil_attn_init(tp_params *P, void *module, const char *name, const void *cfg)
{
    tp_vil_attn *m = module;
    const tp_vil_part_cfg *part = cfg;
    const tp_vil_cfg *c = part->model;
    const int stage = part->stage;
    const int64_t d = c->stage[stage].dim;
    const bool bias = !c->linear_qkv;

    *m = (tp_vil_attn){ .path = tp_push(P, name),
                        .kind = c->stage[stage].dense ? TP_VIL_FULL : c->kind,
                        .stage = c->stage[stage],
                        .edge = c->edge,
                        .shift = c->shift,
                        .mask_wrapped = c->mask_wrapped,
                        .separate_global = c->separate_global,
                        .distinct_bias = c->distinct_bias };
    tp__vil_map(c, stage, m->map);
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
    init_kind(P, m, c);
    tp_pop(P);
}

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

/* Row of g2l, [H,g]: bias of global queries and local keys (0), or local queries and global keys
 * (1). */
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

/* Selects the neighbouring chunks visible in this call. */
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
    const tp_tensor k = tp_linear_part(T, &m->kv, x, 0, 2), v = tp_linear_part(T, &m->kv, x, 1, 2);
    const tp_tensor local = local_attention(T, m, q, k, v, size);
    if (m->stage.global == 0) return tp_linear_forward(T, &m->proj, local);

    const tp_tensor bias = global_query_bias(T, m, size[0] * size[1]);
    if (!m->separate_global) {
        const tp_tensor global = attend(T, m, global_rows(T, m, q), k, v, bias);
        return tp_linear_forward(T, &m->proj, tp_concat(T, 1, global, local));
    }
    const tp_tensor own = tp_linear_forward(T, &m->query_global, global_rows(T, m, x));
    const tp_tensor keys = tp_linear_part(T, &m->kv_global, x, 0, 2);
    const tp_tensor values = tp_linear_part(T, &m->kv_global, x, 1, 2);
    const tp_tensor global = attend(T, m, own, keys, values, bias);
    return tp_concat(T, 1, tp_linear_forward(T, &m->proj_global, global),
                     tp_linear_forward(T, &m->proj, local));
}

static tp_tensor full(tp_tape *T, const tp_vil_attn *m, tp_tensor x, const int64_t size[2])
{
    const tp_tensor q = tp_linear_part(T, &m->qkv, x, 0, 3),
                    k = tp_linear_part(T, &m->qkv, x, 1, 3);
    const tp_tensor v = tp_linear_part(T, &m->qkv, x, 2, 3);
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
    const tp_tensor k = mixed(T, m->proj_k, tp_linear_part(T, &m->kv, x, 0, 2));
    const tp_tensor v = mixed(T, m->proj_v, tp_linear_part(T, &m->kv, x, 1, 2));
    return attend(T, m, q, k, v, TP_NONE);
}

static tp_tensor reduced(tp_tape *T, const tp_vil_attn *m, tp_tensor x, const int64_t size[2])
{
    const int64_t B = tp_dim(x, 0), d = m->stage.dim;
    const tp_tensor map = tp_reshape(T, local_rows(T, m, x), TP_SHAPE(B, size[0], size[1], d));
    tp_tensor z = tp_conv2d_forward(T, &m->proj_sr, map);
    z = tp_reshape(T, tp_instancenorm(T, z, TP_NONE, TP_NONE, 1e-5), TP_SHAPE(B, -1, d));
    if (m->stage.global) z = tp_concat(T, 1, global_rows(T, m, x), z);
    const tp_tensor k = tp_linear_part(T, &m->kv, z, 0, 2), v = tp_linear_part(T, &m->kv, z, 1, 2);
    return attend(T, m, tp_linear_forward(T, &m->query, x), k, v, TP_NONE);
}

/* ---- Performer ----
 *
 * Attention by positive random features (Choromanski et al. 2021), as in the official code of
 * Vision Longformer.
 *
 *     u = W z D^(-1/4),  c = |z|^2 D^(-1/2) / 2,  phi(z) = exp(u - c - mu) + 1e-4
 *     out = phi(q) (phi(k)^T v) / (phi(q) sum phi(k))
 *
 * mu is the largest u of a query; for keys, over all keys, heads and images of the call. Because of
 * the 1e-4, its gradient is small but not zero. Upstream's factor m^(-1/2) of phi cancels. In mixed
 * precision products take bf16, exponents are f32. */

/* x [B,N,H D] -> [B,H,N,D] */
static tp_tensor heads_of(tp_tape *T, const tp_vil_attn *m, tp_tensor x)
{
    const int64_t B = tp_dim(x, 0), N = tp_dim(x, 1), H = m->stage.heads;
    const tp_tensor split = tp_reshape(T, x, TP_SHAPE(B, N, H, m->stage.dim / H));
    return tp_permute(T, split, TP_SHAPE(0, 2, 1, 3));
}

/* z [B,H,N,D] -> phi [B,H,N,m], of z's dtype */
static tp_tensor features_of(tp_tape *T, const tp_vil_attn *m, tp_tensor z, bool keys)
{
    const double D = (double)tp_dim(z, 3);
    const tp_shape each = TP_SHAPE(tp_dim(z, 0), tp_dim(z, 1), tp_dim(z, 2), 1);
    const tp_dtype dt = tp_dtype_of(z), wide = dt == TP_BF16 ? TP_F32 : dt;
    const tp_tensor w = tp_cast(T, m->features, dt);
    const tp_tensor u =
        tp_cast(T, tp_linear(T, tp_scale(T, z, pow(D, -0.25)), w, TP_NONE, TP_ACT_NONE), wide);
    const tp_tensor c =
        tp_scale(T, tp_sum(T, tp_square(T, tp_cast(T, z, wide)), -1), 0.5 / sqrt(D));
    const tp_tensor mu = tp_max(T, u, keys ? TP_ALL : -1);
    const tp_tensor top = tp_reshape(T, tp_add(T, c, mu), each);
    const tp_tensor e = tp_exp(T, tp_sub(T, u, top));
    return tp_cast(T, tp_add(T, e, tp_full(T, wide, TP_SCALAR, 1e-4)), dt);
}

static tp_tensor performer(tp_tape *T, const tp_vil_attn *m, tp_tensor x)
{
    const int64_t B = tp_dim(x, 0), N = tp_dim(x, 1), H = m->stage.heads, D = m->stage.dim / H;
    const tp_tensor q =
        features_of(T, m, heads_of(T, m, tp_linear_part(T, &m->qkv, x, 0, 3)), false);
    const tp_tensor k =
        features_of(T, m, heads_of(T, m, tp_linear_part(T, &m->qkv, x, 1, 3)), true);
    const tp_tensor v = heads_of(T, m, tp_linear_part(T, &m->qkv, x, 2, 3));
    const int64_t M = tp_dim(k, 3);

    const tp_tensor kv = tp_matmul_t(T, k, true, v, false); /* [B,H,m,D] */
    const tp_tensor sum = tp_reshape(T, tp_sum(T, k, 2), TP_SHAPE(B, H, M, 1));
    const tp_tensor y = tp_div(T, tp_matmul(T, q, kv), tp_matmul(T, q, sum));
    return tp_reshape(T, tp_permute(T, y, TP_SHAPE(0, 2, 1, 3)), TP_SHAPE(B, N, H * D));
}

/* ---- long-short ---- */

/* Long-short attention: the global row attends to the outputs of the local ones. */
static tp_tensor long_short(tp_tape *T, const tp_vil_attn *m, tp_tensor x, const int64_t size[2])
{
    const int H = m->stage.heads, r = m->stage.rank;
    const int64_t N = size[0] * size[1];
    const tp_tensor q = tp_linear_part(T, &m->qkv, x, 0, 3);
    const tp_tensor k = tp_layernorm_forward(T, &m->ln_full, tp_linear_part(T, &m->qkv, x, 1, 3));
    const tp_tensor v = tp_layernorm_forward(T, &m->ln_full, tp_linear_part(T, &m->qkv, x, 2, 3));
    tp_window_in in = { .q = q, .k = k, .v = v, .table = m->table };

    if (r > 0) {
        const tp_tensor p = local_rows(T, m, tp_linear_forward(T, &m->dynamic, x));
        const tp_tensor rows_k = local_rows(T, m, k), rows_v = local_rows(T, m, v);
        const tp_kv low = tp_chunk_project_kv(T, rows_k, rows_v, p, TP_NONE, H, (int)N, r);
        in.low_k = tp_layernorm_forward(T, &m->ln_dp, low.k);
        in.low_v = tp_layernorm_forward(T, &m->ln_dp, low.v);
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
    case TP_VIL_PERFORMER: return performer(T, m, x);
    case TP_VIL_LS: return long_short(T, m, x, size);
    default: return full(T, m, x, size);
    }
}

tp_tensor tp__vil_attn(tp_tape *T, const void *module, void *with, tp_tensor x)
{
    const tp_vil_attn *m = module;
    const int64_t *size = with;
    tp_enter(T, m->path);
    check_map(T, m, x, size);
    if (m->kind == TP_VIL_WINDOW || m->kind == TP_VIL_GLOBAL)
        return tp_leave(T, windows(T, m, x, size));
    return tp_leave(T, tp_linear_forward(T, &m->proj, context(T, m, x, size)));
}
