/* cumulative.cu - running sums and products along an axis, and their gradients, as s -> b + a s:
 *
 *     cumsum     s = s + x_i              y_i = s
 *     its dx     s = s + dy_i             dx_i = s                         from the end
 *     cumprod    s = x_i s                y_i = s
 *     its dx     s = x_i (dy_i + s)       dx_i = y_(i-1) (dy_i + s)        from the end
 *
 * Lanes are cut into tiles (tensor/geometry/scan.h). Along the last axis a block scans a tile, PACK
 * elements per thread; along other axes a thread scans a tile, with coalesced reads. Lanes of
 * several tiles are read twice: first for each tile's map, then with the incoming s. State is in
 * double, three to six operations per element. Moves 8 bytes per element (f32, one tile; 12 with
 * more; cumprod's gradient 16 and 28): bound by memory. */
#include "cuda/kit/kernel.cuh"
#include "tensor/geometry/scan.h"

enum kind { SUM, PRODUCT, PRODUCT_GRAD };
enum { PACK = 8, ROW_TILE = PACK * TP_THREADS, COLUMN_TILE = 64, LOADS = 8 };
enum { FEW_TILES = 2 * LOADS, MANY_LANES = 4096 }; /* a thread may join a lane's tiles */

/* s -> b + a s. Only PRODUCT_GRAD has an a; the b of PRODUCT multiplies s. */
template <kind K> struct link {
    double a, b;
    static __device__ link none() { return { 1.0, K == PRODUCT ? 1.0 : 0.0 }; }
    /* This, then the other. */
    __device__ link then(link other) const
    {
        if (K == SUM) return { 1.0, b + other.b };
        if (K == PRODUCT) return { 1.0, b * other.b };
        return { a * other.a, other.b + other.a * b };
    }
    __device__ link up(int by) const
    {
        link from = { 1.0, __shfl_up_sync(0xffffffffu, b, by) };
        if (K == PRODUCT_GRAD) from.a = __shfl_up_sync(0xffffffffu, a, by);
        return from;
    }
    /* The step of one element. */
    __device__ link step(float x, float dy) const
    {
        if (K == SUM) return { 1.0, b + (double)x };
        if (K == PRODUCT) return { 1.0, b * (double)x };
        return { a * (double)x, (double)x * ((double)dy + b) };
    }
    /* An element's result from the map so far; before: the product of earlier elements. */
    __device__ float result(float x, float dy, float before) const
    {
        return (float)(K == PRODUCT_GRAD ? (double)before * ((double)dy + b) : step(x, dy).b);
    }
};

template <class S> struct data {
    const S *x, *y, *dy; /* y and dy: PRODUCT_GRAD only */
    S *to;
};

/* The map of the previous threads; *all: the block's map. */
template <kind K> static __device__ inline link<K> before_in_block(link<K> own, link<K> *all)
{
    TP_SHARED(double, a, [32]);
    TP_SHARED(double, b, [32]);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    link<K> upto = own, first = link<K>::none();
    for (int d = 1; d < 32; d *= 2) {
        const link<K> from = upto.up(d);
        if (lane >= d) upto = from.then(upto);
    }
    if (lane == 31) {
        a[warp] = upto.a;
        b[warp] = upto.b;
    }
    const link<K> left = upto.up(1);
    __syncthreads();
    *all = link<K>::none();
    for (int w = 0; w < warps; w++) {
        const link<K> of = { a[w], b[w] };
        if (w == warp) first = *all;
        *all = all->then(of);
    }
    __syncthreads();
    return lane > 0 ? first.then(left) : first;
}

/* Loads n elements of a row in scan order from position p, in one move if `packed`. */
template <class S>
static __device__ inline void take(bool packed, const S *row, int64_t dim, bool back, int64_t p,
                                   int n, float v[PACK])
{
    if (packed && n == PACK) {
        const tp_pack<S, PACK> all = tp_load_n<S, PACK>(row + (back ? dim - p - PACK : p));
#pragma unroll
        for (int k = 0; k < PACK; k++) v[k] = tp_float(all.at[back ? PACK - 1 - k : k]);
        return;
    }
#pragma unroll
    for (int k = 0; k < PACK; k++)
        v[k] = k < n ? tp_float(row[back ? dim - 1 - p - k : p + k]) : 0.0f;
}

template <class S>
static __device__ inline void put(bool packed, S *row, int64_t dim, bool back, int64_t p, int n,
                                  const float v[PACK])
{
    if (packed && n == PACK) {
        tp_pack<S, PACK> all;
#pragma unroll
        for (int k = 0; k < PACK; k++) tp_put(&all.at[back ? PACK - 1 - k : k], v[k]);
        return tp_store(row + (back ? dim - p - PACK : p), all);
    }
#pragma unroll
    for (int k = 0; k < PACK; k++)
        if (k < n) tp_put(row + (back ? dim - 1 - p - k : p + k), v[k]);
}

/* Scans tiles of rows. carry: the incoming map of each tile, or NULL: none; with TOTALS, stores the
 * tile's map there. */
template <kind K, bool TOTALS, class S>
__global__ void __launch_bounds__(TP_THREADS)
    scan_rows(tp_scan s, bool packed, data<S> p, link<K> *carry)
{
    TP_EACH_BLOCK (i, s.outer * s.tiles) {
        const int64_t row = tp_div(i, s.tiles), base = row * s.dim;
        const int64_t at = (i - row * s.tiles) * ROW_TILE + threadIdx.x * PACK;
        const int n = (int)max((int64_t)0, min((int64_t)PACK, s.dim - at));
        float x[PACK], dy[PACK] = {}, before[PACK] = {}, result[PACK];
        take(packed, p.x + base, s.dim, s.back, at, n, x);
        if (K == PRODUCT_GRAD) {
            take(packed, p.dy + base, s.dim, true, at, n, dy);
            if (!TOTALS) {
#pragma unroll
                for (int k = 0; k < PACK; k++) {
                    const int64_t e = s.dim - 1 - at - k;
                    before[k] = k < n && e > 0 ? tp_float(p.y[base + e - 1]) : 1.0f;
                }
            }
        }
        link<K> own = link<K>::none(), all;
#pragma unroll
        for (int k = 0; k < PACK; k++)
            if (k < n) own = own.step(x[k], dy[k]);
        const link<K> left = before_in_block(own, &all);
        if (TOTALS) {
            if (threadIdx.x == 0) carry[i] = all;
            continue;
        }
        own = carry ? carry[i].then(left) : left;
#pragma unroll
        for (int k = 0; k < PACK; k++) {
            result[k] = own.result(x[k], dy[k], before[k]);
            own = own.step(x[k], dy[k]);
        }
        put(packed, p.to + base, s.dim, s.back, at, n, result);
    }
}

/* The same for tiles along other axes, by thread. */
template <kind K, bool TOTALS, class S>
__global__ void __launch_bounds__(TP_THREADS) scan_columns(tp_scan s, data<S> p, link<K> *carry)
{
    const int64_t step = s.back ? -s.inner : s.inner;
    TP_EACH (i, s.outer * s.tiles * s.inner) {
        const tp_scan_part part = tp__scan_part(&s, i);
        link<K> own = !TOTALS && carry ? carry[i] : link<K>::none();
#pragma unroll 2
        for (int64_t d = 0; d < part.steps; d++) {
            const int64_t e = part.at + d * step;
            const float x = tp_float(p.x[e]), dy = K == PRODUCT_GRAD ? tp_float(p.dy[e]) : 0.0f;
            if (!TOTALS) {
                const bool edge = part.last && d == part.steps - 1;
                const bool reads = K == PRODUCT_GRAD && !edge;
                tp_put(p.to + e, own.result(x, dy, reads ? tp_float(p.y[e - s.inner]) : 1.0f));
            }
            own = own.step(x, dy);
        }
        if (TOTALS) carry[i] = own;
    }
}

/* Replaces each tile's map by its incoming one; one thread per lane reads LOADS tiles ahead. */
template <kind K>
__global__ void __launch_bounds__(TP_THREADS) join_tiles(tp_scan s, link<K> *carry)
{
    TP_EACH (lane, s.outer * s.inner) {
        const int64_t o = tp_div(lane, s.inner);
        link<K> *of = carry + o * s.tiles * s.inner + lane - o * s.inner, at = link<K>::none();
        for (int64_t t = 0; t < s.tiles; t += LOADS) {
            link<K> own[LOADS];
#pragma unroll
            for (int k = 0; k < LOADS; k++)
                if (t + k < s.tiles) own[k] = of[(t + k) * s.inner];
#pragma unroll
            for (int k = 0; k < LOADS; k++)
                if (t + k < s.tiles) {
                    of[(t + k) * s.inner] = at;
                    at = at.then(own[k]);
                }
        }
    }
}

/* The same for few lanes of many tiles: a block per lane, LOADS tiles per thread and round. */
template <kind K> __global__ void __launch_bounds__(TP_THREADS) join_long(tp_scan s, link<K> *carry)
{
    TP_EACH_BLOCK (lane, s.outer * s.inner) {
        const int64_t o = tp_div(lane, s.inner);
        link<K> *of = carry + o * s.tiles * s.inner + lane - o * s.inner, at = link<K>::none();
        for (int64_t first = 0; first < s.tiles; first += blockDim.x * LOADS) {
            const int64_t t = first + threadIdx.x * LOADS;
            link<K> own[LOADS], mine = link<K>::none(), all;
#pragma unroll
            for (int k = 0; k < LOADS; k++) {
                own[k] = t + k < s.tiles ? of[(t + k) * s.inner] : link<K>::none();
                mine = mine.then(own[k]);
            }
            link<K> left = at.then(before_in_block(mine, &all));
#pragma unroll
            for (int k = 0; k < LOADS; k++) {
                if (t + k < s.tiles) of[(t + k) * s.inner] = left;
                left = left.then(own[k]);
            }
            at = at.then(all);
        }
    }
}

template <kind K> static tp_code join(const tp_call *c, const tp_scan &s, link<K> *carry)
{
    const int64_t lanes = s.outer * s.inner;
    if (s.tiles <= FEW_TILES || lanes >= MANY_LANES)
        return tp_launch(c, join_tiles<K>, tp_grid(c, lanes), TP_THREADS, 0, s, carry);
    return tp_launch(c, join_long<K>, tp_grid(c, lanes, 1), s.tiles <= 32 * LOADS ? 32 : TP_THREADS,
                     0, s, carry);
}

static tp_scan scan_of(const tp_call *c)
{
    const tp_scan s = tp__scan(c, COLUMN_TILE);
    return s.inner == 1 ? tp__scan(c, ROW_TILE) : s;
}

template <kind K, bool TOTALS, class S>
static tp_code pass(const tp_call *c, const tp_scan &s, const data<S> &p, link<K> *carry)
{
    const int64_t tiles = s.outer * s.tiles * s.inner;
    const bool packed = s.dim % PACK == 0 && tp_aligned(p.x, p.dy, p.to);
    if (s.inner == 1)
        return tp_launch(c, scan_rows<K, TOTALS, S>, tp_grid(c, tiles, 1), TP_THREADS, 0, s, packed,
                         p, carry);
    return tp_launch(c, scan_columns<K, TOTALS, S>, tp_grid(c, tiles), TP_THREADS, 0, s, p, carry);
}

template <kind K, class S> static tp_code scan(const tp_call *c, const data<S> &p)
{
    const tp_scan s = scan_of(c);
    if (!p.to || s.outer * s.tiles * s.inner == 0) return TP_OK;
    if (s.tiles == 1) return pass<K, false, S>(c, s, p, (link<K> *)NULL);
    link<K> *carry = static_cast<link<K> *>(c->work);
    tp_code code = pass<K, true, S>(c, s, p, carry);
    if (code == TP_OK) code = join<K>(c, s, carry);
    return code == TP_OK ? pass<K, false, S>(c, s, p, carry) : code;
}

template <class S> static tp_code cumsum_fwd(const tp_call *c)
{
    return scan<SUM, S>(c, { tp_in<S>(&c->x[0]), NULL, NULL, tp_out<S>(&c->y[0]) });
}

template <class S> static tp_code cumsum_bwd(const tp_call *c)
{
    return scan<SUM, S>(c, { tp_in<S>(&c->dy[0]), NULL, NULL, tp_out<S>(&c->dx[0]) });
}

template <class S> static tp_code cumprod_fwd(const tp_call *c)
{
    return scan<PRODUCT, S>(c, { tp_in<S>(&c->x[0]), NULL, NULL, tp_out<S>(&c->y[0]) });
}

template <class S> static tp_code cumprod_bwd(const tp_call *c)
{
    return scan<PRODUCT_GRAD, S>(
        c, { tp_in<S>(&c->x[0]), tp_in<S>(&c->y[0]), tp_in<S>(&c->dy[0]), tp_out<S>(&c->dx[0]) });
}

static size_t cumulative_work(const tp_call *c)
{
    const tp_scan s = scan_of(c);
    return s.tiles > 1 ? (size_t)(s.outer * s.tiles * s.inner) * sizeof(link<SUM>) : 0;
}

TP_CUDA_WORK(cumulative_work)
TP_CUDA_KERNEL(cumsum_fwd)
TP_CUDA_KERNEL(cumsum_bwd)
TP_CUDA_KERNEL(cumprod_fwd)
TP_CUDA_KERNEL(cumprod_bwd)
