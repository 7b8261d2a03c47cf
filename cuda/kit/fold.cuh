/* fold.cuh - sums onto a broadcast operand b: over the elements of a to which each of b broadcasts.
 *
 *     out[b] = finish(sum of x[a] w[a], b)
 *
 * broadcast.h cuts the sums by shapes only, so results are bit-identical on every GPU. A kernel
 * writes sums of blocks of spans to c->work, a second one adds them in order. Short runs are summed
 * in float, runs in double. Reads x and w once; bound by memory. */
#ifndef TP_FOLD_CUH
#define TP_FOLD_CUH

#include "cuda/kit/move.cuh"

/* Finishing functors map a sum to the stored value. */
struct tp_as_it_is {
    __device__ float operator()(float sum, int64_t) const { return sum; }
};
template <class Out> struct tp_add_to { /* add: accumulates onto the old value */
    const Out *old;
    bool add;
    __device__ float operator()(float sum, int64_t i) const
    {
        return add ? tp_float(old[i]) + sum : sum;
    }
};

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

/* The terms: a functor of the element of a. This one is x w, or x if w is NULL. */
template <class X, class W> struct tp_fold_product {
    const X *x;
    const W *w;
    __device__ float operator()(int64_t i) const
    {
        return w ? tp_float(x[i]) * tp_float(w[i]) : tp_float(x[i]);
    }
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

template <class Out, class F>
__global__ void __launch_bounds__(TP_THREADS)
    tp_fold_blocks(int64_t nb, int64_t blocks, const float *part, Out *out, F finish)
{
    TP_EACH (i, nb) {
        double sum = 0.0;
        for (int64_t k = 0; k < blocks; k++) sum += (double)part[k * nb + i];
        tp_put(out + i, finish((float)sum, i));
    }
}

/* out, of shape b, is the sum of the terms of a. work: tp__fold_work(a, b) bytes. */
template <class T, class Out, class F>
static tp_code tp_fold_terms(const tp_call *c, const tp_view *a, const tp_view *b, T term, Out *out,
                             void *work, F finish)
{
    const tp_fold_split f = tp__fold(a, b);
    const tp_fold_plan p = tp_fold_plan_of(f);
    typedef tp_fold_out<Out, F> To;
    const To to = { f.blocks == 1 ? NULL : static_cast<float *>(work), out, finish };
    const int64_t n = f.blocks * f.nb;
    const tp_code code =
        f.p.one ? tp_launch(c, tp_fold_ones<T, To>, tp_grid(c, n, 1), TP_THREADS, 0, p, term, to)
                : tp_launch(c, tp_fold_columns<T, To>, tp_grid(c, n), TP_THREADS, 0, p, term, to);
    if (code != TP_OK || !to.part) return code;
    return tp_launch(c, tp_fold_blocks<Out, F>, tp_grid(c, f.nb), TP_THREADS, 0, f.nb, f.blocks,
                     to.part, out, finish);
}

/* The same for x w; x and w (or NULL) have shape a. */
template <class X, class W, class Out, class F>
static tp_code tp_fold_sum(const tp_call *c, const tp_view *a, const tp_view *b, const X *x,
                           const W *w, Out *out, void *work, F finish)
{
    return tp_fold_terms(c, a, b, tp_fold_product<X, W>{ x, w }, out, work, finish);
}

#endif
