/* window.cuh - attention over maps: the problem, for f32 and tensor core kernels. */
#ifndef TP_WINDOW_CUH
#define TP_WINDOW_CUH

#include "cuda/attention/attention.cuh"
#include "cuda/kit/mask.cuh"
#include "tensor/geometry/window.h"

template <class S> struct win {
    tp_window g;
    float scale;
    const S *q, *k, *v, *low_k, *low_v, *table, *bias, *dout;
    const uint8_t *mask, *low_mask; /* [B,g+N], [B,r], or NULL */
    tp_mask drop;                   /* of element [B,H,N,r+g+N] */
    S *out;
    float *lse, *delta; /* [B,H,N] */
    attn_sink<S> dq, dk, dv, dlow_k, dlow_v, dtable, dbias;
    tp_packing rows;         /* of packed sequences                               */
    int64_t document, first; /* index and first row of this sequence; otherwise 0 */
    int64_t longest;         /* the longest, in cells; otherwise N                */
};

/* Is token i of batch row b visible? */
template <class S> static __device__ inline bool win_shown(const win<S> &p, int64_t b, int64_t i)
{
    return !p.mask || p.mask[b * p.g.tokens + i];
}

/* Is low key j of batch row b visible? */
template <class S>
static __device__ inline bool win_low_shown(const win<S> &p, int64_t b, int64_t j)
{
    return !p.low_mask || p.low_mask[b * p.g.low + j];
}

/* Returns the first chunk with queries that may see row or column `at`, and the number of these
 * (modulo all). */
static __device__ inline int64_t win_first_chunk(const tp_window &g, int axis, int64_t at,
                                                 int64_t *count)
{
    const int64_t own = tp_div(at, g.chunk[axis]), n = g.chunks[axis];
    if (g.cyclic) {
        *count = min((int64_t)3, n);
        return own + n - 1;
    }
    const int64_t first = max(own - 1, (int64_t)0);
    *count = min(own + 1, n - 1) - first + 1;
    return first;
}

enum { WIN_SLICES = 512, WIN_SPAN = 512 }; /* of all heads' tiles of queries; cells of a span */

/* Partial sums of backward: gradients of biases by slice of the query tiles, of low and global keys
 * by span of the map. table, keys and total are offsets in c->work, in floats. Packed sequences
 * have the sizes of the longest, but parts for as many spans as all can have together: those of
 * sequence b, which begins with row i, follow part i / WIN_SPAN + b. */
struct win_room {
    int64_t tiles, slices; /* of a chunk; of all chunks of the batch          */
    int64_t reach[2];      /* largest differences of positions                */
    int64_t differences;   /* of positions; 0: none has a bias or limit       */
    int64_t biases;        /* those, global tokens, two constants; padded     */
    int64_t spans;         /* of the map                                      */
    int64_t table, keys;   /* [slices][H][biases]; [B][H][spans][extra][2][D] */
    int64_t total;         /* before them: delta, [B,H,N]                     */
};

/* rows: of the result, in all. */
static inline win_room win_room_of(const tp_window &g, int64_t rows)
{
    win_room w;
    for (int i = 0; i < 2; i++) w.reach[i] = g.chunk[i] + g.halo[i] - 1;
    w.tiles = tp__ceil_div(g.chunk[0] * g.chunk[1], TP_WINDOW_QUERIES);
    w.slices =
        tp__least(g.batch * g.chunks[0] * g.chunks[1] * w.tiles, tp__most(1, WIN_SLICES / g.heads));
    w.differences =
        g.local && (g.rows || g.exact) ? (2 * w.reach[0] + 1) * (2 * w.reach[1] + 1) : 0;
    w.biases = tp__ceil_div(w.differences + g.global + 2, 4) * 4;
    w.spans = tp__ceil_div(g.cells, WIN_SPAN);
    const int64_t parts = g.packed ? rows / WIN_SPAN + g.batch : g.batch * w.spans;
    w.table = rows * g.heads;
    w.keys = w.table + (g.packed ? 0 : w.slices * g.heads * w.biases);
    w.total = w.keys + parts * g.heads * g.extra * 2 * g.dim;
    return w;
}

/* Tensor cores: supported calls; gradients except delta and dq of global tokens. */
bool tp__window_mma_serves(const win<bf16> &p);
tp_code tp__window_mma_fwd(const tp_call *c, const win<bf16> &p);
bool tp__window_mma_serves_bwd(const win<bf16> &p);
tp_code tp__window_mma_bwd(const tp_call *c, const win<bf16> &p); /* dq, dtable, dbias */
tp_code tp__window_mma_grad_keys(const tp_call *c, const win<bf16> &p);

#endif
