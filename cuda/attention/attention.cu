/* attention.cu - full attention and relative-position attention, forward.
 *
 *     y[i] = sum_j dropout(p)[i,j] v[j] / sum_j p[i,j]      lse[i] = log(sum_j e^s[i,j])
 *
 * A block owns 64 queries of a head and 64 columns of its values and iterates over tiles of visible
 * keys with a running maximum and sum; no N * S matrix is stored. Bound by 4 D operations per query
 * and key (6 D with positions) at f32 rate; keys and values are read once per 64 queries. Heads
 * wider than 64 recompute their logits for each 64 columns. */
#include "cuda/attention/attention_f32.cuh"
#include "cuda/attention/attention_mma.cuh"

/* Folds a tile of logits s into the running maximum and sum; s becomes unnormalised
 * probabilities. */
template <class S>
static __device__ inline void online_softmax(const attn<S> &p, uint32_t dropped, float s[4][4],
                                             float o[4][4], float top[4], float sum[4])
{
#pragma unroll
    for (int r = 0; r < 4; r++) {
        const float here = fmaxf(fmaxf(s[r][0], s[r][1]), fmaxf(s[r][2], s[r][3]));
        const float next = fmaxf(top[r], attn_f32_row<tp_max_of>(here));
        const float base = next > -INFINITY ? next : 0.0f; /* no key seen yet: all terms are 0 */
        const float fade = expf(top[r] - base);
        top[r] = next;
        sum[r] *= fade;
#pragma unroll
        for (int c = 0; c < 4; c++) {
            o[r][c] *= fade;
            s[r][c] = expf(s[r][c] - base);
            sum[r] += s[r][c];
            s[r][c] *= dropped >> (4 * r + c) & 1u ? 0.0f : p.keep_scale;
        }
    }
}

/* Without the bound of one block nvcc aims at 80 registers and spills. */
template <bool POSITIONS, bool PACKED, class S>
__global__ void __launch_bounds__(ATTN_F32_THREADS, 1) attn_f32_kernel(attn<S> all, int slabs)
{
    TP_SHARED_REST(float, transposed);
    float *const stage = transposed + ATTN_F32_FLOATS;
    const int ty = (int)threadIdx.x / 16, tx = (int)threadIdx.x % 16;
    const attn_f32_block at(slabs, all.heads, all.batch);
    const attn_part<PACKED, S> p = attn_document<PACKED>(all, at.b);
    const int tile = attn_tiles(p.queries, ATTN_F32_TILE) - 1 - at.tile; /* the longest first */
    attn_f32_tile t = { at.b, at.h, tile * ATTN_F32_TILE, 0 };
    if (PACKED && t.i < 0) return;
    const int end = attn_end_key(p, t.i + ATTN_F32_TILE - 1);
    float o[4][4], top[4], sum[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
    attn_f32_clear(o);
    for (int r = 0; r < 4; r++) top[r] = -INFINITY;
    for (t.j = attn_begin_key(p, t.i); t.j < end; t.j += ATTN_F32_TILE) {
        float s[4][4];
        const uint32_t dropped = attn_f32_dropped<false>(p, t);
        attn_f32_logits<POSITIONS, false>(p, t, stage, s);
        online_softmax(p, dropped, s, o, top, sum);
        attn_f32_keep<true>(transposed, s);
        __syncthreads();
        attn_f32_load<ATTN_F32_TILE>(stage, attn_f32_keys(p, p.v, t.b, t.h), t.j, at.x0, p.dim);
        __syncthreads();
        attn_f32_outer(o, transposed, stage, ATTN_F32_TILE);
    }
#pragma unroll
    for (int r = 0; r < 4; r++) {
        const int i = t.i + 4 * ty + r;
        const float total = attn_f32_row<tp_sum_of>(sum[r]);
        const float k = total == 0.0f ? 0.0f : 1.0f / total;
        if (i >= p.queries) continue;
        for (int c = 0; c < 4; c++) {
            const int x = at.x0 + 4 * tx + c;
            if (x < p.dim)
                tp_put(p.out + attn_f32_element(p, t.b, p.queries, i, t.h, x), k * o[r][c]);
        }
        if (tx == 0 && at.x0 == 0)
            p.lse[attn_row(p, t.b, t.h, i)] = total == 0.0f ? 0.0f : top[r] + logf(total);
    }
}

template <bool POSITIONS, bool PACKED, class S>
static tp_code launch(const tp_call *c, const attn<S> &p)
{
    const int slabs = max(attn_tiles(p.dim, ATTN_F32_TILE), 1);
    const int64_t tiles = attn_tiles(p.queries, ATTN_F32_TILE);
    const int64_t blocks = tiles * slabs * p.heads * p.batch;
    const tp_code code = attn_check_blocks(c, blocks);
    if (code != TP_OK) return code;
    return tp_launch(c, attn_f32_kernel<POSITIONS, PACKED, S>, (unsigned)blocks, ATTN_F32_THREADS,
                     POSITIONS ? ATTN_F32_SHARED_WIDE : ATTN_F32_SHARED, p, slabs);
}

template <bool POSITIONS, class S> static tp_code forward(const tp_call *c)
{
    attn<S> p = attn_problem<S>(c, POSITIONS);
    p.biases = static_cast<float *>(c->work);
    if constexpr (std::is_same<S, bf16>::value)
        if (attn_mma_serves(p))
            return POSITIONS ? tp__rel_attention_mma_fwd(c, p) : tp__attention_mma_fwd(c, p);
    return launch<POSITIONS, false>(c, p);
}

template <class S> static tp_code attention_fwd(const tp_call *c)
{
    return forward<false, S>(c);
}
template <class S> static tp_code rel_attention_fwd(const tp_call *c)
{
    return forward<true, S>(c);
}

template <class S> static tp_code packed_attention_fwd(const tp_call *c)
{
    const attn<S> p = attn_packed_problem<S>(c);
    if constexpr (std::is_same<S, bf16>::value)
        if (attn_mma_serves(p)) return tp__attention_mma_fwd(c, p);
    return launch<false, true>(c, p);
}

TP_CUDA_KERNEL(attention_fwd)
TP_CUDA_KERNEL(packed_attention_fwd)
TP_CUDA_KERNEL(rel_attention_fwd)
