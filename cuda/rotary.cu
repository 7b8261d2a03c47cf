/* rotary.cu - rotates the pairs of each head by the angle of its position; the gradient rotates
 * back.
 *
 * A first kernel computes the table of cosines and sines, one row per position. Angles are in
 * double, reduced to half a turn: some 40 double operations per pair of the table, which batch and
 * heads share. The rotation moves 8 bytes per element (f32; half in bf16), and reads the table from
 * cache: bound by memory. */
#include "cuda/kit/move.cuh"
#include "tensor/geometry/rotary.h"

/* Positions: given, or the row's index. */
struct position_list {
    const void *at; /* NULL: 0, 1, ... */
    bool wide;      /* i64 */
    double offset;
    __device__ double operator()(int64_t r) const
    {
        return offset + (!at    ? (double)r
                         : wide ? (double)static_cast<const int64_t *>(at)[r]
                                : (double)static_cast<const int32_t *>(at)[r]);
    }
};

/* table[r][i] = cosine and sine of angle i at position r; sign: -1 to rotate back. */
__global__ void __launch_bounds__(TP_THREADS)
    angle_kernel(position_list positions, int64_t rows, tp_divisor pairs, double step,
                 tp_rotary_scaling scaling, float sign, float2 *table)
{
    TP_EACH (e, rows * pairs.d) {
        const int64_t r = tp_over(pairs, e), i = e - r * pairs.d;
        const double each = exp2(step * (double)i) * 0.15915494309189534; /* over 2 pi */
        double turns = positions(r) * each * tp__rotary_slower(scaling, each);
        turns -= rint(turns);
        const float angle = (float)(6.2831853071795865 * turns);
        float2 t;
        t.x = cosf(angle);
        t.y = sign * sinf(angle);
        table[e] = t;
    }
}

/* A head is cut into items: first of N pairs, then of N copied elements. */
struct rotary_cut {
    tp_divisor items, heads, queries; /* items of a head, H, N */
    int64_t turning, pairs, dim;      /* items of pairs; pairs of a head; its elements */
    bool shared;                      /* all rows of the batch share positions */
};

/* Rotates N pairs of the head at x, from pair i. */
template <bool INTERLEAVED, int N, class S>
static __device__ inline void rotate(const float2 *t, int64_t i, int64_t pairs, const S *x, S *y)
{
    const int64_t at = INTERLEAVED ? 2 * i : i, next = INTERLEAVED ? at + N : pairs + i;
    const tp_pack<S, N> from[2] = { tp_load_n<S, N>(x + at), tp_load_n<S, N>(x + next) };
    tp_pack<S, N> to[2];
#pragma unroll
    for (int k = 0; k < N; k++) {
        /* Positions of the pair's elements in the two packs. */
        const int p = INTERLEAVED ? 2 * k : k, q = INTERLEAVED ? 2 * k + 1 : N + k;
        const float a = tp_float(from[p / N].at[p % N]), b = tp_float(from[q / N].at[q % N]);
        const float2 w = t[i + k];
        tp_put(&to[p / N].at[p % N], a * w.x - b * w.y);
        tp_put(&to[q / N].at[q % N], b * w.x + a * w.y);
    }
    tp_store(y + at, to[0]);
    tp_store(y + next, to[1]);
}

template <bool INTERLEAVED, int N, class S>
__global__ void __launch_bounds__(TP_THREADS)
    rotary_kernel(rotary_cut g, int64_t n, const float2 *table, const S *x, S *y)
{
    TP_EACH (e, n) {
        const int64_t head = tp_over(g.items, e), item = e - head * g.items.d;
        const int64_t token = tp_over(g.heads, head);
        const int64_t row = g.shared ? token - tp_over(g.queries, token) * g.queries.d : token;
        const S *from = x + head * g.dim;
        S *to = y + head * g.dim;
        if (item < g.turning) {
            rotate<INTERLEAVED, N>(table + row * g.pairs, item * N, g.pairs, from, to);
        } else {
            const int64_t at = 2 * g.pairs + (item - g.turning) * N;
            tp_store(to + at, tp_load_n<S, N>(from + at));
        }
    }
}

/* c->work: the table [rows of positions][pairs]. */
static size_t rotary_work(const tp_call *c)
{
    const tp_rotary_plan g = tp__rotary_plan(c->x, static_cast<const tp_rotary_cfg *>(c->attr));
    return (size_t)(g.tables * g.pairs) * sizeof(float2);
}

template <int N, class S>
static tp_code turn(const tp_call *c, const tp_rotary_plan &g, bool interleaved, const S *x, S *y)
{
    const rotary_cut cut = {
        tp_by((g.dim - g.pairs) / N), tp_by(g.heads), tp_by(g.queries), g.pairs / N, g.pairs, g.dim,
        g.tables == g.queries
    };
    const int64_t n = g.batch * g.queries * g.heads * cut.items.d;
    return tp_launch(c, interleaved ? rotary_kernel<true, N, S> : rotary_kernel<false, N, S>,
                     tp_grid(c, n), TP_THREADS, 0, cut, n, static_cast<const float2 *>(c->work), x,
                     y);
}

template <class S> static tp_code run(const tp_call *c, const S *x, S *y)
{
    constexpr int N = (int)(16 / sizeof(S));
    const tp_rotary_cfg *cfg = static_cast<const tp_rotary_cfg *>(c->attr);
    const tp_rotary_plan g = tp__rotary_plan(c->x, cfg);
    const bool given = !tp_absent(&c->x[1]);
    const position_list at = { given ? c->x[1].data : NULL, given && c->x[1].dtype == TP_I64,
                               (double)cfg->offset };
    if (g.dim == 0) return TP_OK;
    const double step = g.pairs > 0 ? -log2(g.base) / (double)g.pairs : 0.0;
    const tp_code code =
        tp_launch(c, angle_kernel, tp_grid(c, g.tables * g.pairs), TP_THREADS, 0, at, g.tables,
                  tp_by(g.pairs), step, tp__rotary_scaling(cfg), tp_is_backward(c) ? -1.0f : 1.0f,
                  static_cast<float2 *>(c->work));
    if (code != TP_OK) return code;
    const bool packs = tp_aligned(x, y) && g.pairs % N == 0 && (g.dim - 2 * g.pairs) % N == 0;
    return packs ? turn<N>(c, g, cfg->interleaved, x, y) : turn<1>(c, g, cfg->interleaved, x, y);
}

template <class S> static tp_code rotary_fwd(const tp_call *c)
{
    return run(c, tp_in<S>(&c->x[0]), tp_out<S>(&c->y[0]));
}

template <class S> static tp_code rotary_bwd(const tp_call *c)
{
    return c->dx[0].data ? run(c, tp_in<S>(&c->dy[0]), tp_out<S>(&c->dx[0])) : TP_OK;
}

TP_CUDA_WORK(rotary_work)
TP_CUDA_KERNEL(rotary_fwd)
TP_CUDA_KERNEL(rotary_bwd)
