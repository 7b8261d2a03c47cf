/* ls_attention.c - the language model's long-short attention (Transformer-LS, sections 3.1-3.4).
 *
 * Each token attends, under one softmax, to a window of projected rows and to `rank` dynamic
 * projections of every chunk before its own. Rows are the cache followed by the segment:
 *
 *     window   K = proj_key(x) of the last w cached rows and the segment, normalised
 *     segment  project, then compress: chunk_project(K)
 *     cache    compress, then project: proj_key(chunk_project(x)); project_first: as the segment
 *
 * The window's cached and new rows are projected in one product; their parts are views for a batch
 * of one, else copies. The two compression orders differ with two or more heads: a dense projection
 * mixes slices weighted by different heads.
 *
 * Ablations: rank 0 leaves only the window, window 0 only the projections; without DualLN, keys and
 * values are used as projected; with window_heads, each head sees one of both, by one op for each
 * group of heads. Unused parameters are not created. */
#include <stdio.h>
#include <tapegrad/nn.h>
#include <tapegrad/tape.h>
#include <tapegrad/tensor.h>

bool tp_ls_cfg_check(const tp_ls_cfg *cfg, int64_t dim, char *why, size_t size)
{
    char dropped[4];
    if (!why) {
        why = dropped;
        size = sizeof dropped;
    }
    if (!cfg) {
        snprintf(why, size, "NULL was given in place of a configuration");
        return false;
    }
    const tp_ls_attn_cfg *c = &cfg->attn;
    const long long d = (long long)dim;

    why[0] = '\0';
    if (c->heads < 1 || dim < 1 || dim % c->heads)
        snprintf(why, size, "the width %lld does not divide into %d heads", d, c->heads);
    else if (dim % 2)
        snprintf(why, size, "the width %lld is odd: sinusoidal positions come in pairs", d);
    else if (c->window < 0)
        snprintf(why, size, "the window cannot hold %d tokens", c->window);
    else if (c->chunk < 1)
        snprintf(why, size, "the chunk length must be at least 1, not %d", c->chunk);
    else if (c->rank < 0)
        snprintf(why, size, "the chunk rank must be at least 0, not %d", c->rank);
    else if (c->window == 0 && c->rank == 0)
        snprintf(why, size, "neither a window nor projected vectors: a token would see nothing");
    else if (c->window == 0 && c->segment)
        snprintf(why, size, "a segment-wise window needs a window");
    else if (cfg->window_heads < 0 || cfg->window_heads >= c->heads)
        snprintf(why, size, "%d of %d heads see only the window: 0, or fewer than all",
                 cfg->window_heads, c->heads);
    else if (cfg->window_heads && (c->window == 0 || c->rank == 0))
        snprintf(why, size, "separate heads need both a window and projected vectors");
    return !why[0];
}

void tp_ls_attn_init(tp_params *P, tp_ls_attn_m *m, const char *name, int64_t dim, bool bias,
                     tp_ls_cfg cfg)
{
    if (!tp_params_want_module(P, m, "ls_attn")) return;
    char why[128];

    if (!tp_ls_cfg_check(&cfg, dim, why, sizeof why)) {
        tp_params_raise(P, TP_E_VALUE, "long-short attention %s: %s", name, why);
        cfg.attn.heads = cfg.attn.chunk = 1; /* P has failed; avoids divisions by zero */
        cfg.window_heads = 0;
    }
    const int64_t H = cfg.attn.heads, D = dim / H;
    const int64_t near = cfg.window_heads ? cfg.window_heads : H; /* heads that see the window */
    const int64_t far = H - cfg.window_heads;
    const tp_init normal = { TP_INIT_NORMAL, 0.02, 0.0 };

    *m = (tp_ls_attn_m){ .path = tp_push(P, name), .cfg = cfg };
    tp_linear_init(P, &m->proj_query, "proj_query", dim, dim, bias);
    tp_linear_init(P, &m->proj_key, "proj_key", dim, dim, bias);
    tp_linear_init(P, &m->proj_val, "proj_val", dim, dim, bias);
    tp_linear_init(P, &m->proj_out, "proj_out", dim, dim, bias);
    if (cfg.attn.rank > 0) tp_linear_init(P, &m->dconv_1, "dconv_1", dim, H * cfg.attn.rank, true);
    if (cfg.attn.window > 0) tp_linear_init(P, &m->r_net, "r_net", dim, near * D, false);
    if (cfg.attn.rank > 0) tp_linear_init(P, &m->r_net_chunk, "r_net_chunk", dim, far * D, true);
    if (!cfg.raw_kv && (cfg.attn.window > 0 || cfg.ln_local))
        tp_layernorm_init(P, &m->dual_ln.local, "dual_ln_win", dim, 1e-5);
    if (!cfg.raw_kv && cfg.attn.rank > 0)
        tp_layernorm_init(P, &m->dual_ln.global, "dual_ln_dproj", dim, 1e-5);
    if (cfg.attn.window > 0) {
        m->r_w_bias = tp_param(P, "r_w_bias", TP_SHAPE(1, near, 1, 1, D), normal, 0);
        m->r_r_bias = tp_param(P, "r_r_bias", TP_SHAPE(1, near, 1, D), normal, 0);
    }
    tp_pop(P);
}

static tp_kv slice_rows(tp_tape *T, tp_kv x, int64_t start, int64_t count)
{
    return (tp_kv){ tp_slice(T, x.k, 1, start, count), tp_slice(T, x.v, 1, start, count) };
}

/* Absent norms are identities. */
static tp_kv norm_rows(tp_tape *T, const tp_layernorm_m *m, tp_kv x)
{
    return tp_given(m->weight) ? tp_layernorm_forward_kv(T, m, x) : x;
}

tp_kv tp_ls_attn_rows(tp_tape *T, const tp_ls_attn_m *m, tp_tensor x, tp_kv *window)
{
    if (!tp_want_module(T, m, "ls_attn")) return (tp_kv){ TP_NONE, TP_NONE };
    const tp_kv raw = { tp_linear_forward(T, &m->proj_key, x),
                        tp_linear_forward(T, &m->proj_val, x) };

    *window = norm_rows(T, &m->dual_ln.local, raw);
    return m->cfg.ln_local ? *window : raw;
}

/* Without the norm. */
static tp_kv compress(tp_tape *T, const tp_ls_attn_m *m, tp_tensor x, const tp_kv *rows)
{
    const tp_ls_attn_cfg *c = &m->cfg.attn;
    const tp_tensor z = tp_linear_forward(T, &m->dconv_1, x);
    if (rows)
        return tp_chunk_project_kv(T, rows->k, rows->v, z, TP_NONE, c->heads, c->chunk, c->rank);
    const tp_tensor old = tp_chunk_project(T, x, z, TP_NONE, c->heads, c->chunk, c->rank);
    return (tp_kv){ tp_linear_forward(T, &m->proj_key, old),
                    tp_linear_forward(T, &m->proj_val, old) };
}

tp_kv tp_ls_attn_compress(tp_tape *T, const tp_ls_attn_m *m, tp_tensor x, const tp_kv *rows)
{
    if (!tp_want_module(T, m, "ls_attn")) return (tp_kv){ TP_NONE, TP_NONE };
    return norm_rows(T, &m->dual_ln.global, compress(T, m, x, rows));
}

/* The channels of heads first .. first+count-1; TP_NONE of TP_NONE. */
static tp_tensor heads_of(tp_tape *T, tp_tensor x, int heads, int first, int count)
{
    if (!tp_given(x)) return x;
    const int64_t D = tp_dim(x, -1) / heads;
    return tp_slice(T, x, -1, first * D, count * D);
}

tp_tensor tp_ls_attn_attend(tp_tape *T, const tp_ls_attn_m *m, tp_ls_in in, tp_ls_attn_cfg op)
{
    if (!tp_want_module(T, m, "ls_attn")) return TP_NONE;
    const int H = m->cfg.attn.heads, near = m->cfg.window_heads, far = H - near;
    in.r_w = m->r_w_bias;
    in.r_r = m->r_r_bias;
    op.heads = H;
    if (near == 0) return tp_ls_attention(T, in, op);

    tp_ls_in window = in, vectors = in;
    tp_ls_attn_cfg a = op, b = op;
    window.q = heads_of(T, in.q, H, 0, near);
    window.k_win = heads_of(T, in.k_win, H, 0, near);
    window.v_win = heads_of(T, in.v_win, H, 0, near);
    window.k_cmp = window.v_cmp = window.pos_cmp = TP_NONE;
    a.heads = near;
    a.rank = 0;
    vectors.q = heads_of(T, in.q, H, near, far);
    vectors.k_cmp = heads_of(T, in.k_cmp, H, near, far);
    vectors.v_cmp = heads_of(T, in.v_cmp, H, near, far);
    vectors.k_win = vectors.v_win = vectors.pos_win = vectors.r_w = vectors.r_r = TP_NONE;
    b.heads = far;
    b.window = 0;
    b.segment = false;
    const tp_tensor y = tp_ls_attention(T, window, a);
    return tp_concat(T, 2, y, tp_ls_attention(T, vectors, b));
}

/* Checks the official code's conditions for M rows after a cache of L. */
static void check_geometry(tp_tape *T, const tp_ls_attn_m *a, int64_t M, int64_t L)
{
    const tp_ls_attn_cfg *c = &a->cfg.attn;
    const long long m = (long long)M, l = (long long)L;

    if (M % c->chunk)
        tp_raise_here(T, TP_E_SHAPE,
                      "%s: a segment of %lld rows is not a multiple of the chunk length %d",
                      a->path, m, c->chunk);
    else if (L % c->chunk)
        tp_raise_here(T, TP_E_SHAPE,
                      "%s: a cache of %lld rows is not a multiple of the chunk length %d", a->path,
                      l, c->chunk);
    else if (c->window > 0 && M > c->window && M % c->window)
        tp_raise_here(T, TP_E_SHAPE,
                      "%s: a segment of %lld rows is longer than the window "
                      "of %d rows and not a multiple of it: pad it",
                      a->path, m, c->window);
    else if (L < c->window && !c->masked)
        tp_raise_here(
            T, TP_E_SHAPE,
            "%s: a cache of %lld rows is shorter than the window of %d rows: lengthen it, or "
            "set the option masked",
            a->path, l, c->window);
}

/* Compresses the cache, then the segment h, and normalises both at once. rows: keys and values of
 * all projected rows; those of h come last. */
static tp_kv compress_all(tp_tape *T, const tp_ls_attn_m *m, tp_tensor h, tp_tensor cache,
                          tp_tensor x, tp_kv rows)
{
    if (m->cfg.project_first) return tp_ls_attn_compress(T, m, x, &rows);
    const int64_t M = tp_dim(h, 1);
    const tp_kv own = slice_rows(T, rows, tp_dim(x, 1) - M, M);
    const tp_kv before = compress(T, m, cache, NULL), now = compress(T, m, h, &own);
    const tp_kv all = { tp_concat(T, 1, before.k, now.k), tp_concat(T, 1, before.v, now.v) };
    return norm_rows(T, &m->dual_ln.global, all);
}

tp_tensor tp_ls_attn_forward(tp_tape *T, const tp_ls_attn_m *m, tp_tensor h, tp_tensor cache,
                             tp_ls_context ctx)
{
    if (!tp_want_module(T, m, "ls_attn")) return TP_NONE;
    tp_enter(T, m->path);
    const int64_t M = tp_dim(h, 1), L = tp_dim(cache, 1);
    const bool wide = m->cfg.attn.window > 0, far = m->cfg.attn.rank > 0;
    const int64_t w = m->cfg.attn.window, near = L < w ? L : w; /* cached rows of the window */
    const int64_t old = far && m->cfg.project_first ? L : near; /* cached rows projected */
    check_geometry(T, m, M, L);

    const tp_tensor x = tp_concat(T, 1, tp_slice(T, cache, 1, L - old, old), h);
    tp_kv window, cmp = { TP_NONE, TP_NONE };
    const tp_kv rows = tp_ls_attn_rows(T, m, x, &window);
    window = wide ? slice_rows(T, window, old - near, near + M) : cmp;
    if (far) cmp = compress_all(T, m, h, cache, x, rows);

    tp_ls_attn_cfg op = m->cfg.attn;
    op.clamp = op.chunk_clamp = 0; /* tables are already clamped */
    const tp_ls_in in = {
        .q = tp_linear_forward(T, &m->proj_query, h),
        .k_win = window.k,
        .v_win = window.v,
        .k_cmp = cmp.k,
        .v_cmp = cmp.v,
        .pos_win = wide ? tp_linear_forward(T, &m->r_net, ctx.pos_win) : TP_NONE,
        .pos_cmp = far ? tp_linear_forward(T, &m->r_net_chunk, ctx.pos_cmp) : TP_NONE,
        .cache = L,
        .valid = ctx.valid,
    };
    return tp_leave(T, tp_linear_forward(T, &m->proj_out, tp_ls_attn_attend(T, m, in, op)));
}
