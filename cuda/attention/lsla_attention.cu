/* lsla_attention.cu - light self-limited attention in f32, for calls that lsla_attention_mma*.cu do
 * not support, and the sums over windows for both.
 *
 *     W = M softmax(E (q k^T) + inner + mask) + outer      y = W v      M: the factors of dropout
 *
 * A block processes one head of one window or, in backward, the windows of a slice in order. It
 * holds keys and values in shared memory; each warp takes a query. A query and head with n = w w
 * keys takes 4 n D operations forward and 10 n D backward at f32 rate, and 16 D bytes of bf16. Sums
 * over windows (scale, tables) are computed by slice and added in order, which reads 12 n n bytes
 * per slice and head. */
#include "cuda/attention/lsla.cuh"

constexpr int LSLA_WARPS = 4;

template <class S>
static __device__ inline bool lsla_apart(const lsla<S> &p, const lsla_place &t, int a, int b)
{
    return t.mixed && lsla_region(p, t, a) != lsla_region(p, t, b);
}

template <class S>
static __device__ inline float lsla_bias(const lsla<S> &p, const S *table, int h, int a, int b)
{
    return table ? tp_float(table[tp__lsla_place(&p.g, a, b) * p.g.heads + h]) : 0.0f;
}

/* to[n][D + 1] = a head's rows of the window. */
template <class S>
static __device__ inline void lsla_load(const lsla<S> &p, const lsla_place &t, const S *from,
                                        float *to)
{
    const int n = (int)p.g.n, dim = (int)p.g.dim;
    for (int e = (int)threadIdx.x; e < n * dim; e += (int)blockDim.x)
        to[e / dim * (dim + 1) + e % dim] = tp_float(from[lsla_at(p, t, e / dim) + e % dim]);
}

static __device__ inline float lsla_dot(const float *a, const float *b, int dim)
{
    float sum = 0.0f;
    for (int x = 0; x < dim; x++) sum += a[x] * b[x];
    return sum;
}

/* The logit of query a and key b with score s. */
template <class S>
static __device__ inline float lsla_logit(const lsla<S> &p, const lsla_place &t, int a, int b,
                                          float s)
{
    const float scale = p.scale ? tp_float(p.scale[a * p.g.n + b]) : p.fixed;
    return scale * s + lsla_bias(p, p.inner, t.h, a, b) - (lsla_apart(p, t, a, b) ? 100.0f : 0.0f);
}

template <class S>
static __device__ inline float lsla_outer(const lsla<S> &p, const lsla_place &t, int a, int b)
{
    return p.mask_outer && lsla_apart(p, t, a, b) ? 0.0f : lsla_bias(p, p.outer, t.h, a, b);
}

/* The dropout factor of key b and the query at token `cell` of the map. */
template <class S>
static __device__ inline float lsla_keep(const lsla<S> &p, const lsla_place &t, int64_t cell, int b)
{
    if (p.drop.below == 0) return 1.0f;
    const tp_words<1> words(p.drop, tp__lsla_row(&p.g, t.b, t.h, cell) + b);
    return words.drop(p.drop, 0, 1.0f);
}

/* ---- forward ---- */

/* A warp computes row a: logits, then weights in row[n]; stores the log-sum-exp. */
template <class S>
static __device__ inline void lsla_row(const lsla<S> &p, const lsla_place &t, int a, const float *q,
                                       const float *k, float *row)
{
    const int n = (int)p.g.n, dim = (int)p.g.dim, lane = (int)threadIdx.x % 32;
    float top = -INFINITY, sum = 0.0f;
    for (int b = lane; b < n; b += 32) {
        row[b] = lsla_logit(p, t, a, b, lsla_dot(q, k + b * (dim + 1), dim));
        top = fmaxf(top, row[b]);
    }
    top = tp_warp<tp_max_of>(top);
    for (int b = lane; b < n; b += 32) {
        row[b] = expf(row[b] - top);
        sum += row[b];
    }
    sum = tp_warp<tp_sum_of>(sum);
    const int w = (int)p.g.window;
    const int64_t cell = tp__lsla_token(&p.g, t.y + a / w, t.x + a % w);
    for (int b = lane; b < n; b += 32)
        row[b] = lsla_keep(p, t, cell, b) * (row[b] / sum) + lsla_outer(p, t, a, b);
    if (lane == 0)
        p.lse[(t.b * p.g.heads + t.h) * p.g.size[0] * p.g.size[1] + cell] = top + logf(sum);
}

template <class S> __global__ void __launch_bounds__(32 * LSLA_WARPS) lsla_kernel(lsla<S> p)
{
    TP_SHARED_REST(float, q);
    const int n = (int)p.g.n, dim = (int)p.g.dim, lane = (int)threadIdx.x % 32;
    float *const k = q + n * (dim + 1), *const v = k + n * (dim + 1);
    float *const row = v + n * (dim + 1) + (int)threadIdx.x / 32 * n;
    TP_EACH_BLOCK (block, p.g.batch * p.g.down * p.g.across * p.g.heads) {
        const int64_t window = tp_div(block, p.g.heads);
        const lsla_place t = lsla_window(p, window, (int)(block - window * p.g.heads));
        lsla_load(p, t, p.q, q);
        lsla_load(p, t, p.k, k);
        lsla_load(p, t, p.v, v);
        __syncthreads();
        for (int a = (int)threadIdx.x / 32; a < n; a += LSLA_WARPS) {
            lsla_row(p, t, a, q + a * (dim + 1), k, row);
            __syncwarp();
            for (int x = lane; x < dim; x += 32) {
                float sum = 0.0f;
                for (int b = 0; b < n; b++) sum += row[b] * v[b * (dim + 1) + x];
                tp_put(p.out + lsla_at(p, t, a) + x, sum);
            }
            __syncwarp();
        }
        __syncthreads();
    }
}

/* ---- backward ---- */

/* Row a of a window: stores ds, W and dq, and adds to the sums of scale and biases. */
template <class S>
static __device__ inline void lsla_grad_row(const lsla<S> &p, const lsla_place &t, int a,
                                            const float *q, const float *k, const float *v,
                                            const float *dout, float *sums)
{
    const int n = (int)p.g.n, dim = (int)p.g.dim, ld = dim + 1, lane = (int)threadIdx.x % 32;
    const int w = (int)p.g.window;
    const int64_t cell = tp__lsla_token(&p.g, t.y + a / w, t.x + a % w), square = (int64_t)n * n;
    const float lse = p.lse[(t.b * p.g.heads + t.h) * p.g.size[0] * p.g.size[1] + cell];
    float *const dscale = sums + (int64_t)a * n, *const dinner = dscale + square;
    float *const douter = dinner + square, *const ds = douter + square, *const W = ds + square;
    float delta = 0.0f;
    for (int b = lane; b < n; b += 32) {
        const float s = lsla_dot(q + a * ld, k + b * ld, dim);
        const float dw = lsla_dot(dout + a * ld, v + b * ld, dim);
        const float probability = expf(lsla_logit(p, t, a, b, s) - lse);
        W[b] = probability;
        ds[b] = s;
        delta += probability * lsla_keep(p, t, cell, b) * dw;
        if (!p.mask_outer || !lsla_apart(p, t, a, b)) douter[b] += dw;
    }
    delta = tp_warp<tp_sum_of>(delta);
    for (int b = lane; b < n; b += 32) {
        const float keep = lsla_keep(p, t, cell, b);
        const float dz = W[b] * (keep * lsla_dot(dout + a * ld, v + b * ld, dim) - delta);
        dinner[b] += dz;
        dscale[b] += dz * ds[b];
        ds[b] = dz * (p.scale ? tp_float(p.scale[a * n + b]) : p.fixed);
        W[b] = keep * W[b] + lsla_outer(p, t, a, b);
    }
    __syncwarp();
    for (int x = lane; p.dq.to && x < dim; x += 32) {
        float sum = 0.0f;
        for (int b = 0; b < n; b++) sum += ds[b] * k[b * ld + x];
        p.dq.put(lsla_at(p, t, a) + x, sum);
    }
}

/* dx[b] = sum over a of m[a][b] x[a]. */
template <class S>
static __device__ inline void lsla_grad_keys(const lsla<S> &p, const lsla_place &t, const float *m,
                                             const float *x, attn_sink<S> dx)
{
    const int n = (int)p.g.n, dim = (int)p.g.dim;
    if (!dx.to) return;
    for (int e = (int)threadIdx.x; e < n * dim; e += (int)blockDim.x) {
        const int b = e / dim, c = e % dim;
        float sum = 0.0f;
        for (int a = 0; a < n; a++) sum += m[a * n + b] * x[a * (dim + 1) + c];
        dx.put(lsla_at(p, t, b) + c, sum);
    }
}

/* Block: slice blockIdx.x % slices of head blockIdx.x / slices. */
template <class S> __global__ void __launch_bounds__(32 * LSLA_WARPS) lsla_grad(lsla<S> p)
{
    TP_SHARED_REST(float, q);
    const int n = (int)p.g.n, size = n * ((int)p.g.dim + 1);
    float *const k = q + size, *const v = k + size, *const dout = v + size;
    const int64_t square = (int64_t)n * n, windows = p.g.batch * p.g.down * p.g.across;
    const int64_t slice = blockIdx.x % p.g.slices;
    float *const sums = p.work + (int64_t)blockIdx.x * 5 * square;
    for (int64_t e = threadIdx.x; e < 3 * square; e += blockDim.x) sums[e] = 0.0f;
    for (int64_t i = windows * slice / p.g.slices; i < windows * (slice + 1) / p.g.slices; i++) {
        const lsla_place t = lsla_window(p, i, (int)(blockIdx.x / p.g.slices));
        __syncthreads();
        lsla_load(p, t, p.q, q);
        lsla_load(p, t, p.k, k);
        lsla_load(p, t, p.v, v);
        lsla_load(p, t, p.dout, dout);
        __syncthreads();
        for (int a = (int)threadIdx.x / 32; a < n; a += LSLA_WARPS)
            lsla_grad_row(p, t, a, q, k, v, dout, sums);
        __syncthreads();
        lsla_grad_keys(p, t, sums + 3 * square, q, p.dk);
        lsla_grad_keys(p, t, sums + 4 * square, dout, p.dv);
    }
}

/* Adds the sums of all slices of a head into its first slice. */
template <class S> __global__ void __launch_bounds__(TP_THREADS) lsla_grad_slices(lsla<S> p)
{
    const int64_t sums = 3 * p.g.n * p.g.n, slice = 5 * p.g.n * p.g.n;
    TP_EACH (e, p.g.heads * sums) {
        const int64_t h = tp_div(e, sums);
        float *const first = p.work + h * p.g.slices * slice + e - h * sums;
        float sum = 0.0f;
        for (int64_t i = 0; i < p.g.slices; i++) sum += first[i * slice];
        *first = sum;
    }
}

/* dscale[e] = the sum over heads. */
template <class S>
__global__ void __launch_bounds__(TP_THREADS) lsla_grad_scale(lsla<S> p, attn_sink<S> dscale)
{
    const int64_t square = p.g.n * p.g.n;
    TP_EACH (e, square) {
        float sum = 0.0f;
        for (int64_t h = 0; h < p.g.heads; h++) sum += p.work[h * p.g.slices * 5 * square + e];
        dscale.put(e, sum);
    }
}

/* Row r and head h of a table's gradient: the sum over queries a with a key at that offset. which:
 * 1 inner, 2 outer. */
template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    lsla_grad_table(lsla<S> p, int which, attn_sink<S> dtable)
{
    const int64_t w = p.g.window, n = p.g.n, side = 2 * w - 1;
    TP_EACH (e, p.g.table * p.g.heads) {
        const int64_t r = e / p.g.heads, h = e - r * p.g.heads;
        const int64_t dy = r / side - (w - 1), dx = r % side - (w - 1);
        const float *const m = p.work + (h * p.g.slices * 5 + which) * n * n;
        float sum = 0.0f;
        for (int64_t a = 0; a < n; a++) {
            const int64_t y = a / w - dy, x = a % w - dx;
            if (y >= 0 && y < w && x >= 0 && x < w) sum += m[a * n + y * w + x];
        }
        dtable.put(e, sum);
    }
}

/* ---- launching ---- */

template <class S> static const S *lsla_given(const tp_view *v)
{
    return tp_absent(v) ? NULL : tp_in<S>(v);
}

/* The number of slices of a head's windows: enough for two blocks per multiprocessor of a large
 * GPU, with at least two windows per slice and at most 16 MiB of sums. */
static int64_t lsla_slices(const tp_lsla &g)
{
    const int64_t windows = g.batch * g.down * g.across, each = 5 * g.n * g.n * g.heads;
    int64_t slices = 264 / g.heads;
    if (slices > windows / 2) slices = windows / 2;
    if (slices > (1 << 22) / each) slices = (1 << 22) / each;
    return slices < 1 ? 1 : slices;
}

template <class S> static lsla<S> lsla_problem(const tp_call *c)
{
    const tp_lsla_attn_cfg *cfg = static_cast<const tp_lsla_attn_cfg *>(c->attr);
    lsla<S> p = {};
    p.g = tp__lsla(c->x, cfg);
    p.g.slices = lsla_slices(p.g);
    p.fixed = (float)(cfg->scale != 0.0 ? cfg->scale : p.g.dim ? 1.0 / sqrt((double)p.g.dim) : 1.0);
    p.mask_outer = cfg->mask_outer;
    p.q = tp_in<S>(&c->x[LSLA_Q]);
    p.k = tp_in<S>(&c->x[LSLA_K]);
    p.v = tp_in<S>(&c->x[LSLA_V]);
    p.scale = lsla_given<S>(&c->x[LSLA_SCALE]);
    p.inner = lsla_given<S>(&c->x[LSLA_INNER]);
    p.outer = lsla_given<S>(&c->x[LSLA_OUTER]);
    p.out = tp_out<S>(&c->y[0]);
    p.lse = tp_out<float>(&c->y[1]);
    p.work = static_cast<float *>(c->work);
    p.drop = tp_mask_of(c, c->train ? cfg->dropout : 0.0);
    return p;
}

/* Bytes for `rows` matrices [n][D + 1], and a row of n for each warp. */
static size_t lsla_shared(const tp_lsla *g, int rows, int warps)
{
    return (size_t)(rows * g->n * (g->dim + 1) + warps * g->n) * sizeof(float);
}

static tp_code lsla_too_large(const tp_call *c, size_t shared)
{
    if (shared <= (size_t)(99 << 10)) return TP_OK;
    return tp__cuda_fail(c, TP_E_SHAPE,
                         "a window of this size and heads of this width need %zu bytes of shared "
                         "memory, 101376 at most; use smaller windows or more heads",
                         shared);
}

template <class S> static tp_code lsla_attention_fwd(const tp_call *c)
{
    const lsla<S> p = lsla_problem<S>(c);
    if constexpr (std::is_same<S, bf16>::value)
        if (tp__lsla_mma_serves(p)) return tp__lsla_mma_fwd(c, p);
    const size_t shared = lsla_shared(&p.g, 3, LSLA_WARPS);
    const int64_t blocks = p.g.batch * p.g.down * p.g.across * p.g.heads;
    const tp_code code = lsla_too_large(c, shared);
    if (code != TP_OK) return code;
    return tp_launch(c, lsla_kernel<S>, tp_grid(c, blocks, 1), 32 * LSLA_WARPS, shared, p);
}

/* dq, dk, dv and the sums of slices. */
template <class S> static tp_code lsla_grad_windows(const tp_call *c, const lsla<S> &p)
{
    if constexpr (std::is_same<S, bf16>::value)
        if (tp__lsla_mma_serves_bwd(p)) return tp__lsla_mma_bwd(c, p);
    const size_t shared = lsla_shared(&p.g, 4, 0);
    const tp_code code = lsla_too_large(c, shared);
    if (code != TP_OK) return code;
    return tp_launch(c, lsla_grad<S>, (unsigned)(p.g.heads * p.g.slices), 32 * LSLA_WARPS, shared,
                     p);
}

template <class S> static tp_code lsla_attention_bwd(const tp_call *c)
{
    lsla<S> p = lsla_problem<S>(c);
    const tp_view *const dx = c->dx;
    p.dout = tp_in<S>(&c->dy[0]);
    p.dq = attn_sink_of<S>(&dx[LSLA_Q]);
    p.dk = attn_sink_of<S>(&dx[LSLA_K]);
    p.dv = attn_sink_of<S>(&dx[LSLA_V]);
    tp_code code = lsla_grad_windows(c, p);
    if (code == TP_OK && (dx[LSLA_SCALE].data || dx[LSLA_INNER].data || dx[LSLA_OUTER].data))
        code = tp_launch(c, lsla_grad_slices<S>, tp_grid(c, p.g.heads * 3 * p.g.n * p.g.n),
                         TP_THREADS, 0, p);
    if (code == TP_OK && dx[LSLA_SCALE].data)
        code = tp_launch(c, lsla_grad_scale<S>, tp_grid(c, p.g.n * p.g.n), TP_THREADS, 0, p,
                         attn_sink_of<S>(&dx[LSLA_SCALE]));
    for (int which = 1; which < 3 && code == TP_OK; which++)
        if (dx[LSLA_SCALE + which].data)
            code = tp_launch(c, lsla_grad_table<S>, tp_grid(c, p.g.table * p.g.heads), TP_THREADS,
                             0, p, which, attn_sink_of<S>(&dx[LSLA_SCALE + which]));
    return code;
}

static size_t lsla_attention_work(const tp_call *c)
{
    const tp_lsla g = tp__lsla(c->x, static_cast<const tp_lsla_attn_cfg *>(c->attr));
    if (!tp_is_backward(c)) return 0;
    return (size_t)(g.heads * lsla_slices(g) * 5 * g.n * g.n) * sizeof(float);
}

TP_CUDA_WORK(lsla_attention_work)
TP_CUDA_KERNEL(lsla_attention_fwd)
TP_CUDA_KERNEL(lsla_attention_bwd)
