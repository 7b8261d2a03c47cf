/* fold.cuh - sums onto a broadcast operand b: over the elements of a to which each of b broadcasts.
 *
 *     out[b] = finish(sum of x[a], b)
 *
 * broadcast.h cuts the sums by shapes only, so results are bit-identical on every GPU. A kernel
 * writes sums of blocks of spans to c->work, a second one adds them in order. Short runs are summed
 * in float, runs in double. Reads x once; bound by memory. */
#ifndef TP_FOLD_CUH
#define TP_FOLD_CUH

#include "cuda/kit/columns.cuh"
#include "cuda/kit/move.cuh"

/* tp_fold_split with divisors. */
struct tp_fold_plan {
    int64_t blocks, block, spans, width;
    tp_divisor nb, n, pieces;
    tp_places kept, again;
};

static inline tp_fold_plan tp_fold_plan_of(const tp_fold_split &f)
{
    const tp_places kept = tp_places_of(f.p.kept, 1), again = tp_places_of(f.p.again, 1);
    return { f.blocks,     f.block,         f.spans, f.width, tp_by(f.nb),
             tp_by(f.p.n), tp_by(f.pieces), kept,    again };
}

/* The terms: a functor of the element of a. This one is x. */
template <class X> struct tp_fold_elements {
    const X *x;
    __device__ float operator()(int64_t i) const { return tp_float(x[i]); }
};

/* Stores sums in part [blocks,nb], which a second kernel adds, or, if part is NULL, finished in
 * out. Choosing at run time halves the number of kernels. */
template <class Out, class F> struct tp_fold_out {
    float *part;
    Out *out;
    F finish;
    __device__ void operator()(int64_t t, float sum, int64_t i) const
    {
        if (part)
            part[t] = sum;
        else
            tp_put(out + i, finish(sum, i));
    }
};

/* Rows of a match rows of b: a thread sums one column of one block of spans. */
template <class T, class To>
__global__ void __launch_bounds__(TP_THREADS) tp_fold_columns(tp_fold_plan f, T term, To to)
{
    TP_EACH (t, f.blocks * f.nb.d) {
        const int64_t block = tp_over(f.nb, t), i = t - block * f.nb.d, row = tp_over(f.n, i);
        const int64_t first = block * f.block, last = min(first + f.block, f.spans);
        const int64_t at = tp_place(f.kept, row) + i - row * f.n.d;
        double sum = 0.0;
        for (int64_t s = first; s < last;) {
            const int64_t end = min(s + 64, last);
            float run = 0.0f;
            for (; s < end; s++) run += term(at + tp_place(f.again, s));
            sum += (double)run;
        }
        to(t, (float)sum, i);
    }
}

/* The same for long blocks of wide rows, in tiles of LANES packs of N columns: a thread sums every
 * TP_THREADS / LANES-th span of its columns, eight at a time in float, the rest in double. */
template <int N, int LANES, class X, class To>
__global__ void __launch_bounds__(TP_THREADS) tp_fold_tiles(tp_fold_plan f, const X *x, To to)
{
    enum { GROUPS = TP_THREADS / LANES, AT_ONCE = 8 };
    TP_SHARED(double, all, [GROUPS][N][LANES]);
    const int lane = threadIdx.x % LANES, group = threadIdx.x / LANES;
    const int64_t n = f.n.d, across = (n + LANES * N - 1) / (LANES * N), rows = f.nb.d / n;
    TP_EACH_BLOCK (t, f.blocks * rows * across) {
        const int64_t strip = tp_div(t, across), left = (t - strip * across) * LANES * N;
        const int64_t block = tp_div(strip, rows), row = strip - block * rows;
        const int64_t j = left + lane * N, at = tp_place(f.kept, row) + j;
        const int64_t last = j < n ? min((block + 1) * f.block, f.spans) : 0;
        double sum[N] = {};
        for (int64_t s = block * f.block + group; s < last; s += AT_ONCE * GROUPS) {
            tp_pack<X, N> v[AT_ONCE];
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++)
                if (s + k * GROUPS < last)
                    v[k] = tp_load_n<X, N>(x + at + tp_place(f.again, s + k * GROUPS));
#pragma unroll
            for (int e = 0; e < N; e++) {
                float run = 0.0f;
                for (int k = 0; k < AT_ONCE; k++)
                    run += s + k * GROUPS < last ? tp_float(v[k].at[e]) : 0.0f;
                sum[e] += (double)run;
            }
        }
        for (int e = 0; e < N; e++) all[group][e][lane] = sum[e];
        __syncthreads();
        for (int i = threadIdx.x; i < LANES * N && left + i < n; i += TP_THREADS) {
            double v = 0.0;
            for (int g = 0; g < GROUPS; g++) v += all[g][i % N][i / N];
            to(block * f.nb.d + row * n + left + i, (float)v, row * n + left + i);
        }
        __syncthreads();
    }
}

/* Rows of a match single elements of b: a block of threads sums one block of spans. */
template <class T, class To>
__global__ void __launch_bounds__(TP_THREADS) tp_fold_ones(tp_fold_plan f, T term, To to)
{
    TP_EACH_BLOCK (t, f.blocks * f.nb.d) {
        const int64_t block = tp_over(f.nb, t), i = t - block * f.nb.d;
        const int64_t first = block * f.block, last = min(first + f.block, f.spans);
        const int64_t at = tp_place(f.kept, i);
        double sum = 0.0;
        if (f.pieces.d == 1) { /* short rows side by side */
            for (int64_t e = threadIdx.x; e < (last - first) * f.n.d; e += blockDim.x) {
                const int64_t s = tp_over(f.n, e);
                const int64_t a = at + tp_place(f.again, first + s) + e - s * f.n.d;
                sum += (double)term(a);
            }
        } else {
            for (int64_t s = first; s < last; s++) {
                const int64_t row = tp_over(f.pieces, s), piece = (s - row * f.pieces.d) * f.width;
                const int64_t n = min(f.width, f.n.d - piece);
                const int64_t a = at + tp_place(f.again, row) + piece;
                float run = 0.0f;
                for (int64_t k = threadIdx.x; k < n; k += blockDim.x) run += term(a + k);
                sum += (double)run;
            }
        }
        sum = tp_block<tp_sum_of>(sum);
        if (threadIdx.x == 0) to(t, (float)sum, i);
    }
}

template <class T, class To>
static tp_code tp_fold_plain(const tp_call *c, const tp_fold_split &f, T term, To to)
{
    const tp_fold_plan p = tp_fold_plan_of(f);
    const int64_t n = f.blocks * f.nb;
    return f.p.one
               ? tp_launch(c, tp_fold_ones<T, To>, tp_grid(c, n, 1), TP_THREADS, 0, p, term, to)
               : tp_launch(c, tp_fold_columns<T, To>, tp_grid(c, n), TP_THREADS, 0, p, term, to);
}

template <int N, int LANES, class X, class To>
static tp_code tp_fold_in_tiles(const tp_call *c, const tp_fold_split &f, const X *x, To to)
{
    const int64_t width = LANES * N,
                  tiles = f.blocks * f.p.kept.count * ((f.p.n + width - 1) / width);
    return tp_launch(c, tp_fold_tiles<N, LANES, X, To>, tp_grid(c, tiles, 1), TP_THREADS, 0,
                     tp_fold_plan_of(f), x, to);
}

template <class T, class To>
static tp_code tp_fold_spans(const tp_call *c, const tp_fold_split &f, T term, To to)
{
    return tp_fold_plain(c, f, term, to);
}

template <class X, class To>
static tp_code tp_fold_spans(const tp_call *c, const tp_fold_split &f, tp_fold_elements<X> e, To to)
{
    enum { PACK = (int)(16 / sizeof(X)), LEAST = 32 };
    if (f.p.one || f.block < LEAST || (f.p.kept.count > 1 && f.p.n < LEAST))
        return tp_fold_plain(c, f, e, to);
    return tp_aligned(e.x) && f.p.n % PACK == 0 ? tp_fold_in_tiles<PACK, 8>(c, f, e.x, to)
                                                : tp_fold_in_tiles<1, 32>(c, f, e.x, to);
}

/* out, of shape b, is the sum of the terms of a. work: tp__fold_work(a, b) bytes. */
template <class T, class Out, class F>
static tp_code tp_fold_terms(const tp_call *c, const tp_view *a, const tp_view *b, T term, Out *out,
                             void *work, F finish)
{
    const tp_fold_split f = tp__fold(a, b);
    const tp_fold_out<Out, F> to = { f.blocks == 1 ? NULL : static_cast<float *>(work), out,
                                     finish };
    const tp_code code = tp_fold_spans(c, f, term, to);
    if (code != TP_OK || !to.part) return code;
    return tp_add_sets(c, 1, f.nb, f.blocks, f.nb, to.part, out, finish);
}

/* The same for x of shape a. */
template <class X, class Out, class F>
static tp_code tp_fold_sum(const tp_call *c, const tp_view *a, const tp_view *b, const X *x,
                           Out *out, void *work, F finish)
{
    return tp_fold_terms(c, a, b, tp_fold_elements<X>{ x }, out, work, finish);
}

#endif
