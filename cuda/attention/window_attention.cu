/* window_attention.cu - attention over maps in f32, for calls that window_attention_mma.cu does not
 * support (geometry: tensor/geometry/window.h).
 *
 *     P = softmax(scale q k^T + bias)   y = (M P) v   dS = P (M dO v^T - rowsum(dO y))
 *     dq = scale dS k   dk = scale dS^T q   dv = (M P)^T dO   dbias: sums of dS
 *
 * M is the dropout mask with its scale. Hidden keys have logit -infinity, hidden queries no
 * probabilities; neither's rows are read.
 *
 * A warp owns its results: a query, a key, or a row of the table. It takes 32 partners at a time,
 * one per lane, for logits and gradients, then one column of the head per lane for the sums.
 * Everything is recomputed from the log-sum-exp, nothing is shared, and no sum depends on the grid.
 * Operations per pair: 4 D forward, 14 D backward (4 D more with a table), at f32 rate; keys and
 * values come from cache. */
#include "cuda/attention/window.cuh"

constexpr int WIN_COLUMNS = 8; /* of a lane: heads of up to 256 */
constexpr int WIN_THREADS = 128;

/* Packed sequence b as a separate problem; otherwise the whole problem. */
template <bool PACKED, class S>
using win_part = typename std::conditional<PACKED, const win<S>, const win<S> &>::type;

template <bool PACKED, class S>
static __device__ inline win_part<PACKED, S> win_document(const win<S> &all, int64_t b)
{
    if constexpr (PACKED) {
        const tp_rows at = tp__document(&all.rows, b);
        win<S> p = all;
        p.document = b;
        p.first = at.first;
        if (p.mask) p.mask += at.first;
        p.g.batch = 1;
        p.g.cells = p.g.tokens = p.g.size[1] = at.count;
        p.g.chunks[1] = tp__ceil_div(at.count, p.g.chunk[1]);
        return p;
    } else {
        return all;
    }
}

/* A query: its position in the map, and the keys that its chunk sees. */
struct win_query {
    int64_t b, h, y, x, cell;
    int nrect;
    tp_rect rect[TP_WINDOW_RECTS];
};

/* A key: its row in k, v or the low tensors, or zeros; its bias. */
struct win_key {
    int64_t row;      /* -1: zeros                                           */
    int64_t place;    /* row of the table, or of the global biases; -1: none */
    bool low, global; /* neither: of the map                                 */
    bool seen;
};

/* Element i of [B,H,N]. */
template <class S>
static __device__ inline void win_set_at(const win<S> &p, win_query *t, int64_t i)
{
    const int64_t row = tp_div(i, p.g.cells);
    t->cell = i - row * p.g.cells;
    t->b = tp_div(row, p.g.heads);
    t->h = row - t->b * p.g.heads;
    t->y = tp_div(t->cell, p.g.size[1]);
    t->x = t->cell - t->y * p.g.size[1];
    t->nrect = tp__window_rects(&p.g, t->y / p.g.chunk[0], t->x / p.g.chunk[1], t->rect);
}

template <class S> static __device__ inline int64_t win_keys(const win<S> &p, const win_query &t)
{
    int64_t n = p.g.extra;
    for (int r = 0; r < t.nrect; r++) n += t.rect[r].rows * t.rect[r].cols;
    return n;
}

/* Is the query of that cell visible? */
template <class S>
static __device__ inline bool win_query_shown(const win<S> &p, const win_query &t)
{
    return win_shown(p, t.b, p.g.global + t.cell);
}

/* The key at nominal position (y,x), in rectangle r. */
template <class S>
static __device__ inline win_key win_cell(const win<S> &p, const win_query &t, const tp_rect &r,
                                          int64_t y, int64_t x)
{
    const int64_t down = t.y - y, across = t.x - x, sy = y + r.dy, sx = x + r.dx;
    const bool inside = sy < p.g.size[0] && sx < p.g.size[1];
    const bool far =
        down > p.g.halo[0] || -down > p.g.halo[0] || across > p.g.halo[1] || -across > p.g.halo[1];
    const int64_t row = inside ? p.g.global + sy * p.g.size[1] + sx : -1;
    return { row, p.g.rows ? (down + p.g.reach[0]) * p.g.stride + across + p.g.reach[1] : -1, false,
             false, !(p.g.exact && far) && (row < 0 || win_shown(p, t.b, row)) };
}

/* Low key or global token j of batch row b. */
template <class S> static __device__ inline win_key win_extra(const win<S> &p, int64_t b, int64_t j)
{
    const bool low = j < p.g.low;
    const int64_t row = low ? j : j - p.g.low;
    const bool shown = low ? win_low_shown(p, p.document + b, j) : win_shown(p, b, row);
    return { row, low || !p.bias ? -1 : row, low, !low, shown };
}

/* Key j in the list of keys that the query sees. */
template <class S>
static __device__ inline win_key win_key_at(const win<S> &p, const win_query &t, int64_t j)
{
    if (j < p.g.extra) return win_extra(p, t.b, j);
    int r = 0;
    for (j -= p.g.extra; j >= t.rect[r].rows * t.rect[r].cols; r++)
        j -= t.rect[r].rows * t.rect[r].cols;
    const int64_t row = tp_div(j, t.rect[r].cols);
    return win_cell(p, t, t.rect[r], t.rect[r].y + row, t.rect[r].x + j - row * t.rect[r].cols);
}

/* The head's row of a key in k and low_k, or in v and low_v; NULL: zeros, or not seen. */
template <class S>
static __device__ inline const S *win_row(const win<S> &p, const win_query &t, const win_key &key,
                                          const S *low, const S *x)
{
    if (key.row < 0 || !key.seen) return NULL;
    const int64_t row =
        key.low ? (p.document + t.b) * p.g.low + key.row : p.first + t.b * p.g.tokens + key.row;
    return (key.low ? low : x) + row * p.g.width + t.h * p.g.dim;
}

template <class S> static __device__ inline const S *win_q(const win<S> &p, const win_query &t)
{
    const int64_t row = p.first + t.b * p.g.tokens + p.g.global + t.cell;
    return p.q + row * p.g.width + t.h * p.g.dim;
}

/* The head's slice of the query's row of y or dO. */
template <class S> static __device__ inline int64_t win_y(const win<S> &p, const win_query &t)
{
    return (p.first + t.b * p.g.cells + t.cell) * p.g.width + t.h * p.g.dim;
}

template <class S> static __device__ inline int64_t win_at(const win<S> &p, const win_query &t)
{
    return p.first * p.g.heads + (t.b * p.g.heads + t.h) * p.g.cells + t.cell;
}

template <class S> static __device__ inline float win_dot(const S *a, const S *b, int64_t n)
{
    float sum = 0.0f;
    if (!a || !b) return 0.0f;
    for (int64_t x = 0; x < n; x++) sum += tp_float(a[x]) * tp_float(b[x]);
    return sum;
}

template <class S>
static __device__ inline float win_logit(const win<S> &p, const win_query &t, const win_key &key)
{
    if (!key.seen) return -INFINITY;
    float s = p.scale * win_dot(win_q(p, t), win_row(p, t, key, p.low_k, p.k), p.g.dim);
    if (key.place >= 0)
        s += key.global ? tp_float(p.bias[t.h * p.g.global + key.place])
                        : tp_float(p.table[key.place * p.g.heads + t.h]);
    return s;
}

/* A pair's dropout factor; arbitrary for zero keys outside the map. */
template <class S>
static __device__ inline float win_keep(const win<S> &p, const win_query &t, const win_key &key)
{
    if (p.drop.below == 0) return 1.0f;
    const int64_t j = key.low ? key.row : p.g.low + key.row;
    const int64_t head = (p.document + t.b) * p.g.heads + t.h;
    const int64_t row = (head * p.longest + t.cell) * (p.g.extra + p.longest);
    const tp_words<1> words(p.drop, row + max(j, (int64_t)0));
    return words.drop(p.drop, 0, 1.0f);
}

/* The probability of a pair, after dropout, and the gradient of its logit. */
struct win_grad {
    float probability, ds;
};

template <class S>
static __device__ inline win_grad win_gradient(const win<S> &p, const win_query &t,
                                               const win_key &key)
{
    if (!key.seen || !win_query_shown(p, t)) return { 0.0f, 0.0f };
    const float probability = expf(win_logit(p, t, key) - p.lse[win_at(p, t)]);
    const float keep = win_keep(p, t, key);
    const float dp = win_dot(p.dout + win_y(p, t), win_row(p, t, key, p.low_v, p.v), p.g.dim);
    return { keep * probability, probability * (keep * dp - p.delta[win_at(p, t)]) };
}

/* acc += f times the row; lanes take adjacent columns. */
template <class S>
static __device__ inline void win_add(float acc[WIN_COLUMNS], float f, const S *row, int64_t dim)
{
    if (!row) return;
    for (int c = 0; c < WIN_COLUMNS; c++) {
        const int64_t x = 32 * c + threadIdx.x % 32;
        if (x < dim) acc[c] += f * tp_float(row[x]);
    }
}

template <class Put>
static __device__ inline void win_put(const float acc[WIN_COLUMNS], int64_t dim, Put put)
{
    for (int c = 0; c < WIN_COLUMNS; c++) {
        const int64_t x = 32 * c + threadIdx.x % 32;
        if (x < dim) put(x, acc[c]);
    }
}

enum win_side { WIN_QUERIES, WIN_KEYS };

/* Per batch row, for all heads. */
template <win_side SIDE, class S> static __device__ inline int64_t win_items(const win<S> &p)
{
    return p.g.heads * (SIDE == WIN_QUERIES ? p.g.cells : p.g.low + p.g.tokens);
}

/* Item i of problem p: a packed sequence or the whole. */
template <bool PACKED, class S> struct win_work {
    win_part<PACKED, S> p;
    int64_t i;
    bool inside; /* false: a shorter sequence has no such item */
};

/* Returns item `number`; every sequence has as many numbers as the longest. */
template <bool PACKED, win_side SIDE, class S>
static __device__ inline win_work<PACKED, S> win_work_at(const win<S> &all, int64_t number)
{
    const int64_t stride = win_items<SIDE>(all), b = PACKED ? tp_div(number, stride) : 0;
    win_part<PACKED, S> p = win_document<PACKED>(all, b);
    const int64_t i = number - b * stride;
    return { p, i, !PACKED || i < win_items<SIDE>(p) };
}

/* ---- queries ---- */

template <bool PACKED, class S>
__global__ void __launch_bounds__(WIN_THREADS) win_kernel(win<S> all)
{
    const int lane = (int)threadIdx.x % 32;
    const int64_t items = all.g.batch * win_items<WIN_QUERIES>(all);
    for (int64_t item = tp_warp_number(); item < items; item += tp_warps()) {
        const auto work = win_work_at<PACKED, WIN_QUERIES>(all, item);
        if (!work.inside) continue;
        const auto &p = work.p;
        win_query t;
        win_set_at(p, &t, work.i);
        const int64_t keys = win_query_shown(p, t) ? win_keys(p, t) : 0;
        float acc[WIN_COLUMNS] = {}, top = -INFINITY, sum = 0.0f;
        for (int64_t j = 0; j < keys; j += 32) {
            const bool mine = j + lane < keys;
            const win_key key = win_key_at(p, t, mine ? j + lane : j);
            const float s = mine ? win_logit(p, t, key) : -INFINITY;
            const float peak = fmaxf(top, tp_warp<tp_max_of>(s));
            const float base = peak > -INFINITY ? peak : 0.0f, fade = expf(top - base);
            const float e = expf(s - base);
            sum = sum * fade + tp_warp<tp_sum_of>(e);
            top = peak;
            for (int c = 0; c < WIN_COLUMNS; c++) acc[c] *= fade;
            const float kept = e * win_keep(p, t, key);
            for (int k = 0; k < 32 && j + k < keys; k++)
                win_add(acc, __shfl_sync(0xffffffffu, kept, k),
                        win_row(p, t, win_key_at(p, t, j + k), p.low_v, p.v), p.g.dim);
        }
        const bool blind = sum == 0.0f; /* hidden, or without keys */
        if (lane == 0) p.lse[win_at(p, t)] = blind ? 0.0f : top + logf(sum);
        S *const y = p.out + win_y(p, t);
        win_put(acc, p.g.dim, [&](int64_t x, float v) { tp_put(y + x, blind ? 0.0f : v / sum); });
    }
}

template <bool PACKED, class S> __global__ void __launch_bounds__(WIN_THREADS) win_delta(win<S> all)
{
    TP_EACH (item, all.g.batch * win_items<WIN_QUERIES>(all)) {
        const auto work = win_work_at<PACKED, WIN_QUERIES>(all, item);
        if (!work.inside) continue;
        const auto &p = work.p;
        win_query t;
        win_set_at(p, &t, work.i);
        p.delta[win_at(p, t)] = win_query_shown(p, t)
                                    ? win_dot<S>(p.dout + win_y(p, t), p.out + win_y(p, t), p.g.dim)
                                    : 0.0f;
    }
}

template <bool PACKED, class S>
__global__ void __launch_bounds__(WIN_THREADS) win_grad_queries(win<S> all)
{
    const int lane = (int)threadIdx.x % 32;
    const int64_t items = all.g.batch * win_items<WIN_QUERIES>(all);
    for (int64_t item = tp_warp_number(); item < items; item += tp_warps()) {
        const auto work = win_work_at<PACKED, WIN_QUERIES>(all, item);
        if (!work.inside) continue;
        const auto &p = work.p;
        win_query t;
        win_set_at(p, &t, work.i);
        const int64_t keys = win_query_shown(p, t) ? win_keys(p, t) : 0;
        float acc[WIN_COLUMNS] = {};
        for (int64_t j = 0; j < keys; j += 32) {
            const float ds =
                j + lane < keys ? win_gradient(p, t, win_key_at(p, t, j + lane)).ds : 0.0f;
            for (int k = 0; k < 32 && j + k < keys; k++)
                win_add(acc, __shfl_sync(0xffffffffu, ds, k),
                        win_row(p, t, win_key_at(p, t, j + k), p.low_k, p.k), p.g.dim);
        }
        const int64_t at = win_q(p, t) - p.q;
        win_put(acc, p.g.dim, [&](int64_t x, float v) { p.dq.put(at + x, p.scale * v); });
    }
}

/* The rows of dq that belong to global tokens. */
template <class S> __global__ void __launch_bounds__(WIN_THREADS) win_clear_queries(win<S> p)
{
    const int64_t n = p.g.global * p.g.width;
    TP_EACH (i, p.g.batch * n) {
        const int64_t b = tp_div(i, n);
        p.dq.put(b * p.g.tokens * p.g.width + i - b * n, 0.0f);
    }
}

/* ---- keys ---- */

/* Running gradients of a key. */
struct win_sums {
    float dk[WIN_COLUMNS], dv[WIN_COLUMNS];
};

/* Adds the contributions of `count` queries, one per lane. */
template <class S>
static __device__ inline void win_add_queries(const win<S> &p, const win_query &t, int count,
                                              const win_key &key, win_sums *sums)
{
    win_grad d = { 0.0f, 0.0f };
    if ((int)threadIdx.x % 32 < count) d = win_gradient(p, t, key);
    for (int k = 0; k < count; k++) {
        win_query u;
        u.b = t.b;
        u.h = t.h;
        u.cell = __shfl_sync(0xffffffffu, t.cell, k);
        if (!win_query_shown(p, u)) continue;
        win_add(sums->dk, p.scale * __shfl_sync(0xffffffffu, d.ds, k), win_q(p, u), p.g.dim);
        win_add(sums->dv, __shfl_sync(0xffffffffu, d.probability, k), p.dout + win_y(p, u),
                p.g.dim);
    }
}

/* Adds the contributions of all queries of the map, which all see the key. */
template <class S>
static __device__ inline void win_grad_extra(const win<S> &p, win_query *t, const win_key &key,
                                             win_sums *sums)
{
    for (int64_t i = 0; i < p.g.cells; i += 32) {
        const int64_t cell = min(i + (int64_t)threadIdx.x % 32, p.g.cells - 1);
        t->cell = cell;
        win_add_queries(p, *t, (int)min((int64_t)32, p.g.cells - i), key, sums);
    }
}

/* Adds those of queries of chunk (cy,cx) that see cell (y,x), for each rectangle that contains
 * it. */
template <class S>
static __device__ inline void win_grad_chunk(const win<S> &p, win_query *t, int64_t cy, int64_t cx,
                                             int64_t y, int64_t x, win_sums *sums)
{
    const int64_t top = cy * p.g.chunk[0], left = cx * p.g.chunk[1];
    const int64_t rows = tp__least(p.g.chunk[0], p.g.size[0] - top);
    const int64_t cols = tp__least(p.g.chunk[1], p.g.size[1] - left);
    tp_rect rect[TP_WINDOW_RECTS];
    const int nrect = tp__window_rects(&p.g, cy, cx, rect);
    for (int r = 0; r < nrect; r++) {
        const int64_t ny = y - rect[r].dy, nx = x - rect[r].dx;
        if (ny < rect[r].y || ny >= rect[r].y + rect[r].rows || nx < rect[r].x ||
            nx >= rect[r].x + rect[r].cols)
            continue;
        for (int64_t i = 0; i < rows * cols; i += 32) {
            const int64_t mine = min(i + (int64_t)threadIdx.x % 32, rows * cols - 1);
            t->y = top + tp_div(mine, cols);
            t->x = left + mine - tp_div(mine, cols) * cols;
            t->cell = t->y * p.g.size[1] + t->x;
            win_add_queries(p, *t, (int)min((int64_t)32, rows * cols - i),
                            win_cell(p, *t, rect[r], ny, nx), sums);
        }
    }
}

template <class S>
static __device__ inline void win_grad_cell(const win<S> &p, win_query *t, int64_t cell,
                                            win_sums *sums)
{
    const int64_t y = tp_div(cell, p.g.size[1]), x = cell - y * p.g.size[1];
    int64_t down, across;
    const int64_t cy = win_first_chunk(p.g, 0, y, &down), cx = win_first_chunk(p.g, 1, x, &across);
    for (int64_t i = 0; i < down; i++)
        for (int64_t j = 0; j < across; j++)
            win_grad_chunk(p, t, (cy + i) % p.g.chunks[0], (cx + j) % p.g.chunks[1], y, x, sums);
}

/* Warp i: head, batch row and key; keys are the low ones, then k's. */
template <bool PACKED, class S>
__global__ void __launch_bounds__(WIN_THREADS, PACKED ? 1 : 3) win_grad_keys(win<S> all)
{
    const int64_t items = all.g.batch * win_items<WIN_KEYS>(all);
    for (int64_t item = tp_warp_number(); item < items; item += tp_warps()) {
        const auto work = win_work_at<PACKED, WIN_KEYS>(all, item);
        if (!work.inside) continue;
        const auto &p = work.p;
        const int64_t n = p.g.low + p.g.tokens;
        const int64_t row = tp_div(work.i, n), j = work.i - row * n;
        win_query t;
        t.b = tp_div(row, p.g.heads);
        t.h = row - t.b * p.g.heads;
        win_sums sums = {};
        const win_key key = win_extra(p, t.b, j); /* of the map: only `seen` is used */
        if (key.seen && j < p.g.extra)
            win_grad_extra(p, &t, key, &sums);
        else if (key.seen && p.g.local)
            win_grad_cell(p, &t, j - p.g.extra, &sums);
        const bool low = j < p.g.low;
        const int64_t token =
            low ? (p.document + t.b) * p.g.low + j : p.first + t.b * p.g.tokens + j - p.g.low;
        const int64_t at = token * p.g.width + t.h * p.g.dim;
        const attn_sink<S> dk = low ? p.dlow_k : p.dk, dv = low ? p.dlow_v : p.dv;
        win_put(sums.dk, p.g.dim, [&](int64_t x, float v) {
            if (dk.to) dk.put(at + x, v);
        });
        win_put(sums.dv, p.g.dim, [&](int64_t x, float v) {
            if (dv.to) dv.put(at + x, v);
        });
    }
}

/* ---- biases ---- */

/* The gradient of the logit of a head's query i and the key at a difference of positions; zero if
 * the query sees no key there. */
template <class S>
static __device__ inline float win_grad_pair(const win<S> &p, int64_t h, int64_t i, int64_t dy,
                                             int64_t dx)
{
    const int64_t b = tp_div(i, p.g.cells);
    win_query t;
    win_set_at(p, &t, (b * p.g.heads + h) * p.g.cells + i - b * p.g.cells);
    const int64_t y = t.y - dy, x = t.x - dx;
    for (int r = 0; r < t.nrect; r++) {
        const tp_rect &rect = t.rect[r];
        if (y >= rect.y && y < rect.y + rect.rows && x >= rect.x && x < rect.x + rect.cols)
            return win_gradient(p, t, win_cell(p, t, rect, y, x)).ds;
    }
    return 0.0f;
}

/* Warp e: row and head of the table. Several differences may share a row. */
template <class S> __global__ void __launch_bounds__(WIN_THREADS) win_grad_table(win<S> p)
{
    const int lane = (int)threadIdx.x % 32;
    for (int64_t e = tp_warp_number(); e < p.g.rows * p.g.heads; e += tp_warps()) {
        const int64_t row = tp_div(e, p.g.heads), h = e - row * p.g.heads;
        double sum = 0.0;
        for (int64_t down = 0; down <= 2 * p.g.reach[0]; down++) {
            const int64_t across = row - down * p.g.stride;
            if (across < 0 || across > 2 * p.g.reach[1]) continue;
            for (int64_t i = lane; i < p.g.batch * p.g.cells; i += 32)
                sum += win_grad_pair(p, h, i, down - p.g.reach[0], across - p.g.reach[1]);
        }
        sum = tp_warp<tp_sum_of>(sum);
        if (lane == 0) p.dtable.put(e, (float)sum);
    }
}

template <class S> __global__ void __launch_bounds__(WIN_THREADS) win_grad_bias(win<S> p)
{
    const int lane = (int)threadIdx.x % 32;
    for (int64_t e = tp_warp_number(); e < p.g.heads * p.g.global; e += tp_warps()) {
        const int64_t h = tp_div(e, p.g.global);
        double sum = 0.0;
        for (int64_t i = lane; i < p.g.batch * p.g.cells; i += 32) {
            const int64_t b = tp_div(i, p.g.cells);
            win_query t;
            t.b = b;
            t.h = h;
            t.cell = i - b * p.g.cells;
            sum += win_gradient(p, t, win_extra(p, b, p.g.low + e - h * p.g.global)).ds;
        }
        sum = tp_warp<tp_sum_of>(sum);
        if (lane == 0) p.dbias.put(e, (float)sum);
    }
}

/* ---- launching ---- */

template <class S> static const S *win_given(const tp_view *v)
{
    return tp_absent(v) ? NULL : tp_in<S>(v);
}

template <class S> static win<S> win_problem(const tp_call *c)
{
    const tp_window_attn_cfg *cfg = static_cast<const tp_window_attn_cfg *>(c->attr);
    win<S> p = {};
    p.g = tp__window(c->x, cfg);
    p.scale = (float)(cfg->scale != 0.0 ? cfg->scale : p.g.dim ? 1.0 / sqrt((double)p.g.dim) : 1.0);
    p.q = tp_in<S>(&c->x[WIN_Q]);
    p.k = tp_in<S>(&c->x[WIN_K]);
    p.v = tp_in<S>(&c->x[WIN_V]);
    p.low_k = win_given<S>(&c->x[WIN_LOW_K]);
    p.low_v = win_given<S>(&c->x[WIN_LOW_V]);
    p.table = win_given<S>(&c->x[WIN_TABLE]);
    p.bias = win_given<S>(&c->x[WIN_GLOBAL_BIAS]);
    p.mask = win_given<uint8_t>(&c->x[WIN_MASK]);
    p.low_mask = win_given<uint8_t>(&c->x[WIN_LOW_MASK]);
    p.drop = tp_mask_of(c, c->train ? cfg->dropout : 0.0);
    p.out = tp_out<S>(&c->y[0]);
    p.lse = tp_out<float>(&c->y[1]);
    p.longest = p.g.cells;
    if (p.g.packed) p.rows = tp__packing(&c->x[WIN_OFFSET], c->x[WIN_Q].dim[0], p.longest);
    return p;
}

template <class S> static tp_code win_too_wide(const tp_call *c, const win<S> &p)
{
    if (p.g.dim <= 32 * WIN_COLUMNS) return TP_OK;
    return tp__cuda_fail(c, TP_E_SHAPE, "heads of %lld columns; on CUDA devices at most %d",
                         (long long)p.g.dim, 32 * WIN_COLUMNS);
}

/* One warp per item. */
template <class S>
static tp_code win_launch(const tp_call *c, void (*kernel)(win<S>), int64_t items, const win<S> &p)
{
    return tp_launch(c, kernel, tp_grid(c, items, WIN_THREADS / 32), WIN_THREADS, 0, p);
}

template <class S> static tp_code window_attention_fwd(const tp_call *c)
{
    const win<S> p = win_problem<S>(c);
    const tp_code code = win_too_wide(c, p);
    if constexpr (std::is_same<S, bf16>::value)
        if (tp__window_mma_serves(p)) return tp__window_mma_fwd(c, p);
    if (code != TP_OK) return code;
    return win_launch(c, p.g.packed ? win_kernel<true, S> : win_kernel<false, S>,
                      p.g.batch * p.g.heads * p.g.cells, p);
}

template <class S> static tp_code win_grad_plain(const tp_call *c, const win<S> &p)
{
    tp_code code = TP_OK;
    if (p.dq.to)
        code = win_launch(c, p.g.packed ? win_grad_queries<true, S> : win_grad_queries<false, S>,
                          p.g.batch * p.g.heads * p.g.cells, p);
    if (code == TP_OK && (p.dk.to || p.dv.to || p.dlow_k.to || p.dlow_v.to))
        code = win_launch(c, p.g.packed ? win_grad_keys<true, S> : win_grad_keys<false, S>,
                          p.g.batch * p.g.heads * (p.g.low + p.g.tokens), p);
    if (code == TP_OK && p.dtable.to)
        code = win_launch(c, win_grad_table<S>, p.g.rows * p.g.heads, p);
    if (code == TP_OK && p.dbias.to)
        code = win_launch(c, win_grad_bias<S>, p.g.heads * p.g.global, p);
    return code;
}

template <class S> static tp_code window_attention_bwd(const tp_call *c)
{
    win<S> p = win_problem<S>(c);
    const int64_t queries = p.g.batch * p.g.heads * p.g.cells;
    tp_code code = win_too_wide(c, p);
    p.dout = tp_in<S>(&c->dy[0]);
    p.delta = static_cast<float *>(c->work);
    attn_sink<S> *const sinks[] = {
        &p.dq, &p.dk, &p.dv, &p.dlow_k, &p.dlow_v, &p.dtable, &p.dbias
    };
    for (int i = 0; i < WIN_MASK; i++) *sinks[i] = attn_sink_of<S>(&c->dx[i]);
    if (code == TP_OK)
        code = tp_launch(c, p.g.packed ? win_delta<true, S> : win_delta<false, S>,
                         tp_grid(c, queries, WIN_THREADS), WIN_THREADS, 0, p);
    if (code == TP_OK && p.dq.to)
        code = tp_launch(c, win_clear_queries<S>, tp_grid(c, p.g.batch * p.g.global * p.g.width),
                         WIN_THREADS, 0, p);
    if constexpr (std::is_same<S, bf16>::value)
        if (code == TP_OK && tp__window_mma_serves_bwd(p)) return tp__window_mma_bwd(c, p);
    return code == TP_OK ? win_grad_plain(c, p) : code;
}

/* The plain kernels only need delta. */
static size_t window_attention_work(const tp_call *c)
{
    const tp_window g = tp__window(c->x, static_cast<const tp_window_attn_cfg *>(c->attr));
    const win_room room = win_room_of(g, g.packed ? c->x[WIN_Q].dim[0] : g.batch * g.cells);
    if (!tp_is_backward(c)) return 0;
    return (size_t)(c->x[WIN_Q].dtype == TP_BF16 ? room.total : room.table) * sizeof(float);
}

TP_CUDA_WORK(window_attention_work)
TP_CUDA_KERNEL(window_attention_fwd)
TP_CUDA_KERNEL(window_attention_bwd)
