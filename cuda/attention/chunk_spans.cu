/* chunk_spans.cu - the dynamic projection of long chunks of up to eight ranks; formulas:
 * chunk_project.cu.
 *
 * A block takes a head of a span of 512 tokens and computes each rank's largest score,
 * exponentials, and the sums of x weighted by them. A second kernel adds the spans in order and, in
 * backward, computes the sum of p g, which is <y_j, dy_j>. The last kernel thus computes dx and dz
 * in one pass: one token per thread for the dot products, one element of x per lane for dx.
 *
 * Reads x and z once forward, twice backward, and writes dx and dz once: with 32 columns and eight
 * ranks 2.5 bytes per element of x forward and 7.5 backward (bf16). With eight ranks forward has
 * about 13 instructions per 32 elements, backward 30: bound by memory unless heads are narrow. */
#include "cuda/attention/chunk_project.cuh"

constexpr int SPAN = TP_CHUNK_SPAN, RANKS = TP_CHUNK_RANKS;
constexpr int SPAN_WARPS = TP_THREADS / 32;
constexpr int TILE = TP_THREADS; /* tokens of a round in backward */
constexpr int TILE_LD = 32 + 4;  /* row stride: packs of different rows are in different banks */

/* Scratch: per span and rank, D sums, the largest score and the sum of exponentials; then per
 * column of scores, the largest, one over the sum and, in backward, <y, dy>. */
struct chunk_spans {
    int64_t spans;
    float *part, *column;
};

static chunk_spans spans_of(const tp_call *c, const chunk_geometry &g)
{
    const int64_t spans = tp__chunk_spans(g);
    float *const part = static_cast<float *>(c->work);
    return { spans, part, part + g.chunks * g.n * spans * (g.D + 2) };
}

static __device__ inline float *part_at(const chunk_geometry &g, const chunk_spans &s, int64_t t,
                                        int64_t column, int64_t span)
{
    return s.part + ((t * g.n + column) * s.spans + span) * (g.D + 2);
}

/* Reduces over the threads of a block whose numbers agree modulo eight, in order of the warps. */
template <class Op> static __device__ inline float by_rank(float v)
{
    TP_SHARED(float, part, [SPAN_WARPS][RANKS]);
    v = Op::join(v, __shfl_xor_sync(0xffffffffu, v, 8));
    v = Op::join(v, __shfl_xor_sync(0xffffffffu, v, 16));
    const int rank = (int)threadIdx.x % RANKS;
    if (threadIdx.x % 32 < RANKS) part[threadIdx.x / 32][rank] = v;
    __syncthreads();
    v = part[0][rank];
    for (int w = 1; w < SPAN_WARPS; w++) v = Op::join(v, part[w][rank]);
    __syncthreads();
    return v;
}

/* power[s][j] = e^(z - top) for the tokens of a span from `token` on, with scores of rank 0 from z;
 * 0 for hidden ones. Threads with threadIdx.x % 8 = j compute top and sum of rank j. */
template <class S>
static __device__ inline void span_powers(const chunk_geometry &g, int tokens, int64_t token,
                                          const S *z, float power[SPAN][RANKS], float *top,
                                          float *sum)
{
    constexpr int STEP = TP_THREADS / RANKS;
    const int j = (int)threadIdx.x % RANKS, first = (int)threadIdx.x / RANKS;
    *top = -INFINITY;
    *sum = 0.0f;
    for (int s = first; s < tokens; s += STEP) {
        power[s][j] = j < g.r ? tp_float(z[s * g.n + j]) : 0.0f;
        if (chunk_shown(g, token + s)) *top = tp_max_of::join(*top, power[s][j]);
    }
    *top = by_rank<tp_max_of>(*top);
    for (int s = first; s < tokens; s += STEP) {
        power[s][j] = chunk_shown(g, token + s) ? expf(power[s][j] - *top) : 0.0f;
        *sum += power[s][j];
    }
    *sum = by_rank<tp_sum_of>(*sum);
}

/* Loads eight floats from shared memory. */
static __device__ inline void load_ranks(const float *from, float to[RANKS])
{
    const tp_pack<float> low = tp_load(from), high = tp_load(from + 4);
#pragma unroll
    for (int j = 0; j < RANKS; j++) to[j] = j < 4 ? low.at[j] : high.at[j - 4];
}

/* Block: span k of head i of chunk t. A warp takes every eighth token, a lane a column. */
template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    span_kernel(chunk_geometry g, chunk_spans s, const S *x, const S *z)
{
    TP_SHARED(float, power, [SPAN][RANKS]);
    TP_SHARED(float, sums, [SPAN_WARPS][RANKS][32]);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    TP_EACH_BLOCK (item, g.chunks * g.H * s.spans) {
        const int64_t head = tp_div(item, s.spans), k = item - head * s.spans;
        const int64_t t = tp_div(head, g.H), i = head - t * g.H, first = t * g.l + k * SPAN;
        const int tokens = (int)min((int64_t)SPAN, g.l - k * SPAN);
        float top, sum;
        span_powers(g, tokens, first, z + first * g.n + i * g.r, power, &top, &sum);
        if (threadIdx.x < g.r) {
            float *const of = part_at(g, s, t, i * g.r + threadIdx.x, k) + g.D;
            of[0] = top;
            of[1] = sum;
        }
        for (int64_t d = 0; d < g.D; d += 32) {
            const S *from = x + first * g.C + i * g.D + d + lane;
            float acc[RANKS] = {};
#pragma unroll 4
            for (int token = warp; token < tokens; token += SPAN_WARPS) {
                const bool valid = d + lane < g.D && chunk_shown(g, first + token);
                const float v = valid ? tp_float(from[token * g.C]) : 0.0f;
                float p[RANKS];
                load_ranks(power[token], p);
#pragma unroll
                for (int j = 0; j < RANKS; j++) acc[j] += p[j] * v;
            }
#pragma unroll
            for (int j = 0; j < RANKS; j++) sums[warp][j][lane] = acc[j];
            __syncthreads();
            float v = 0.0f; /* warp j takes rank j */
            for (int w = 0; w < SPAN_WARPS; w++) v += sums[w][warp][lane];
            if (warp < g.r && d + lane < g.D) part_at(g, s, t, i * g.r + warp, k)[d + lane] = v;
            __syncthreads();
        }
    }
}

/* A span's factor in a sum relative to `top`; 0 if all its tokens are hidden. */
static __device__ inline float span_share(const float *part, int64_t D, float top)
{
    return part[D] == -INFINITY && part[D + 1] == 0.0f ? 0.0f : expf(part[D] - top);
}

/* A warp adds the spans of a column of scores. y: forward only. dy: backward only, which also
 * stores the column's three values. */
template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    merge_spans(chunk_geometry g, chunk_spans s, S *y, const S *dy)
{
    const int64_t lane = threadIdx.x % 32, warps = (int64_t)gridDim.x * SPAN_WARPS;
    const int64_t own = (int64_t)blockIdx.x * SPAN_WARPS + threadIdx.x / 32;
    for (int64_t e = own; e < g.chunks * g.n; e += warps) {
        const int64_t t = tp_div(e, g.n), column = e - t * g.n, i = tp_div(column, g.r);
        const int64_t row = (t * g.r + column - i * g.r) * g.C + i * g.D, step = g.D + 2;
        const float *const part = part_at(g, s, t, column, 0);
        float top = -INFINITY, sum = 0.0f, dot = 0.0f;
        for (int64_t k = 0; k < s.spans; k++) top = tp_max_of::join(top, part[k * step + g.D]);
        for (int64_t k = 0; k < s.spans; k++)
            sum += span_share(part + k * step, g.D, top) * part[k * step + g.D + 1];
        for (int64_t d = lane; d < g.D; d += 32) {
            float v = 0.0f;
            for (int64_t k = 0; k < s.spans; k++)
                v += span_share(part + k * step, g.D, top) * part[k * step + d];
            v = sum == 0.0f ? 0.0f : v / sum;
            if (y) tp_put(y + row + d, v);
            if (dy) dot += v * tp_float(dy[row + d]);
        }
        dot = tp_warp<tp_sum_of>(dot);
        if (dy && lane == 0) {
            s.column[3 * e] = top;
            s.column[3 * e + 1] = sum == 0.0f ? 0.0f : 1.0f / sum;
            s.column[3 * e + 2] = dot;
        }
    }
}

/* Shared memory of a round of backward. */
struct span_room {
    float (*p)[RANKS], (*rows)[TILE_LD], (*dy)[32]; /* [TILE], [TILE], [RANKS] */
};

/* p of the tokens of a round, from `token` on. */
template <class S>
static __device__ inline void round_weights(const chunk_geometry &g, const chunk_spans &s,
                                            const span_room &m, int tokens, int64_t token,
                                            int64_t column, const S *z)
{
    const int j = (int)threadIdx.x % RANKS;
    const float *const of = s.column + 3 * (column + (j < g.r ? j : 0));
    for (int i = (int)threadIdx.x / RANKS; i < TILE; i += TP_THREADS / RANKS)
        m.p[i][j] = i < tokens && j < g.r && chunk_shown(g, token + i)
                        ? expf(tp_float(z[i * g.n + j]) - of[0]) * of[1]
                        : 0.0f;
}

/* Block: TILE tokens of head i of chunk t. dx, dz may be NULL. add: to dz. */
template <class S, class X, class Z>
__global__ void __launch_bounds__(TP_THREADS)
    span_grad(chunk_geometry g, chunk_spans s, const S *x, const S *z, const S *dy, X *dx, Z *dz,
              bool add)
{
    TP_SHARED_REST(float, shared);
    span_room m;
    m.p = reinterpret_cast<float(*)[RANKS]>(shared);
    m.rows = reinterpret_cast<float(*)[TILE_LD]>(shared + TILE * RANKS);
    m.dy = reinterpret_cast<float(*)[32]>(shared + TILE * (RANKS + TILE_LD));
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int64_t rounds = (g.l + TILE - 1) / TILE;
    TP_EACH_BLOCK (item, g.chunks * g.H * rounds) {
        const int64_t head = tp_div(item, rounds), k = item - head * rounds;
        const int64_t t = tp_div(head, g.H), i = head - t * g.H, first = t * g.l + k * TILE;
        const int64_t column = t * g.n + i * g.r, scores = first * g.n + i * g.r;
        const int tokens = (int)min((int64_t)TILE, g.l - k * TILE);
        float dots[RANKS] = {};
        round_weights(g, s, m, tokens, first, column, z + scores);
        for (int64_t d = 0; d < g.D; d += 32) {
            const bool valid = d + lane < g.D;
            const int64_t at = first * g.C + i * g.D + d + lane;
            const int64_t from = (t * g.r + warp) * g.C + i * g.D + d + lane;
            m.dy[warp][lane] = valid && warp < g.r ? tp_float(dy[from]) : 0.0f;
#pragma unroll 4
            for (int a = warp; a < TILE; a += SPAN_WARPS) {
                const bool shown = valid && a < tokens && chunk_shown(g, first + a);
                m.rows[a][lane] = shown ? tp_float(x[at + a * g.C]) : 0.0f;
            }
            __syncthreads();
            float own[RANKS];
#pragma unroll
            for (int j = 0; j < RANKS; j++) own[j] = m.dy[j][lane];
            for (int a = warp; a < tokens && valid && dx; a += SPAN_WARPS) {
                float p[RANKS], v = 0.0f;
                load_ranks(m.p[a], p);
#pragma unroll
                for (int j = 0; j < RANKS; j++) v += p[j] * own[j];
                tp_put(dx + at + a * g.C, v);
            }
            for (int e = 0; e < 32; e += 4) {
                const tp_pack<float> v = tp_load(m.rows[threadIdx.x] + e);
#pragma unroll
                for (int j = 0; j < RANKS; j++) {
                    const tp_pack<float> w = tp_load(m.dy[j] + e);
#pragma unroll
                    for (int b = 0; b < 4; b++) dots[j] += v.at[b] * w.at[b];
                }
            }
            __syncthreads();
        }
        const int a = (int)threadIdx.x; /* the thread's token */
#pragma unroll
        for (int j = 0; j < RANKS; j++)
            if (dz && a < tokens && j < g.r)
                chunk_put(dz + scores + a * g.n + j,
                          m.p[a][j] * (dots[j] - s.column[3 * (column + j) + 2]), add);
        __syncthreads();
    }
}

/* ---- launching ---- */

template <class S>
static tp_code run_spans(const tp_call *c, const chunk_geometry &g, const chunk_spans &s,
                         const S *x, S *y, const S *dy)
{
    const tp_code code = tp_launch(c, span_kernel<S>, tp_grid(c, g.chunks * g.H * s.spans, 1),
                                   TP_THREADS, 0, g, s, x, tp_in<S>(&c->x[CHUNK_SCORES]));
    if (code != TP_OK) return code;
    return tp_launch(c, merge_spans<S>, tp_grid(c, g.chunks * g.n, SPAN_WARPS), TP_THREADS, 0, g, s,
                     y, dy);
}

tp_code tp__chunk_spans_fwd(const tp_call *c, const chunk_geometry &g, const chunk_values &v)
{
    return tp_with_type(c, v.x->dtype, [&](auto s) {
        typedef decltype(s) S;
        return run_spans<S>(c, g, spans_of(c, g), tp_in<S>(v.x), tp_out<S>(v.y), NULL);
    });
}

template <class S, class X, class Z>
static tp_code grad(const tp_call *c, const chunk_geometry &g, const chunk_spans &s,
                    const chunk_values &v)
{
    const int64_t blocks = g.chunks * g.H * ((g.l + TILE - 1) / TILE);
    return tp_launch(c, span_grad<S, X, Z>, tp_grid(c, blocks, 1), TP_THREADS,
                     (TILE * (RANKS + TILE_LD) + RANKS * 32) * sizeof(float), g, s, tp_in<S>(v.x),
                     tp_in<S>(&c->x[CHUNK_SCORES]), tp_in<S>(v.dy), tp_out<X>(v.dx),
                     tp_out<Z>(&c->dx[CHUNK_SCORES]), v.add);
}

tp_code tp__chunk_spans_bwd(const tp_call *c, const chunk_geometry &g, const chunk_values &v)
{
    const chunk_spans s = spans_of(c, g);
    return tp_with_type(c, v.x->dtype, [&](auto type) {
        typedef decltype(type) S;
        const tp_code code = run_spans<S>(c, g, s, tp_in<S>(v.x), NULL, tp_in<S>(v.dy));
        if (code != TP_OK) return code;
        return chunk_with_gradient<S>(v.dx, [&](auto x) {
            return chunk_with_gradient<S>(&c->dx[CHUNK_SCORES], [&](auto z) {
                return grad<S, decltype(x), decltype(z)>(c, g, s, v);
            });
        });
    });
}
