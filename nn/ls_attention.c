/* ls_attention.c - the language model's long-short attention (Transformer-LS, sections 3.1-3.3).
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
 * values are used as projected. Unused parameters are not created. */
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
    }
    const int64_t H = cfg.attn.heads, D = dim / H;
    const tp_init normal = { TP_INIT_NORMAL, 0.02, 0.0 };

    *m = (tp_ls_attn_m){ .path = tp_push(P, name), .cfg = cfg };
    tp_linear_init(P, &m->proj_query, "proj_query", dim, dim, bias);
    tp_linear_init(P, &m->proj_key, "proj_key", dim, dim, bias);
    tp_linear_init(P, &m->proj_val, "proj_val", dim, dim, bias);
    tp_linear_init(P, &m->proj_out, "proj_out", dim, dim, bias);
    if (cfg.attn.rank > 0) tp_linear_init(P, &m->dconv_1, "dconv_1", dim, H * cfg.attn.rank, true);
    if (cfg.attn.window > 0) tp_linear_init(P, &m->r_net, "r_net", dim, dim, false);
    if (cfg.attn.rank > 0) tp_linear_init(P, &m->r_net_chunk, "r_net_chunk", dim, dim, true);
    if (!cfg.raw_kv && (cfg.attn.window > 0 || cfg.ln_local))
        tp_layernorm_init(P, &m->dual_ln.local, "dual_ln_win", dim, 1e-5);
    if (!cfg.raw_kv && cfg.attn.rank > 0)
        tp_layernorm_init(P, &m->dual_ln.global, "dual_ln_dproj", dim, 1e-5);
    if (cfg.attn.window > 0) {
        m->r_w_bias = tp_param(P, "r_w_bias", TP_SHAPE(1, H, 1, 1, D), normal, 0);
        m->r_r_bias = tp_param(P, "r_r_bias", TP_SHAPE(1, H, 1, D), normal, 0);
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
    if (!tp_given(m->weight)) return x;
    return (tp_kv){ tp_layernorm_forward(T, m, x.k), tp_layernorm_forward(T, m, x.v) };
}

tp_kv tp_ls_attn_rows(tp_tape *T, const tp_ls_attn_m *m, tp_tensor x, tp_kv *window)
{
    if (!tp_want_module(T, m, "ls_attn")) return (tp_kv){ TP_NONE, TP_NONE };
    const tp_kv raw = { tp_linear_forward(T, &m->proj_key, x),
                        tp_linear_forward(T, &m->proj_val, x) };

    *window = norm_rows(T, &m->dual_ln.local, raw);
    return m->cfg.ln_local ? *window : raw;
}

tp_kv tp_ls_attn_compress(tp_tape *T, const tp_ls_attn_m *m, tp_tensor x, const tp_kv *rows)
{
    if (!tp_want_module(T, m, "ls_attn")) return (tp_kv){ TP_NONE, TP_NONE };
    const tp_ls_attn_cfg *c = &m->cfg.attn;
    const tp_tensor z = tp_linear_forward(T, &m->dconv_1, x);
    tp_kv y;

    if (rows) {
        y = tp_chunk_project_kv(T, rows->k, rows->v, z, TP_NONE, c->heads, c->chunk, c->rank);
    } else {
        const tp_tensor old = tp_chunk_project(T, x, z, TP_NONE, c->heads, c->chunk, c->rank);
        y.k = tp_linear_forward(T, &m->proj_key, old);
        y.v = tp_linear_forward(T, &m->proj_val, old);
    }
    return norm_rows(T, &m->dual_ln.global, y);
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

/* Compresses the cache, then the segment h. rows: keys and values of all projected rows; those of h
 * come last. */
static tp_kv compress_all(tp_tape *T, const tp_ls_attn_m *m, tp_tensor h, tp_tensor cache,
                          tp_tensor x, tp_kv rows)
{
    if (m->cfg.project_first) return tp_ls_attn_compress(T, m, x, &rows);
    const int64_t M = tp_dim(h, 1);
    const tp_kv own = slice_rows(T, rows, tp_dim(x, 1) - M, M);
    const tp_kv before = tp_ls_attn_compress(T, m, cache, NULL);
    const tp_kv now = tp_ls_attn_compress(T, m, h, &own);
    return (tp_kv){ tp_concat(T, 1, before.k, now.k), tp_concat(T, 1, before.v, now.v) };
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
        .r_w = m->r_w_bias,
        .r_r = m->r_r_bias,
        .cache = L,
        .valid = ctx.valid,
    };
    return tp_leave(T, tp_linear_forward(T, &m->proj_out, tp_ls_attention(T, in, op)));
}
