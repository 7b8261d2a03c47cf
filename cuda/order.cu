/* order.cu - sort and topk along one axis, stable, NaN largest.
 *
 * An element becomes a key and its index in one 64-bit word; no two words are equal. A block sorts
 * a tile of a lane in shared memory by a bitonic network and keeps the first k words. Pairs of
 * sorted runs are then merged, keeping only the first k, until each lane has one run: a small k
 * costs little more than the first pass. A thread finds by bisection where its MERGED results begin
 * in both runs.
 *
 * The network is bound by log^2 steps in shared memory, 66 for a tile of 2048; a merge moves 16
 * bytes per word and is bound by memory. */
#include "tensor/geometry/order.h"

#include "cuda/kit/move.cuh"

enum { TILE = 2048, MERGED = 8 };

typedef unsigned long long word;

/* Runs of a lane: run r holds the first `room` words of `span` elements from r * span on. */
struct runs {
    int64_t count, span, room;
    __host__ __device__ int64_t words(int64_t dim, int64_t r) const
    {
        const int64_t rest = dim - r * span;
        return rest < 0 ? 0 : rest < room ? rest : room;
    }
};

static runs runs_of(const tp_order &o, int64_t span)
{
    return { (o.dim + span - 1) / span, span, o.k < span ? o.k : span };
}

/* Sorts tiles of `size` words, a power of two; list: [lanes][runs][room]. */
template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    sort_tiles(tp_order o, runs r, int size, const S *x, word *list)
{
    TP_SHARED_REST(word, a);
    TP_EACH_BLOCK (t, o.outer * o.inner * r.count) {
        const int64_t lane = tp_div(t, r.count), run = t - lane * r.count;
        const int64_t row = tp_div(lane, o.inner);
        const S *from = x + row * o.dim * o.inner + (lane - row * o.inner);
        for (int i = threadIdx.x; i < size; i += blockDim.x) {
            const int64_t at = run * TILE + i;
            a[i] = ~(word)0;
            if (at < o.dim)
                a[i] = (word)tp__order_key32(tp_float(from[at * o.inner]), o.descending) << 32 |
                       (word)at;
        }
        __syncthreads();
        for (int sorted = 2; sorted <= size; sorted *= 2)
            for (int step = sorted / 2; step > 0; step /= 2) {
                for (int p = threadIdx.x; p < size / 2; p += blockDim.x) {
                    const int i = 2 * p - (p & (step - 1)), j = i + step;
                    const word u = a[i], v = a[j];
                    if ((u > v) == ((i & sorted) == 0)) {
                        a[i] = v;
                        a[j] = u;
                    }
                }
                __syncthreads();
            }
        const int64_t n = r.words(o.dim, run);
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) list[t * r.room + i] = a[i];
        __syncthreads();
    }
}

/* Merges each lane's runs 2 i and 2 i + 1 into run i of `to`; a thread writes MERGED words. */
static __global__ void __launch_bounds__(TP_THREADS)
    merge_runs(tp_order o, runs r, runs to, const word *list, word *merged)
{
    const int64_t threads = (to.room + MERGED - 1) / MERGED; /* for a run */
    TP_EACH (t, o.outer * o.inner * to.count * threads) {
        const int64_t whole = tp_div(t, threads), first = (t - whole * threads) * MERGED;
        const int64_t lane = tp_div(whole, to.count), run = whole - lane * to.count;
        const word *a = list + (lane * r.count + 2 * run) * r.room, *b = a + r.room;
        const int64_t na = r.words(o.dim, 2 * run), nb = r.words(o.dim, 2 * run + 1);
        const int64_t end = min(first + MERGED, min(to.room, na + nb));
        int64_t low = max((int64_t)0, first - nb), high = min(first, na);
        if (first >= end) continue;
        while (low < high) { /* counts words of a in the first `first` */
            const int64_t middle = (low + high) / 2;
            if (a[middle] < b[first - 1 - middle])
                low = middle + 1;
            else
                high = middle;
        }
        int64_t i = low, j = first - low;
        for (int64_t k = first; k < end; k++) {
            const bool of_a = j >= nb || (i < na && a[i] < b[j]);
            merged[whole * to.room + k] = of_a ? a[i] : b[j];
            i += of_a;
            j += !of_a;
        }
    }
}

template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    store_order(tp_order o, tp_divisor inner, tp_divisor k, const word *list, const S *x, S *y,
                int64_t *at)
{
    TP_EACH (e, o.outer * o.k * o.inner) {
        const int64_t line = tp_over(inner, e), j = e - line * o.inner;
        const int64_t row = tp_over(k, line), i = line - row * o.k;
        const int64_t from = (int64_t)(list[(row * o.inner + j) * o.k + i] & 0xffffffffu);
        y[e] = x[(row * o.dim + from) * o.inner + j];
        at[e] = from;
    }
}

/* Words in a list of the runs of all lanes. */
static int64_t places(const tp_order &o, const runs &r)
{
    return o.outer * o.inner * r.count * r.room;
}

template <class S> static tp_code order_fwd(const tp_call *c)
{
    const tp_order o = tp__order(&c->x[0], c->attr);
    const S *x = tp_in<S>(&c->x[0]);
    runs r = runs_of(o, TILE);
    word *list = static_cast<word *>(c->work), *other = list + places(o, r);
    int size = 2;
    if (c->y[0].numel == 0) return TP_OK;
    while (size < TILE && size < o.dim) size *= 2;
    const int threads = size < 64 ? 32 : size / 2 < TP_THREADS ? size / 2 : TP_THREADS;
    tp_code code = tp_launch(c, sort_tiles<S>, tp_grid(c, o.outer * o.inner * r.count, 1), threads,
                             (size_t)size * sizeof(word), o, r, size, x, list);
    while (code == TP_OK && r.count > 1) {
        const runs to = runs_of(o, 2 * r.span);
        const int64_t n = o.outer * o.inner * to.count * ((to.room + MERGED - 1) / MERGED);
        code = tp_launch(c, merge_runs, tp_grid(c, n), TP_THREADS, 0, o, r, to,
                         static_cast<const word *>(list), other);
        word *read = list;
        list = other;
        other = read;
        r = to;
    }
    if (code != TP_OK) return code;
    return tp_launch(c, store_order<S>, tp_grid(c, c->y[0].numel), TP_THREADS, 0, o, tp_by(o.inner),
                     tp_by(o.k), static_cast<const word *>(list), x, tp_out<S>(&c->y[0]),
                     tp_out<int64_t>(&c->y[1]));
}

/* ---- backward: dy goes where the elements were ---- */

template <class S> __global__ void __launch_bounds__(TP_THREADS) clear_all(int64_t n, S *dx)
{
    TP_EACH (e, n) tp_put(dx + e, 0.0f);
}

template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    order_grad(tp_order o, tp_divisor inner, tp_divisor k, const int64_t *at, const S *dy, S *dx)
{
    TP_EACH (e, o.outer * o.k * o.inner) {
        const int64_t line = tp_over(inner, e), row = tp_over(k, line);
        dx[(row * o.dim + at[e]) * o.inner + e - line * o.inner] = dy[e];
    }
}

template <class S> static tp_code order_bwd(const tp_call *c)
{
    const tp_order o = tp__order(&c->dx[0], c->attr);
    const int64_t n = c->dx[0].numel;
    S *dx = tp_out<S>(&c->dx[0]);
    tp_code code = TP_OK;
    if (!dx || n == 0) return TP_OK;
    if (o.k < o.dim) code = tp_launch(c, clear_all<S>, tp_grid(c, n), TP_THREADS, 0, n, dx);
    if (code != TP_OK || o.k == 0) return code;
    return tp_launch(c, order_grad<S>, tp_grid(c, c->dy[0].numel), TP_THREADS, 0, o, tp_by(o.inner),
                     tp_by(o.k), tp_in<int64_t>(&c->y[1]), tp_in<S>(&c->dy[0]), dx);
}

/* The list of sorted tiles and, if there are several, its merge target. */
static size_t order_work(const tp_call *c)
{
    const tp_order o = tp__order(&c->x[0], c->attr);
    if (tp_is_backward(c)) return 0;
    const runs r = runs_of(o, TILE), to = runs_of(o, 2 * r.span);
    return (size_t)(places(o, r) + (r.count > 1 ? places(o, to) : 0)) * sizeof(word);
}

TP_CUDA_WORK(order_work)
TP_CUDA_KERNEL(order_fwd)
TP_CUDA_KERNEL(order_bwd)
