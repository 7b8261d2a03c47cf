/* ref_map.c - attention over maps in plain ops: gather, embedding, where, softmax, matmul. */
#include "ops/ref_map.h"

#include <math.h>
#include <stdlib.h>

#include "tensor/rng.h"

/* ---- windows ---- */

/* n keys for each query. A key has a row of [low; q's tokens; zeros], a row of [table; global
 * biases; zero], and a visibility flag. */
typedef struct list {
    int64_t n, low, global, cells, rows, stride, reach[2];
    int64_t *key, *bias;
    uint8_t *seen;
} list;

static void put(list *l, int64_t query, int64_t *at, int64_t key, int64_t bias)
{
    const int64_t e = query * l->n + (*at)++;
    l->key[e] = key;
    l->bias[e] = bias;
    l->seen[e] = 1;
}

/* Appends the key at nominal position (jy,jx) for query (iy,ix). Its contents come from (sy,sx) and
 * are zero outside the map. */
static void put_cell(list *l, const tp_window_attn_cfg *c, int64_t iy, int64_t ix, int64_t *at,
                     int64_t jy, int64_t jx, int64_t sy, int64_t sx)
{
    const bool inside = sy >= 0 && sy < c->height && sx >= 0 && sx < c->width;
    const int64_t cell = l->low + l->global + sy * c->width + sx;
    const int64_t zero = l->low + l->global + l->cells;
    const int64_t row = (iy - jy + l->reach[0]) * l->stride + ix - jx + l->reach[1];
    put(l, iy * c->width + ix, at, inside ? cell : zero, l->rows ? row : l->global);
}

/* True if a query sees the block at offset (dy,dx). */
static bool uses(const tp_window_attn_cfg *c, int64_t dy, int64_t dx)
{
    static const int8_t place[9][2] = { { 0, 0 }, { -1, -1 }, { -1, 0 }, { -1, 1 }, { 0, -1 },
                                        { 0, 1 }, { 1, -1 },  { 1, 0 },  { 1, 1 } };
    if (dy == 0 && dx == 0) return true;
    if (c->block == TP_BLOCK_OWN || c->halo[0] == 0) return false;
    return c->block == TP_BLOCK_ALL || (place[c->block][0] == dy && place[c->block][1] == dx);
}

static int64_t chunks(int64_t size, int64_t window)
{
    return (size + window - 1) / window;
}

static void list_cyclic(list *l, const tp_window_attn_cfg *c, int64_t iy, int64_t ix, int64_t *at)
{
    const int64_t w0 = c->window[0], w1 = c->window[1];
    const int64_t my = chunks(c->height, w0), mx = chunks(c->width, w1);
    for (int64_t dy = -1; dy <= 1; dy++)
        for (int64_t dx = -1; dx <= 1; dx++)
            for (int64_t t = 0; uses(c, dy, dx) && t < w0 * w1; t++) {
                const int64_t cy = iy / w0 + dy, cx = ix / w1 + dx;
                const int64_t jy = cy * w0 + t / w1, jx = cx * w1 + t % w1;
                const int64_t sy = (cy + my) % my * w0 + t / w1, sx = (cx + mx) % mx * w1 + t % w1;
                const bool hidden = (cy == my - 1 && jy >= c->height) ||
                                    (cx == mx - 1 && jx >= c->width) ||
                                    (c->mask_wrapped && (sy >= c->height || sx >= c->width));
                if (!hidden) put_cell(l, c, iy, ix, at, jy, jx, sy, sx);
            }
}

static bool near(const tp_window_attn_cfg *c, int64_t dy, int64_t dx)
{
    return llabs(dy) <= c->halo[0] && llabs(dx) <= c->halo[1];
}

static void list_map(list *l, const tp_window_attn_cfg *c, int64_t iy, int64_t ix, int64_t *at)
{
    const int64_t w0 = c->window[0], w1 = c->window[1], cy = iy / w0, cx = ix / w1;
    const bool own = c->block == TP_BLOCK_OWN;
    const int64_t h0 = own ? 0 : c->halo[0], h1 = own ? 0 : c->halo[1];
    for (int64_t jy = 0; jy < c->height; jy++)
        for (int64_t jx = 0; jx < c->width; jx++) {
            const bool reach = jy >= cy * w0 - h0 && jy < (cy + 1) * w0 + h0 &&
                               jx >= cx * w1 - h1 && jx < (cx + 1) * w1 + h1;
            const bool block = c->block <= 0 || uses(c, jy / w0 - cy, jx / w1 - cx);
            const bool far = c->edge == TP_EDGE_EXACT && !near(c, jy - iy, jx - ix);
            if (reach && block && !far) put_cell(l, c, iy, ix, at, jy, jx, jy, jx);
        }
}

static list make_list(const tp_window_in *in, const tp_window_attn_cfg *c)
{
    list l = {
        .low = tp_given(in->low_k) ? tp_dim(in->low_k, 1) : 0,
        .global = c->global,
        .cells = c->height * c->width,
        .rows = tp_given(in->table) ? tp_dim(in->table, 0) : 0,
    };
    for (int i = 0; i < 2; i++)
        l.reach[i] = c->reach[i] ? c->reach[i] : c->window[i] + c->halo[i] - 1;
    l.stride = c->stride ? c->stride : 2 * l.reach[1] + 1;
    l.n = l.low + l.global + l.cells + 9 * c->window[0] * c->window[1];
    const size_t total = (size_t)(l.cells * l.n) + 1;
    l.key = calloc(total, sizeof *l.key);
    l.bias = calloc(total, sizeof *l.bias);
    l.seen = calloc(total, 1);
    for (int64_t i = 0; i < l.cells; i++) {
        int64_t at = 0;
        for (int64_t j = 0; j < l.low + l.global; j++) /* low keys have the zero bias */
            put(&l, i, &at, j, l.rows + (j < l.low ? l.global : j - l.low));
        if (c->window[0] == 0) continue;
        (c->edge == TP_EDGE_CYCLIC ? list_cyclic : list_map)(&l, c, i / c->width, i % c->width,
                                                             &at);
    }
    return l;
}

/* Gathers [low; x; zeros] by the lists: [B,N,n,H,D]. */
static tp_tensor gather(tp_tape *T, const list *l, tp_tensor low, tp_tensor x, int64_t heads)
{
    const int64_t B = tp_dim(x, 0), C = tp_dim(x, 2), n = l->cells * l->n;
    const tp_tensor zero = tp_full(T, tp_dtype_of(x), TP_SHAPE(B, 1, C), 0.0);
    const tp_tensor all = tp_given(low) ? tp_concat_n(T, 1, 3, (tp_tensor[]){ low, x, zero })
                                        : tp_concat_n(T, 1, 2, (tp_tensor[]){ x, zero });
    int64_t *at = malloc((size_t)(B * n * C + 1) * sizeof *at);
    for (int64_t e = 0; e < B * n * C; e++) at[e] = l->key[e / C % n];
    const tp_tensor y = tp_gather(T, all, 1, tp_from(T, TP_I64, TP_SHAPE(B, n, C), at));
    free(at);
    return tp_reshape(T, y, TP_SHAPE(B, l->cells, l->n, heads, C / heads));
}

/* The biases of the lists: [N,H,n]. */
static tp_tensor biases(tp_tape *T, const list *l, tp_window_in in, tp_dtype dt, int64_t heads)
{
    tp_tensor rows[3];
    int n = 0;
    if (l->rows) rows[n++] = in.table;
    if (l->global)
        rows[n++] = tp_given(in.global_bias) ? tp_permute(T, in.global_bias, TP_SHAPE(1, 0))
                                             : tp_full(T, dt, TP_SHAPE(l->global, heads), 0.0);
    rows[n++] = tp_full(T, dt, TP_SHAPE(1, heads), 0.0);
    const tp_tensor ids = tp_from(T, TP_I64, TP_SHAPE(l->cells, l->n), l->bias);
    return tp_permute(T, tp_embedding(T, tp_concat_n(T, 0, n, rows), ids, 1.0), TP_SHAPE(0, 2, 1));
}

/* Adds -1e30 to the logits p [B,N,H,n] of hidden keys. */
static tp_tensor hide_keys(tp_tape *T, const list *l, tp_window_in in, tp_tensor p)
{
    const tp_dtype dt = tp_dtype_of(p);
    const int64_t B = tp_dim(p, 0), n = l->cells * l->n;
    tp_tensor m[3] = { tp_full(T, dt, TP_SHAPE(B, l->low), 1.0),
                       tp_full(T, dt, TP_SHAPE(B, l->global + l->cells), 1.0),
                       tp_full(T, dt, TP_SHAPE(B, 1), 1.0) };
    if (tp_given(in.low_mask)) m[0] = tp_cast(T, in.low_mask, dt);
    if (tp_given(in.mask)) m[1] = tp_cast(T, in.mask, dt);
    int64_t *at = malloc((size_t)(B * n + 1) * sizeof *at);
    for (int64_t e = 0; e < B * n; e++) at[e] = l->key[e % n];
    const tp_tensor all = l->low ? tp_concat_n(T, 1, 3, m) : tp_concat_n(T, 1, 2, m + 1);
    const tp_tensor seen = tp_gather(T, all, 1, tp_from(T, TP_I64, TP_SHAPE(B, n), at));
    free(at);
    return tp_add(
        T, p,
        tp_reshape(T, tp_scale(T, tp_sub(T, seen, 1.0), 1e30), TP_SHAPE(B, l->cells, 1, l->n)));
}

/* Clears the rows of hidden queries in y [B,N,C]. */
static tp_tensor hide_queries(tp_tape *T, tp_tensor mask, int64_t global, tp_tensor y)
{
    const int64_t B = tp_dim(y, 0), N = tp_dim(y, 1);
    if (!tp_given(mask)) return y;
    const tp_tensor m = tp_slice(T, tp_cast(T, mask, tp_dtype_of(y)), 1, global, N);
    return tp_mul(T, y, tp_reshape(T, m, TP_SHAPE(B, N, 1)));
}

tp_tensor ref_window_attention(tp_tape *T, tp_window_in in, tp_window_attn_cfg cfg)
{
    const int64_t B = tp_dim(in.q, 0), C = tp_dim(in.q, 2), H = cfg.heads, D = C / H;
    const tp_dtype dt = tp_dtype_of(in.q);
    list l = make_list(&in, &cfg);
    const tp_shape s = TP_SHAPE(B, l.cells, H, l.n);
    const tp_tensor q =
        tp_reshape(T, tp_slice(T, in.q, 1, cfg.global, l.cells), TP_SHAPE(B, l.cells, 1, H, D));
    const tp_tensor k = gather(T, &l, in.low_k, in.k, H), v = gather(T, &l, in.low_v, in.v, H);
    tp_tensor p = tp_permute(T, tp_sum(T, tp_mul(T, k, q), 4), TP_SHAPE(0, 1, 3, 2));
    p = tp_scale(T, p, cfg.scale != 0.0 ? cfg.scale : 1.0 / sqrt((double)D));
    p = hide_keys(T, &l, in, tp_add(T, p, biases(T, &l, in, dt, H)));
    const tp_tensor seen = tp_expand(T, tp_from(T, TP_U8, TP_SHAPE(1, l.cells, 1, l.n), l.seen), s);
    p = tp_softmax(T, tp_where(T, seen, p, tp_full(T, dt, s, -1e30)));
    const tp_tensor y = tp_matmul(T, tp_reshape(T, p, TP_SHAPE(B, l.cells, H, 1, l.n)),
                                  tp_permute(T, v, TP_SHAPE(0, 1, 3, 2, 4)));
    free(l.key);
    free(l.bias);
    free(l.seen);
    return hide_queries(T, in.mask, cfg.global, tp_reshape(T, y, TP_SHAPE(B, l.cells, C)));
}

/* ---- light self-limited attention ---- */

/* For query i and key j of the map: -1 in different windows, else the index of the scale's element
 * or table's row. */
static int64_t pair(const tp_lsla_attn_cfg *c, int64_t i, int64_t j, bool table, bool *same)
{
    const int64_t w = c->window, H = c->height, W = c->width;
    const int64_t ty[2] = { (i / W - c->shift + H) % H, (j / W - c->shift + H) % H };
    const int64_t tx[2] = { (i % W - c->shift + W) % W, (j % W - c->shift + W) % W };
    if (ty[0] / w != ty[1] / w || tx[0] / w != tx[1] / w) return -1;
    *same = true; /* no border of the map between them */
    for (int a = 0; a < 2 && c->shift; a++) {
        const bool last_y = ty[a] >= H - c->shift, last_x = tx[a] >= W - c->shift;
        const bool other_y = ty[1 - a] >= H - c->shift, other_x = tx[1 - a] >= W - c->shift;
        if (last_y != other_y || last_x != other_x) *same = false;
    }
    const int64_t qy = ty[0] % w, qx = tx[0] % w, ky = ty[1] % w, kx = tx[1] % w;
    if (!table) return (qy * w + qx) * w * w + ky * w + kx;
    return (qy - ky + w - 1) * (2 * w - 1) + qx - kx + w - 1;
}

/* Gathers the elements of x for all pairs: [N,N], or [H,N,N] for a table. */
static tp_tensor spread(tp_tape *T, const tp_lsla_attn_cfg *c, tp_tensor x, bool table)
{
    const int64_t n = c->height * c->width, heads = table ? tp_dim(x, 1) : 1;
    int64_t *at = malloc((size_t)(n * n + 1) * sizeof *at);
    for (int64_t e = 0; e < n * n; e++) {
        bool same;
        const int64_t row = pair(c, e / n, e % n, table, &same);
        at[e] = row < 0 ? 0 : row;
    }
    if (!table) x = tp_reshape(T, x, TP_SHAPE(-1, 1));
    const tp_tensor y = tp_embedding(T, x, tp_from(T, TP_I64, TP_SHAPE(n, n), at), 1.0);
    free(at);
    return table ? tp_permute(T, y, TP_SHAPE(2, 0, 1)) : tp_reshape(T, y, TP_SHAPE(n, n * heads));
}

/* Pairs in the same window, u8 [B,H,N,N]; with `apart`, only pairs with no border between them. */
static tp_tensor together(tp_tape *T, const tp_lsla_attn_cfg *c, tp_shape s, bool apart)
{
    const int64_t n = s.dim[2], total = s.dim[0] * s.dim[1] * n * n;
    uint8_t *see = malloc((size_t)total + 1);
    for (int64_t e = 0; e < total; e++) {
        bool same = false;
        see[e] = pair(c, e / n % n, e % n, false, &same) >= 0 && (same || !apart);
    }
    const tp_tensor t = tp_from(T, TP_U8, s, see);
    free(see);
    return t;
}

static tp_tensor split_heads(tp_tape *T, tp_tensor x, int64_t heads)
{
    const tp_shape s = TP_SHAPE(tp_dim(x, 0), tp_dim(x, 1), heads, tp_dim(x, 2) / heads);
    return tp_permute(T, tp_reshape(T, x, s), TP_SHAPE(0, 2, 1, 3));
}

/* The dropout factors of all pairs in a window, from the words that the op would draw next for
 * [B,H,N,w*w]. */
static tp_tensor keep(tp_tape *T, const tp_lsla_attn_cfg *c, tp_shape s)
{
    const int64_t n = s.dim[2], total = s.dim[0] * s.dim[1] * n * n, ww = c->window * c->window;
    double *to = calloc((size_t)total + 1, sizeof *to);
    uint64_t seed, offset;
    tp_random_state(T, &seed, &offset);
    for (int64_t e = 0; e < total; e++) {
        bool same;
        const int64_t key = pair(c, e / n % n, e % n, false, &same);
        const uint32_t word = tp__word(seed, offset, (uint64_t)(e / n * ww + key % ww));
        if (key >= 0 && word >= tp__drop_below(c->dropout)) to[e] = 1 / (1 - c->dropout);
    }
    const tp_tensor t = tp_from(T, TP_F64, s, to);
    free(to);
    return t;
}

tp_tensor ref_lsla_attention(tp_tape *T, tp_tensor q, tp_tensor k, tp_tensor v, tp_tensor scale,
                             tp_tensor inner, tp_tensor outer, tp_lsla_attn_cfg cfg)
{
    const int64_t B = tp_dim(q, 0), N = tp_dim(q, 1), C = tp_dim(q, 2), H = cfg.heads;
    const tp_dtype dt = tp_dtype_of(q);
    const tp_shape s = TP_SHAPE(B, H, N, N);
    const tp_tensor none = tp_full(T, dt, s, -1e30), zero = tp_full(T, dt, s, 0.0);
    tp_tensor p = tp_matmul_t(T, split_heads(T, q, H), false, split_heads(T, k, H), true);
    if (tp_given(scale))
        p = tp_mul(T, p, spread(T, &cfg, scale, false));
    else
        p = tp_scale(T, p, cfg.scale != 0.0 ? cfg.scale : 1.0 / sqrt((double)(C / H)));
    if (tp_given(inner)) p = tp_add(T, p, spread(T, &cfg, inner, true));
    const tp_tensor seen = together(T, &cfg, s, false), free_pair = together(T, &cfg, s, true);
    p = tp_add(T, p, tp_where(T, free_pair, zero, tp_full(T, dt, s, -100.0)));
    p = tp_softmax(T, tp_where(T, seen, p, none));
    if (cfg.dropout > 0) p = tp_mul(T, p, tp_cast(T, keep(T, &cfg, s), dt));
    if (tp_given(outer)) {
        const tp_tensor o = tp_expand(T, spread(T, &cfg, outer, true), s);
        p = tp_add(T, p, tp_where(T, cfg.mask_outer ? free_pair : seen, o, zero));
    }
    const tp_tensor y = tp_permute(T, tp_matmul(T, p, split_heads(T, v, H)), TP_SHAPE(0, 2, 1, 3));
    return tp_reshape(T, y, TP_SHAPE(B, N, C));
}
