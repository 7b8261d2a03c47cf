/* chunk_project.cu - the dynamic projection of chunks of l tokens, and its gradient.
 *
 *     y_j = sum_s p_sj x_s     dx_s = sum_j p_sj dy_j     dz_sj = p_sj (g_sj - sum_s p_sj g_sj)
 *
 * for each head, where p is the softmax of the scores z over the tokens of a chunk and g_sj = <x_s,
 * dy_j>. Hidden tokens have p = 0, and their x is not read. A second tensor with the same weights
 * shares the launches of short chunks of rank 1 and otherwise takes another pass of each kernel;
 * both dz are added.
 *
 * Short chunks, with heads that are 1, 2, 4 .. 32 packs wide: a warp takes a head of a chunk and
 * keeps its rows of x in registers, so that x and z are read once and dx is written once. In bf16,
 * with 16 tokens, rank 1 and width 64, an element of x costs 2.2 bytes forward and 4.2 backward, 2
 * and 4 operations, and 0.6 shuffles: bound by memory. All g are in registers, so the sum of p g
 * needs no second pass.
 *
 * Long chunks of up to eight ranks are cut into spans (chunk_spans.cu).
 *
 * Otherwise, including packed documents, p and g are floats in c->work, computed in several passes
 * with one thread per element and one block per column of scores. */
#include "cuda/attention/chunk_project.cuh"

static chunk_geometry geometry_of(const tp_call *c)
{
    const tp__chunk_attr *a = static_cast<const tp__chunk_attr *>(c->attr);
    const tp_view *x = &c->x[CHUNK_X], *mask = &c->x[CHUNK_MASK];
    const int64_t C = x->dim[x->ndim - 1];
    const tp_packing rows = tp__chunks(c->x, c->nx, a);
    chunk_geometry g = { rows.n,   a->chunk,
                         a->rank,  a->heads * a->rank,
                         a->heads, C / a->heads,
                         C,        tp_absent(mask) ? NULL : tp_in<uint8_t>(mask),
                         rows };
    return g;
}

static chunk_values values_of(const tp_call *c, int i)
{
    const int at = tp__chunk_values(i);
    const bool backward = tp_is_backward(c);
    return { &c->x[at], &c->y[i], backward ? &c->dy[i] : NULL, backward ? &c->dx[at] : NULL,
             i > 0 };
}

/* ---- short chunks: a warp takes a head of a chunk ---- */

enum { WARP_THREADS = 128 }; /* of a block; with twice as many, fewer warps fit */

/* Lanes a multiple of `lanes` apart hold the same pack of different tokens: token, token + step,
 * ...; `left` tokens of the chunk remain from `token` on. */
typedef struct warp_part {
    int lanes, step, token, pack, left;
} warp_part;

static __device__ inline warp_part part_of(const chunk_geometry &g, int lanes)
{
    const int lane = threadIdx.x % 32;
    const int token = lane / lanes;
    const warp_part w = { lanes, 32 / lanes, token, lane % lanes, (int)g.l - token };
    return w;
}

/* Reduces over the lanes whose numbers differ in the bits from `first` up to `end`. */
template <class Op> static __device__ inline float joined(float v, int first, int end)
{
    for (int d = first; d < end; d <<= 1) v = Op::join(v, __shfl_xor_sync(0xffffffffu, v, d));
    return v;
}

/* Bit k: this lane has a k-th token, counted from `first`, and it is visible. */
template <int STEPS>
static __device__ inline unsigned seen_rows(const chunk_geometry &g, const warp_part &w,
                                            int64_t first)
{
    unsigned seen = 0;
#pragma unroll
    for (int k = 0; k < STEPS; k++)
        if (k * w.step < w.left && chunk_shown(g, first + k * w.step)) seen |= 1u << k;
    return seen;
}

/* Loads this lane's rows of x, the first at x; hidden rows become zeros. */
template <int STEPS, class S>
static __device__ inline void load_rows(unsigned seen, int64_t stride, const S *x,
                                        tp_pack<S> v[STEPS])
{
#pragma unroll
    for (int k = 0; k < STEPS; k++) {
        v[k] = tp_pack<S>();
        if (seen >> k & 1u) v[k] = tp_load(x + k * stride);
    }
}

/* p[k] = softmax of a column of scores, for this lane's tokens, the first at z; 0 if hidden. */
template <int STEPS, class S>
static __device__ inline void weigh(const warp_part &w, unsigned seen, int64_t stride, const S *z,
                                    float p[STEPS])
{
    float top = -INFINITY, sum = 0.0f;
#pragma unroll
    for (int k = 0; k < STEPS; k++) {
        p[k] = seen >> k & 1u ? tp_float(z[k * stride]) : -INFINITY;
        top = tp_max_of::join(top, p[k]);
    }
    top = joined<tp_max_of>(top, w.lanes, 32);
#pragma unroll
    for (int k = 0; k < STEPS; k++) {
        p[k] = seen >> k & 1u ? expf(p[k] - top) : 0.0f;
        sum += p[k];
    }
    sum = joined<tp_sum_of>(sum, w.lanes, 32);
    const float scale = sum == 0.0f ? 0.0f : 1.0f / sum;
#pragma unroll
    for (int k = 0; k < STEPS; k++) p[k] *= scale;
}

/* The projected tensors of a launch: with one rank both, else one, for want of registers. Backward
 * takes both one after the other in each warp, which adds their dz. dx may be NULL. */
template <class S, class X> struct warp_values {
    int n;
    const S *x[2], *dy[2];
    S *y[2];
    X *dx[2];
};

template <bool ONE, int STEPS, class S>
static __device__ inline void project_one(const chunk_geometry &g, const warp_part &w, int64_t t,
                                          int64_t i, const S *x, const S *z, S *y)
{
    constexpr int N = (int)(16 / sizeof(S));
    const int64_t col = i * g.D + w.pack * N;
    const int64_t first = t * g.l + w.token, column = first * g.n + i * g.r;
    const unsigned seen = seen_rows<STEPS>(g, w, first);
    tp_pack<S> v[STEPS], out;
    load_rows<STEPS>(seen, w.step * g.C, x + first * g.C + col, v);
    for (int64_t j = 0; j < (ONE ? 1 : g.r); j++) {
        float p[STEPS], sum[N] = {};
        weigh<STEPS>(w, seen, w.step * g.n, z + column + j, p);
#pragma unroll
        for (int k = 0; k < STEPS; k++)
            for (int m = 0; m < N; m++) sum[m] += p[k] * tp_float(v[k].at[m]);
#pragma unroll
        for (int m = 0; m < N; m++) tp_put(&out.at[m], joined<tp_sum_of>(sum[m], w.lanes, 32));
        if (w.token == 0) tp_store(y + (t * g.r + j) * g.C + col, out);
    }
}

template <bool ONE, int STEPS, class S>
__global__ void __launch_bounds__(WARP_THREADS, 1)
    project_kernel(chunk_geometry g, int lanes, warp_values<S, S> q, const S *z)
{
    const warp_part w = part_of(g, lanes);
    const int64_t heads = g.chunks * g.H;
    for (int64_t e = tp_warp_number(); e < (ONE ? q.n : 1) * heads; e += tp_warps()) {
        const bool second = ONE && e >= heads;
        const int64_t head = second ? e - heads : e, t = tp_div(head, g.H);
        project_one<ONE, STEPS>(g, w, t, head - t * g.H, second ? q.x[1] : q.x[0], z,
                                second ? q.y[1] : q.y[0]);
    }
}

/* dx and dz may be NULL. add: to dz. */
template <bool ONE, int STEPS, class S, class X, class Z>
static __device__ inline void grad_one(const chunk_geometry &g, const warp_part &w, int64_t t,
                                       int64_t i, const S *x, const S *z, const S *dy, X *dx, Z *dz,
                                       bool add)
{
    constexpr int N = (int)(16 / sizeof(S));
    const int64_t col = i * g.D + w.pack * N, first = t * g.l + w.token;
    const unsigned seen = seen_rows<STEPS>(g, w, first);
    tp_pack<S> v[STEPS];
    float sums[STEPS][N] = {};
    load_rows<STEPS>(seen, w.step * g.C, x + first * g.C + col, v);
    for (int64_t j = 0; j < (ONE ? 1 : g.r); j++) {
        const int64_t column = first * g.n + i * g.r + j;
        const tp_pack<S> from = tp_load(dy + (t * g.r + j) * g.C + col);
        float p[STEPS], dot[STEPS] = {}, mean = 0.0f;
        weigh<STEPS>(w, seen, w.step * g.n, z + column, p);
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            for (int m = 0; m < N; m++) {
                dot[k] += tp_float(v[k].at[m]) * tp_float(from.at[m]);
                sums[k][m] += p[k] * tp_float(from.at[m]);
            }
            dot[k] = joined<tp_sum_of>(dot[k], 1, w.lanes);
            mean += p[k] * dot[k];
        }
        mean = joined<tp_sum_of>(mean, w.lanes, 32);
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            if (dz && w.pack == 0 && k * w.step < w.left)
                chunk_put(dz + column + k * w.step * g.n, p[k] * (dot[k] - mean), add);
        }
    }
#pragma unroll
    for (int k = 0; k < STEPS; k++) {
        tp_pack<X, N> out;
        for (int m = 0; m < N; m++) tp_put(&out.at[m], sums[k][m]);
        if (dx && k * w.step < w.left) tp_store(dx + (first + k * w.step) * g.C + col, out);
    }
}

template <bool ONE, int STEPS, class S, class X, class Z>
__global__ void __launch_bounds__(WARP_THREADS)
    project_grad(chunk_geometry g, int lanes, warp_values<S, X> q, const S *z, Z *dz, bool add)
{
    const warp_part w = part_of(g, lanes);
    for (int64_t e = tp_warp_number(); e < g.chunks * g.H; e += tp_warps()) {
        const int64_t t = tp_div(e, g.H);
        /* no variable index, so the pointers stay in registers */
#pragma unroll 1
        for (int m = 0; m < (ONE ? q.n : 1); m++)
            grad_one<ONE, STEPS>(g, w, t, e - t * g.H, m ? q.x[1] : q.x[0], z,
                                 m ? q.dy[1] : q.dy[0], m ? q.dx[1] : q.dx[0], dz, add || m > 0);
    }
}

/* How a warp covers a head: lanes across it, and tokens per lane; lanes 0: it cannot. */
typedef struct warp_plan {
    int lanes, steps;
} warp_plan;

template <class S> static warp_plan plan_of(const chunk_geometry &g, bool aligned)
{
    const int64_t n = (int64_t)(16 / sizeof(S)), lanes = g.D / n;
    const bool fits = aligned && !g.rows.offset && lanes * n == g.D && lanes >= 1 && lanes <= 32 &&
                      (lanes & (lanes - 1)) == 0 && g.l <= 8 * (32 / lanes);
    warp_plan w = { 0, 0 };
    if (fits) w = { (int)lanes, g.l <= 4 * (32 / lanes) ? 4 : 8 };
    return w;
}

/* The first n tensors from tensor `first` on. */
template <class S, class X>
static warp_values<S, X> warp_values_of(const tp_call *c, int first, int n)
{
    warp_values<S, X> q = {};
    for (q.n = 0; q.n < n; q.n++) {
        const chunk_values v = values_of(c, first + q.n);
        q.x[q.n] = tp_in<S>(v.x);
        q.y[q.n] = tp_out<S>(v.y);
        if (!tp_is_backward(c)) continue;
        q.dy[q.n] = tp_in<S>(v.dy);
        q.dx[q.n] = tp_out<X>(v.dx);
    }
    return q;
}

template <int STEPS, class S>
static tp_code forward_warps(const tp_call *c, const chunk_geometry &g, int first, int n, int lanes)
{
    return tp_launch(c, g.r == 1 ? project_kernel<true, STEPS, S> : project_kernel<false, STEPS, S>,
                     tp_grid(c, n * g.chunks * g.H, WARP_THREADS / 32), WARP_THREADS, 0, g, lanes,
                     warp_values_of<S, S>(c, first, n), tp_in<S>(&c->x[CHUNK_SCORES]));
}

template <int STEPS, class S, class X, class Z>
static tp_code backward_warps(const tp_call *c, const chunk_geometry &g, int first, int n,
                              int lanes)
{
    return tp_launch(
        c, g.r == 1 ? project_grad<true, STEPS, S, X, Z> : project_grad<false, STEPS, S, X, Z>,
        tp_grid(c, g.chunks * g.H, WARP_THREADS / 32), WARP_THREADS, 0, g, lanes,
        warp_values_of<S, X>(c, first, n), tp_in<S>(&c->x[CHUNK_SCORES]),
        tp_out<Z>(&c->dx[CHUNK_SCORES]), first > 0);
}

/* ---- any size: one thread per element ---- */

/* The chunk of a row. */
static __device__ inline int64_t chunk_of(const chunk_geometry &g, int64_t row)
{
    return g.rows.offset ? tp__document_of(&g.rows, row) : tp_div(row, g.l);
}

/* One block per column of a chunk's scores. */
template <class S>
__global__ void __launch_bounds__(TP_THREADS) weights_kernel(chunk_geometry g, const S *z, float *p)
{
    TP_EACH_BLOCK (column, g.chunks * g.n) {
        const int64_t t = tp_div(column, g.n);
        const tp_rows rows = tp__document(&g.rows, t);
        const int64_t first = rows.first * g.n + column - t * g.n;
        float top = -INFINITY, sum = 0.0f;
        for (int64_t s = threadIdx.x; s < rows.count; s += blockDim.x)
            if (chunk_shown(g, rows.first + s))
                top = tp_max_of::join(top, tp_float(z[first + s * g.n]));
        top = tp_block<tp_max_of>(top);
        for (int64_t s = threadIdx.x; s < rows.count; s += blockDim.x) {
            const bool shown = chunk_shown(g, rows.first + s);
            const float e = shown ? expf(tp_float(z[first + s * g.n]) - top) : 0.0f;
            p[first + s * g.n] = e;
            sum += e;
        }
        sum = tp_block<tp_sum_of>(sum);
        const float k = sum == 0.0f ? 0.0f : 1.0f / sum;
        for (int64_t s = threadIdx.x; s < rows.count; s += blockDim.x) p[first + s * g.n] *= k;
    }
}

template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    sums_kernel(chunk_geometry g, const S *x, const float *p, S *y)
{
    TP_EACH (e, g.chunks * g.r * g.C) {
        const int64_t row = tp_div(e, g.C), col = e - row * g.C, t = tp_div(row, g.r);
        const tp_rows rows = tp__document(&g.rows, t);
        const float *w = p + rows.first * g.n + tp_div(col, g.D) * g.r + row - t * g.r;
        const S *from = x + rows.first * g.C + col;
        float sum = 0.0f;
        for (int64_t s = 0; s < rows.count; s++)
            if (chunk_shown(g, rows.first + s)) sum += w[s * g.n] * tp_float(from[s * g.C]);
        tp_put(y + e, sum);
    }
}

template <class S, class X>
__global__ void __launch_bounds__(TP_THREADS)
    spread_kernel(chunk_geometry g, const float *p, const S *dy, X *dx)
{
    TP_EACH (e, g.rows.rows * g.C) {
        const int64_t row = tp_div(e, g.C), col = e - row * g.C;
        const float *w = p + row * g.n + tp_div(col, g.D) * g.r;
        const S *from = dy + chunk_of(g, row) * g.r * g.C + col;
        float sum = 0.0f;
        for (int64_t j = 0; j < g.r; j++) sum += w[j] * tp_float(from[j * g.C]);
        tp_put(dx + e, sum);
    }
}

/* One warp per dot product: out [rows,n]. */
template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    dots_kernel(chunk_geometry g, const S *x, const S *dy, float *out)
{
    for (int64_t e = tp_warp_number(); e < g.rows.rows * g.n; e += tp_warps()) {
        const int64_t row = tp_div(e, g.n), k = e - row * g.n, i = tp_div(k, g.r);
        const S *a = x + row * g.C + i * g.D;
        const S *b = dy + (chunk_of(g, row) * g.r + k - i * g.r) * g.C + i * g.D;
        float sum = 0.0f;
        const int64_t end = chunk_shown(g, row) ? g.D : 0;
        for (int64_t d = threadIdx.x % 32; d < end; d += 32) sum += tp_float(a[d]) * tp_float(b[d]);
        sum = tp_warp<tp_sum_of>(sum);
        if (threadIdx.x % 32 == 0) out[e] = sum;
    }
}

template <class Z>
__global__ void __launch_bounds__(TP_THREADS)
    scores_grad(chunk_geometry g, const float *p, const float *dots, Z *dz, bool add)
{
    TP_EACH_BLOCK (column, g.chunks * g.n) {
        const int64_t t = tp_div(column, g.n);
        const tp_rows rows = tp__document(&g.rows, t);
        const int64_t first = rows.first * g.n + column - t * g.n;
        float sum = 0.0f;
        for (int64_t s = threadIdx.x; s < rows.count; s += blockDim.x)
            sum += p[first + s * g.n] * dots[first + s * g.n];
        sum = tp_block<tp_sum_of>(sum);
        for (int64_t s = threadIdx.x; s < rows.count; s += blockDim.x)
            chunk_put(dz + first + s * g.n, p[first + s * g.n] * (dots[first + s * g.n] - sum),
                      add);
    }
}

/* Threads for a column of l scores. */
static int column_threads(int64_t l)
{
    return l <= 64 ? 32 : TP_THREADS;
}

template <class S> static tp_code weights(const tp_call *c, const chunk_geometry &g)
{
    return tp_launch(c, weights_kernel<S>, tp_grid(c, g.chunks * g.n, 1), column_threads(g.l), 0, g,
                     tp_in<S>(&c->x[CHUNK_SCORES]), static_cast<float *>(c->work));
}

/* The second tensor reuses the weights. */
template <class S>
static tp_code forward_any(const tp_call *c, const chunk_geometry &g, const chunk_values &v)
{
    const tp_code code = v.add ? TP_OK : weights<S>(c, g);
    if (code != TP_OK) return code;
    return tp_launch(c, sums_kernel<S>, tp_grid(c, v.y->numel), TP_THREADS, 0, g, tp_in<S>(v.x),
                     static_cast<const float *>(c->work), tp_out<S>(v.y));
}

template <class S, class X, class Z>
static tp_code backward_any(const tp_call *c, const chunk_geometry &g, const chunk_values &v)
{
    const S *dy = tp_in<S>(v.dy);
    const tp_view *dz = &c->dx[CHUNK_SCORES];
    const int64_t nz = c->x[CHUNK_SCORES].numel;
    float *p = static_cast<float *>(c->work), *dots = p + nz;
    tp_code code = v.add ? TP_OK : weights<S>(c, g);
    if (code == TP_OK && v.dx->data)
        code = tp_launch(c, spread_kernel<S, X>, tp_grid(c, v.x->numel), TP_THREADS, 0, g, p, dy,
                         tp_out<X>(v.dx));
    if (code != TP_OK || !dz->data) return code;
    code = tp_launch(c, dots_kernel<S>, tp_grid(c, nz, TP_THREADS / 32), TP_THREADS, 0, g,
                     tp_in<S>(v.x), dy, dots);
    if (code != TP_OK) return code;
    return tp_launch(c, scores_grad<Z>, tp_grid(c, g.chunks * g.n, 1), column_threads(g.l), 0, g, p,
                     dots, tp_out<Z>(dz), v.add);
}

/* ---- kernels ---- */

/* The second tensor takes the first's path and reuses its weights. */
template <class S> static tp_code chunk_project_fwd(const tp_call *c)
{
    const chunk_geometry g = geometry_of(c);
    bool aligned = true;
    for (int i = 0; i < c->ny; i++) {
        const chunk_values v = values_of(c, i);
        aligned = aligned && tp_aligned(tp_in<S>(v.x), tp_in<S>(v.y));
    }
    const warp_plan w = plan_of<S>(g, aligned);
    const int n = w.steps > 0 && g.r == 1 ? c->ny : 1;
    tp_code code = TP_OK;
    for (int i = 0; i < c->ny && code == TP_OK; i += n) {
        const chunk_values v = values_of(c, i);
        code = w.steps == 0 && tp__chunk_spans_serve(g) ? tp__chunk_spans_fwd(c, g, v)
               : w.steps == 4                           ? forward_warps<4, S>(c, g, i, n, w.lanes)
               : w.steps == 8                           ? forward_warps<8, S>(c, g, i, n, w.lanes)
                                                        : forward_any<S>(c, g, v);
    }
    return code;
}

/* The gradients of n tensors from `first` on; more than one only by warps. */
template <class S, class X, class Z>
static tp_code backward(const tp_call *c, const chunk_geometry &g, int first, int n,
                        const warp_plan &w)
{
    const chunk_values v = values_of(c, first);
    if (w.steps == 0 && tp__chunk_spans_serve(g)) return tp__chunk_spans_bwd(c, g, v);
    return w.steps == 4   ? backward_warps<4, S, X, Z>(c, g, first, n, w.lanes)
           : w.steps == 8 ? backward_warps<8, S, X, Z>(c, g, first, n, w.lanes)
                          : backward_any<S, X, Z>(c, g, v);
}

template <class S> static tp_code chunk_project_bwd(const tp_call *c)
{
    const chunk_geometry g = geometry_of(c);
    bool aligned = true, same = true; /* types of gradients */
    for (int i = 0; i < c->ny; i++) {
        const chunk_values v = values_of(c, i);
        aligned = aligned && tp_aligned(tp_in<S>(v.x), tp_in<S>(v.dy), v.dx->data);
        same = same && v.dx->dtype == values_of(c, 0).dx->dtype;
    }
    const warp_plan w = plan_of<S>(g, aligned);
    const int n = same && w.steps > 0 && g.r == 1 ? c->ny : 1;
    tp_code code = TP_OK;
    for (int i = 0; i < c->ny && code == TP_OK; i += n) {
        code = chunk_with_gradient<S>(values_of(c, i).dx, [&](auto x) {
            return chunk_with_gradient<S>(&c->dx[CHUNK_SCORES], [&](auto z) {
                return backward<S, decltype(x), decltype(z)>(c, g, i, n, w);
            });
        });
    }
    return code;
}

/* With spans: D sums, the largest score and the sum of exponentials per span and rank, and three
 * floats per column of scores. Otherwise the weights and their gradients. */
static size_t chunk_project_work(const tp_call *c)
{
    if (c->x[CHUNK_SCORES].numel == 0) return 0;
    const chunk_geometry g = geometry_of(c);
    const int64_t columns = g.chunks * g.n;
    const int64_t spans = columns * (tp__chunk_spans(g) * (g.D + 2) + 3);
    const int64_t weights = c->x[CHUNK_SCORES].numel * (tp_is_backward(c) ? 2 : 1);
    return (size_t)max(spans, weights) * sizeof(float);
}

TP_CUDA_WORK(chunk_project_work)
TP_CUDA_KERNEL(chunk_project_fwd)
TP_CUDA_KERNEL(chunk_project_bwd)
