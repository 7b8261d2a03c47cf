/* rel_mma_bwd.cuh - common layout of the gradient kernels of relative attention on tensor cores.
 *
 * Three passes recompute the probabilities from the log-sum-exp. A block of four warps owns 64 rows
 * of its results: queries (dq, partial sums of dr_w and dr_r; rel_attention_mma_bwd.cu), keys (dk,
 * dv), or distances (partial sums of dpos over some rows of the batch; rel_attention_mma_keys.cu).
 * It iterates over the others in steps of STEP columns: 32, or 16 for heads of 128 columns. Each
 * logit also needs one line of a third matrix, which passes through a ring in shared memory
 * (rel_mma.cuh).
 *
 *     shared memory, bf16 rows:
 *     owner of queries      64 q     64 dO    2 STEP k    2 STEP v      ring of the table
 *     owner of keys         64 k     64 v     2 STEP q    2 STEP dO     ring of the table
 *     owner of distances    64 pos            2 STEP q    2 STEP dO     rings of k and of v
 *
 * Lines of the ring that a step uses, for STEP = 32; each step advances all ranges by STEP lines:
 *
 *            0     16    32    48    64    80    96         128
 *            |-----|-----|-----|-----|-----|-----|-----------|
 *     warp 3 [=================]                 |           |
 *     warp 2       [=================]           | in flight |
 *     warp 1             [=================]     |           |
 *     warp 0                   [=================]           |
 *
 * Row x and column c of a warp's tile [16][STEP] take line c - x + 16 of its range:
 *
 *              c = 0     1     2    ...    STEP - 1
 *     x = 0       16    17    18           STEP + 15
 *     x = 1       15    16    17           STEP + 14
 *     x = 15       1     2     3           STEP
 *
 * A warp multiplies whole blocks of 16 lines, and the skew (skew.cuh) selects these diagonals. */
#ifndef TP_REL_MMA_BWD_CUH
#define TP_REL_MMA_BWD_CUH

#include "cuda/attention/attention_mma_bwd.cuh"
#include "cuda/attention/rel_mma.cuh"

template <int COLS> using rel_mma_ring = rel_mma_lines<COLS, ATTN_MMA_STEPS<COLS>, ATTN_MMA_ROWS>;

/* Unrolling of the products with held rows: at 128 columns all registers are in use. */
template <int COLS> constexpr int REL_MMA_UNROLL = COLS == 128 ? 1 : COLS / 16;

/* Bytes of dynamic shared memory: `own` blocks of 64 rows, four tiles, `rings` rings. */
template <int COLS> constexpr size_t rel_mma_shared(int own, int rings)
{
    return (size_t)(own * ATTN_MMA_ROWS + 4 * ATTN_MMA_STEPS<COLS>)*COLS * sizeof(bf16) +
           rings * rel_mma_ring<COLS>::BYTES;
}

/* dk, dv and dpos, for tp__rel_attention_mma_bwd. */
tp_code tp__rel_attention_mma_keys(const tp_call *c, const attn<bf16> &p);

#endif
