/* reducer.cuh - reductions over any set of axes, other than plain sums (fold.cuh).
 *
 * A reducer R has a type `state`, none(), add(state &, S x, int64_t at), join(state, state) and
 * finish(state, int64_t i), which stores result i. `at` is the term's index in row-major order of
 * the reduced axes. broadcast.h cuts by shapes only, so results are bit-identical on every GPU.
 * Blocks keep their states in c->work, and a second kernel joins them in order. Reads x once; bound
 * by memory. */
#ifndef TP_REDUCER_CUH
#define TP_REDUCER_CUH

#include "cuda/kit/fold.cuh"
#include "tensor/geometry/reduced.h"

static inline const tp_reduce_attr *tp_reduce_attr_of(const tp_call *c)
{
    return static_cast<const tp_reduce_attr *>(c->attr);
}

/* Joins the states of a block; thread 0 gets the result. */
template <class R> static __device__ inline typename R::state tp_block_join(typename R::state v)
{
    typedef typename R::state state;
    constexpr int WORDS = (int)(sizeof(state) / sizeof(uint32_t));
    TP_SHARED(state, part, [32]);
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    for (int d = 16; d > 0; d >>= 1) {
        uint32_t words[WORDS];
        state other;
        memcpy(words, &v, sizeof v);
        for (int w = 0; w < WORDS; w++) words[w] = __shfl_xor_sync(0xffffffffu, words[w], d);
        memcpy(&other, words, sizeof other);
        v = R::join(v, other);
    }
    if (lane == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x == 0)
        for (int w = 1; w < warps; w++) v = R::join(v, part[w]);
    __syncthreads();
    return v;
}

/* A thread reduces one result of one block of rows. part: NULL, or the states of the blocks. */
template <class R, class S>
__global__ void __launch_bounds__(TP_THREADS)
    tp_reduce_columns(tp_fold_plan f, R r, const S *x, typename R::state *part)
{
    TP_EACH (t, f.blocks * f.nb.d) {
        const int64_t block = tp_over(f.nb, t), i = t - block * f.nb.d, row = tp_over(f.n, i);
        const int64_t first = block * f.block, last = min(first + f.block, f.spans);
        const int64_t at = tp_place(f.kept, row) + i - row * f.n.d;
        typename R::state v = r.none();
        for (int64_t s = first; s < last; s++) r.add(v, x[at + tp_place(f.again, s)], s);
        if (part)
            part[t] = v;
        else
            r.finish(v, i);
    }
}

/* A block of threads reduces one block of spans (pieces of rows) of one result. */
template <class R, class S>
__global__ void __launch_bounds__(TP_THREADS)
    tp_reduce_ones(tp_fold_plan f, R r, const S *x, typename R::state *part)
{
    TP_EACH_BLOCK (t, f.blocks * f.nb.d) {
        const int64_t block = tp_over(f.nb, t), i = t - block * f.nb.d;
        const int64_t first = block * f.block, last = min(first + f.block, f.spans);
        const int64_t at = tp_place(f.kept, i);
        typename R::state v = r.none();
        if (f.pieces.d == 1) { /* short rows side by side */
            for (int64_t e = threadIdx.x; e < (last - first) * f.n.d; e += blockDim.x) {
                const int64_t s = tp_over(f.n, e);
                r.add(v, x[at + tp_place(f.again, first + s) + e - s * f.n.d], first * f.n.d + e);
            }
        } else {
            for (int64_t s = first; s < last; s++) {
                const int64_t row = tp_over(f.pieces, s), piece = (s - row * f.pieces.d) * f.width;
                const int64_t n = min(f.width, f.n.d - piece);
                const S *from = x + at + tp_place(f.again, row) + piece;
                for (int64_t k = threadIdx.x; k < n; k += blockDim.x)
                    r.add(v, from[k], row * f.n.d + piece + k);
            }
        }
        v = tp_block_join<R>(v);
        if (threadIdx.x != 0) continue;
        if (part)
            part[t] = v;
        else
            r.finish(v, i);
    }
}

template <class R>
__global__ void __launch_bounds__(TP_THREADS)
    tp_reduce_join(int64_t nb, int64_t blocks, R r, const typename R::state *part)
{
    TP_EACH (i, nb) {
        typename R::state v = part[i];
        for (int64_t k = 1; k < blocks; k++) v = R::join(v, part[k * nb + i]);
        r.finish(v, i);
    }
}

/* c->work: tp__reduce_work(c, at least sizeof(R::state)) bytes. */
template <class S, class R> static tp_code tp_reduce(const tp_call *c, const R &r)
{
    const tp_view b = tp__reduced(&c->x[0], tp_reduce_attr_of(c)->axes);
    const tp_fold_split f = tp__fold(&c->x[0], &b);
    const tp_fold_plan p = tp_fold_plan_of(f);
    const int64_t n = f.blocks * f.nb;
    const S *x = tp_in<S>(&c->x[0]);
    typename R::state *part =
        f.blocks > 1 ? static_cast<typename R::state *>(c->work) : (typename R::state *)NULL;
    const tp_code code =
        f.p.one
            ? tp_launch(c, tp_reduce_ones<R, S>, tp_grid(c, n, 1), TP_THREADS, 0, p, r, x, part)
            : tp_launch(c, tp_reduce_columns<R, S>, tp_grid(c, n), TP_THREADS, 0, p, r, x, part);
    if (code != TP_OK || f.blocks == 1) return code;
    return tp_launch(c, tp_reduce_join<R>, tp_grid(c, f.nb), TP_THREADS, 0, f.nb, f.blocks, r,
                     part);
}

/* dx = g(x, i) for the element's result i. */
template <class S, class G>
__global__ void __launch_bounds__(TP_THREADS)
    tp_reduce_grad_kernel(tp_broadcast p, int64_t n, G g, const S *x, S *dx)
{
    TP_EACH (e, n) tp_put(dx + e, g(tp_float(x[e]), tp_broadcast_at(p, e)));
}

template <class S, class G> static tp_code tp_reduce_grad(const tp_call *c, const G &g)
{
    const tp_view b = tp__reduced(&c->x[0], tp_reduce_attr_of(c)->axes);
    const int64_t n = c->x[0].numel;
    if (!c->dx[0].data) return TP_OK;
    return tp_launch(c, tp_reduce_grad_kernel<S, G>, tp_grid(c, n), TP_THREADS, 0,
                     tp_broadcast_of(tp__bcast(&c->x[0], &b), 1), n, g, tp_in<S>(&c->x[0]),
                     tp_out<S>(&c->dx[0]));
}

#endif
