/* ref_ls.c - multiplies every query by every key and every row of both position tables; unseen keys
 * get a logit of -1e30. Visible keys and their distances follow the definition pair by pair and
 * share no code with the kernels. */
#include "ops/ref_ls.h"

#include <math.h>
#include <stdlib.h>

#include "tensor/rng.h"

/* [B,N,H D] -> [B,H,N,D] */
static tp_tensor split_heads(tp_tape *T, tp_tensor x, int64_t H)
{
    const int64_t B = tp_dim(x, 0), N = tp_dim(x, 1), D = tp_dim(x, 2) / H;
    return tp_permute(T, tp_reshape(T, x, TP_SHAPE(B, N, H, D)), TP_SHAPE(0, 2, 1, 3));
}

tp_tensor ref_chunk_project(tp_tape *T, tp_tensor x, tp_tensor scores, int heads, int chunk,
                            int rank)
{
    const int64_t B = tp_dim(x, 0), C = tp_dim(x, 1) / chunk, D = tp_dim(x, 2) / heads;
    const tp_tensor rows =
        tp_permute(T, tp_reshape(T, x, TP_SHAPE(B, C, chunk, heads, D)), TP_SHAPE(0, 1, 3, 2, 4));
    const tp_tensor z = tp_permute(T, tp_reshape(T, scores, TP_SHAPE(B, C, chunk, heads, rank)),
                                   TP_SHAPE(0, 1, 3, 4, 2));
    const tp_tensor y = tp_matmul(T, tp_softmax(T, z), rows); /* [B,C,H,r,D] */
    return tp_reshape(T, tp_permute(T, y, TP_SHAPE(0, 1, 3, 2, 4)),
                      TP_SHAPE(B, C * rank, heads * D));
}

/* ---- visible keys ---- */

typedef struct geometry {
    int64_t B, H, N, Wc, Cc, nc;
    const tp_ls_in *in;
    const tp_ls_attn_cfg *cfg;
} geometry;

/* The row of the table for query t and column j, or -1 if t does not see j. */
typedef int64_t (*row_fn)(const geometry *g, int64_t t, int64_t j);

static int64_t window_row(const geometry *g, int64_t t, int64_t s)
{
    const int64_t w = g->cfg->window, distance = g->Wc + t - s;
    if (distance < 0 || (g->cfg->masked && s < g->Wc - g->in->valid)) return -1;
    if (g->cfg->segment ? s < g->Wc + w * (t / w) - w : distance >= w) return -1;
    return g->cfg->clamp > 0 && distance > g->cfg->clamp ? g->cfg->clamp : distance;
}

static int64_t chunk_row(const geometry *g, int64_t t, int64_t v)
{
    const int64_t l = g->cfg->chunk, r = g->cfg->rank, c = v / r, j = v % r, m = t / l;
    const int64_t rho = (g->Cc + m - c) * r - 1 - j;
    if (c >= g->Cc + m) return -1;
    if (g->cfg->masked && c < g->Cc && c * l < g->in->cache - g->in->valid) return -1;
    return g->cfg->chunk_clamp > 0 && rho > g->cfg->chunk_clamp ? g->cfg->chunk_clamp : rho;
}

/* qc k^T + qp table^T gathered by distance, and -1e30 for unseen keys: [B,H,N,S]. */
static tp_tensor logits(tp_tape *T, const geometry *g, tp_tensor qc, tp_tensor qp, tp_tensor k,
                        tp_tensor table, row_fn row)
{
    const int64_t S = tp_dim(k, 2), n = g->B * g->H * g->N * S, rows = tp_dim(table, 0);
    const tp_shape s = TP_SHAPE(g->B, g->H, g->N, S);
    int64_t *index = malloc((size_t)n * sizeof *index + 1);
    uint8_t *seen = malloc((size_t)n + 1);
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = row(g, i / S % g->N, i % S);
        index[i] = at < 0 ? 0 : at;
        seen[i] = at >= 0;
    }
    const tp_tensor one = tp_reshape(T, table, TP_SHAPE(1, rows, -1));
    const tp_tensor heads = split_heads(T, one, g->H); /* [1,H,rows,D] */
    const tp_tensor all = tp_expand(T, heads, TP_SHAPE(g->B, g->H, rows, tp_dim(heads, 3)));
    const tp_tensor position =
        tp_gather(T, tp_matmul_t(T, qp, false, all, true), 3, tp_from(T, TP_I64, s, index));
    const tp_tensor sum = tp_add(T, tp_matmul_t(T, qc, false, k, true), position);
    const tp_tensor y =
        tp_where(T, tp_from(T, TP_U8, s, seen), sum, tp_full(T, tp_dtype_of(sum), s, -1e30));
    free(index);
    free(seen);
    return y;
}

/* 1 for queries that see at least one vector, else 0: [1,1,N,1]. */
static tp_tensor seeing(tp_tape *T, const geometry *g, tp_dtype dt)
{
    uint8_t *seen = calloc((size_t)g->N + 1, sizeof *seen);
    for (int64_t t = 0; t < g->N; t++)
        for (int64_t v = 0; v < g->nc; v++)
            if (chunk_row(g, t, v) >= 0) seen[t] = 1;
    const tp_tensor y = tp_cast(T, tp_from(T, TP_U8, TP_SHAPE(1, 1, g->N, 1), seen), dt);
    free(seen);
    return y;
}

/* p [B,H,N,rows+nc] times the dropout factors from the words that the op would draw next, for
 * [B,H,N,nc+rows]. */
static tp_tensor drop(tp_tape *T, const geometry *g, tp_tensor p)
{
    const int64_t S = tp_dim(p, 3), rows = S - g->nc, n = g->B * g->H * g->N * S;
    const uint32_t below = tp__drop_below(g->cfg->dropout);
    double *keep = malloc((size_t)n * sizeof *keep + 1);
    uint64_t seed, offset;
    tp_random_state(T, &seed, &offset);
    for (int64_t i = 0; i < n; i++) {
        const int64_t key = i % S < rows ? g->nc + i % S : i % S - rows;
        const uint32_t word = tp__word(seed, offset, (uint64_t)(i / S * S + key));
        keep[i] = word < below ? 0 : 1 / (1 - g->cfg->dropout);
    }
    const tp_tensor y = tp_mul(T, p, tp_from(T, TP_F64, TP_SHAPE(g->B, g->H, g->N, S), keep));
    free(keep);
    return y;
}

tp_tensor ref_ls_attention(tp_tape *T, tp_ls_in in, tp_ls_attn_cfg cfg)
{
    const int64_t H = cfg.heads, N = tp_dim(in.q, 1), D = tp_dim(in.q, 2) / H;
    const int64_t nc = tp_given(in.k_cmp) ? tp_dim(in.k_cmp, 1) : 0;
    const geometry g = { .B = tp_dim(in.q, 0),
                         .H = H,
                         .N = N,
                         .Wc = cfg.window ? tp_dim(in.k_win, 1) - N : 0,
                         .Cc = cfg.rank ? nc / cfg.rank - N / cfg.chunk : 0,
                         .nc = nc,
                         .in = &in,
                         .cfg = &cfg };
    const tp_tensor q = split_heads(T, tp_scale(T, in.q, 1.0 / sqrt((double)D)), H);
    tp_tensor e = TP_NONE, v = TP_NONE;
    if (cfg.window > 0) {
        const tp_tensor qw = tp_add(T, q, tp_reshape(T, in.r_w, TP_SHAPE(H, 1, D)));
        const tp_tensor qr = tp_add(T, q, tp_reshape(T, in.r_r, TP_SHAPE(H, 1, D)));
        e = logits(T, &g, qw, qr, split_heads(T, in.k_win, H), in.pos_win, window_row);
        v = split_heads(T, in.v_win, H);
    }
    if (nc > 0) {
        const tp_tensor k = split_heads(T, in.k_cmp, H), far = split_heads(T, in.v_cmp, H);
        const tp_tensor a = logits(T, &g, q, q, k, in.pos_cmp, chunk_row);
        e = tp_given(e) ? tp_concat(T, 3, e, a) : a;
        v = tp_given(v) ? tp_concat(T, 2, v, far) : far;
    }
    if (!tp_given(e)) return tp_scale(T, in.q, 0.0);
    tp_tensor p = tp_softmax(T, e);
    if (cfg.dropout > 0) p = drop(T, &g, p);
    tp_tensor y = tp_matmul(T, p, v); /* [B,H,N,D] */
    if (cfg.window == 0) y = tp_mul(T, y, seeing(T, &g, tp_dtype_of(y)));
    return tp_reshape(T, tp_permute(T, y, TP_SHAPE(0, 2, 1, 3)), TP_SHAPE(g.B, N, H * D));
}
