/* attention_f32.cuh - tiles of 64 rows by 64 columns in f32 for attention kernels of any head size.
 *
 * 256 threads as 16 x 16: thread (ty, tx) holds rows 4 ty .. and columns 4 tx .. of a tile.
 * Operands are in shared memory with the summed index first, so that 16 multiply-adds need two
 * 16-byte reads and products run at about the rate of the multiply-adds. Columns are keys or
 * distances (key = query + ahead - column). The product of query i with the table row at the
 * distance of key j is skewed: a tile needs 127 rows of the table, a thread seven. */
#ifndef TP_ATTENTION_F32_CUH
#define TP_ATTENTION_F32_CUH

#include "cuda/attention/attention.cuh"

constexpr int ATTN_F32_TILE = 64; /* rows and columns of a tile    */
constexpr int ATTN_F32_SLAB = 32; /* columns of operands at a time */
/* Row strides. */
constexpr int ATTN_F32_LD = ATTN_F32_TILE + 4, ATTN_F32_LDW = 2 * ATTN_F32_TILE + 4;
constexpr int ATTN_F32_THREADS = 256;
constexpr int ATTN_F32_FLOATS = ATTN_F32_TILE * ATTN_F32_LD; /* of a tile */
constexpr size_t ATTN_F32_SHARED = 2 * ATTN_F32_FLOATS * sizeof(float);
/* With a window of 128 rows. */
constexpr size_t ATTN_F32_SHARED_WIDE = 3 * ATTN_F32_FLOATS * sizeof(float);

/* Rows of a head: scale (row + plus), zero outside [0, count). */
template <class S> struct attn_f32_rows {
    const S *at, *plus; /* plus: [D] or NULL */
    float scale;
    int count, width;
    __device__ float get(int row, int x, int dim) const
    {
        if (row < 0 || row >= count || x >= dim) return 0.0f;
        return scale * (tp_float(at[(int64_t)row * width + x]) + (plus ? tp_float(plus[x]) : 0.0f));
    }
};

template <class S>
static __device__ inline attn_f32_rows<S> attn_f32_queries(const attn<S> &p, int b, int h,
                                                           const S *plus)
{
    return { p.q + (int64_t)b * p.queries * p.width + h * p.dim, plus ? plus + h * p.dim : NULL,
             p.scale, p.queries, p.width };
}

/* of: k, v [B,S,H*D] or pos (b = 0) */
template <class S>
static __device__ inline attn_f32_rows<S> attn_f32_keys(const attn<S> &p, const S *of, int b, int h)
{
    return { of + (int64_t)b * p.room * p.kv_width + h / p.group * p.dim, NULL, 1.0f, p.keys,
             p.kv_width };
}

/* Rows of dO or O. */
template <class S>
static __device__ inline attn_f32_rows<S> attn_f32_results(const attn<S> &p, const S *of, int b,
                                                           int h)
{
    return { of + (int64_t)b * p.queries * p.width + h * p.dim, NULL, 1.0f, p.queries, p.width };
}

/* to[x][row] = rows first .. first + N of columns x0 .. x0 + ATTN_F32_SLAB. */
template <int N, class R>
static __device__ inline void attn_f32_load_transposed(float *to, const R &r, int first, int x0,
                                                       int dim)
{
    const int row = (int)threadIdx.x / 8, x = (int)threadIdx.x % 8;
    to += x * (N + 4) + row;
#pragma unroll 1
    for (int k = 0; k < N; k += ATTN_F32_THREADS / 8)
#pragma unroll 2
        for (int y = 0; y < ATTN_F32_SLAB; y += 8)
            to[y * (N + 4) + k] = r.get(first + row + k, x0 + x + y, dim);
}

/* to[row][x] = rows first .. first + N of columns x0 .. x0 + 64. */
template <int N, class R>
static __device__ inline void attn_f32_load(float *to, const R &r, int first, int x0, int dim)
{
    const int row = (int)threadIdx.x / ATTN_F32_TILE, x = (int)threadIdx.x % ATTN_F32_TILE;
#pragma unroll 2
    for (int k = 0; k < N; k += ATTN_F32_THREADS / ATTN_F32_TILE)
        to[(row + k) * ATTN_F32_LD + x] = r.get(first + row + k, x0 + x, dim);
}

static __device__ inline void attn_f32_read(float v[4], const float *from)
{
    const float4 w = *reinterpret_cast<const float4 *>(from);
    v[0] = w.x;
    v[1] = w.y;
    v[2] = w.z;
    v[3] = w.w;
}

static __device__ inline void attn_f32_clear(float acc[4][4])
{
    for (int a = 0; a < 4; a++)
        for (int b = 0; b < 4; b++) acc[a][b] = 0.0f;
}

/* acc += A^T B, A and B [n][ATTN_F32_LD] in shared memory. */
static __device__ inline void attn_f32_outer(float acc[4][4], const float *A, const float *B, int n)
{
    const int ty = (int)threadIdx.x / 16, tx = (int)threadIdx.x % 16;
#pragma unroll 2
    for (int x = 0; x < n; x++) {
        float a[4], b[4];
        attn_f32_read(a, A + x * ATTN_F32_LD + 4 * ty);
        attn_f32_read(b, B + x * ATTN_F32_LD + 4 * tx);
#pragma unroll
        for (int r = 0; r < 4; r++)
#pragma unroll
            for (int c = 0; c < 4; c++) acc[r][c] += a[r] * b[c];
    }
}

/* acc[r][c] += sum over x of A[x][r] B[x][63 + r - c], a slab of both. */
static __device__ inline void attn_f32_outer_window(float acc[4][4], const float *A, const float *B)
{
    const int ty = (int)threadIdx.x / 16, tx = (int)threadIdx.x % 16;
#pragma unroll 2
    for (int x = 0; x < ATTN_F32_SLAB; x++) {
        float v[4], w[8];
        attn_f32_read(v, A + x * ATTN_F32_LD + 4 * ty);
        attn_f32_read(w, B + x * ATTN_F32_LDW + 4 * (ty - tx) + ATTN_F32_TILE - 4);
        attn_f32_read(w + 4, B + x * ATTN_F32_LDW + 4 * (ty - tx) + ATTN_F32_TILE);
#pragma unroll
        for (int r = 0; r < 4; r++)
#pragma unroll
            for (int c = 0; c < 4; c++) acc[r][c] += v[r] * w[3 + r - c];
    }
}

/* acc += rows of a times rows of b. Column c takes row j + c of b or, if SHEARED, row r takes j + r
 * - c. stage: shared memory for ATTN_F32_SLAB columns of both. */
template <bool SHEARED, class A, class B>
static __device__ inline void attn_f32_product(float acc[4][4], float *stage, const A &a, int i,
                                               const B &b, int j, int dim)
{
    float *const left = stage, *const right = stage + ATTN_F32_SLAB * ATTN_F32_LD;
    for (int x0 = 0; x0 < dim; x0 += ATTN_F32_SLAB) {
        __syncthreads();
        attn_f32_load_transposed<ATTN_F32_TILE>(left, a, i, x0, dim);
        if (SHEARED)
            attn_f32_load_transposed<2 * ATTN_F32_TILE>(right, b, j - (ATTN_F32_TILE - 1), x0, dim);
        else
            attn_f32_load_transposed<ATTN_F32_TILE>(right, b, j, x0, dim);
        __syncthreads();
        if constexpr (SHEARED)
            attn_f32_outer_window(acc, left, right);
        else
            attn_f32_outer(acc, left, right, ATTN_F32_SLAB);
    }
}
/* acc[r][x] += sum over columns c of T[c][r] W[63 + r - c][x]; W is the 128 rows around a tile. */
static __device__ inline void attn_f32_outer_sheared(float acc[4][4], const float *T,
                                                     const float *W)
{
    const int ty = (int)threadIdx.x / 16, tx = (int)threadIdx.x % 16;
    float w[4][4];
    W += (ATTN_F32_TILE - 1 + 4 * ty) * ATTN_F32_LD + 4 * tx;
#pragma unroll
    for (int r = 1; r < 4; r++) attn_f32_read(w[r - 1], W + r * ATTN_F32_LD);
#pragma unroll 2
    for (int c = 0; c < ATTN_F32_TILE; c++) {
        float t[4];
        attn_f32_read(t, T + c * ATTN_F32_LD + 4 * ty);
#pragma unroll
        for (int r = 3; r > 0; r--)
#pragma unroll
            for (int x = 0; x < 4; x++) w[r][x] = w[r - 1][x];
        attn_f32_read(w[0], W - c * ATTN_F32_LD);
#pragma unroll
        for (int r = 0; r < 4; r++)
#pragma unroll
            for (int x = 0; x < 4; x++) acc[r][x] += t[r] * w[r][x];
    }
}

/* Stores a tile in shared memory with the row first, or with the column first. */
template <bool TRANSPOSED>
static __device__ inline void attn_f32_keep(float *to, const float s[4][4])
{
    const int ty = (int)threadIdx.x / 16, tx = (int)threadIdx.x % 16;
#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
        for (int c = 0; c < 4; c++)
            to[TRANSPOSED ? (4 * tx + c) * ATTN_F32_LD + 4 * ty + r
                          : (4 * ty + r) * ATTN_F32_LD + 4 * tx + c] = s[r][c];
}

/* Reduces over the 16 threads that hold parts of the same rows. */
template <class Op> static __device__ inline float attn_f32_row(float v)
{
    for (int d = 8; d > 0; d >>= 1) v = Op::join(v, __shfl_xor_sync(0xffffffffu, v, d));
    return v;
}

/* 64 queries from i of one head, and 64 keys or distances from j. */
struct attn_f32_tile {
    int b, h, i, j;
};

/* Bit c: column + c is masked. */
template <class S>
static __device__ inline uint32_t attn_f32_hidden(const attn<S> &p, int b, int column)
{
    uint32_t bits = 0;
    if (!p.mask) return 0;
#pragma unroll
    for (int c = 0; c < 4; c++)
        if (column + c < p.keys && !p.mask[(int64_t)b * p.keys + column + c]) bits |= 1u << c;
    return bits;
}

/* s = the logits of the tile, -inf where a query does not see the key. */
template <bool POSITIONS, bool DISTANCES, class S>
static __device__ inline void attn_f32_logits(const attn<S> &p, const attn_f32_tile &t,
                                              float *stage, float s[4][4])
{
    const int ty = (int)threadIdx.x / 16, tx = (int)threadIdx.x % 16;
    const int other = t.i + p.ahead - t.j;
    attn_f32_clear(s);
    attn_f32_product<DISTANCES>(s, stage, attn_f32_queries(p, t.b, t.h, p.r_w), t.i,
                                attn_f32_keys(p, p.k, t.b, t.h), DISTANCES ? other : t.j, p.dim);
    if (POSITIONS)
        attn_f32_product<!DISTANCES>(s, stage, attn_f32_queries(p, t.b, t.h, p.r_r), t.i,
                                     attn_f32_keys(p, p.pos, 0, t.h), DISTANCES ? t.j : other,
                                     p.dim);
    const int column = t.j + 4 * tx;
    const uint32_t hidden = POSITIONS ? 0 : attn_f32_hidden(p, t.b, column);
#pragma unroll
    for (int r = 0; r < 4; r++) {
        const int i = t.i + 4 * ty + r, seen = i + p.ahead + 1;
        const int first = DISTANCES || !p.span ? 0 : seen - p.span;
        const int end = i >= p.queries ? 0
                        : DISTANCES    ? min(seen, p.span ? p.span : seen)
                                       : min(p.keys, p.causal ? seen : p.keys);
#pragma unroll
        for (int c = 0; c < 4; c++)
            if (column + c < first || column + c >= end || hidden >> c & 1u)
                s[r][c] = -INFINITY;
            else if (!POSITIONS && p.biased)
                s[r][c] += attn_bias(p, t.b, t.h, i, column + c);
    }
}

/* Bit 4 r + c: dropout drops this thread's element (r, c). */
template <bool DISTANCES, class S>
static __device__ inline uint32_t attn_f32_dropped(const attn<S> &p, const attn_f32_tile &t)
{
    const int i = t.i + (int)threadIdx.x / 16 * 4, column = t.j + (int)threadIdx.x % 16 * 4;
    attn_dropout dropout;
    uint32_t bits = 0;
    if (!p.drop_below) return 0;
#pragma unroll 1
    for (int k = 0; k < 16; k++) {
        const int j = DISTANCES ? i + k / 4 + p.ahead - column - k % 4 : column + k % 4;
        bits |= (uint32_t)dropout.drops(p, attn_element(p, t.b, t.h, i + k / 4, j)) << k;
    }
    return bits;
}

/* Computes a tile of ds, the gradient of the logits, and w, the probabilities after dropout. */
template <bool POSITIONS, bool DISTANCES, class S>
static __device__ inline void attn_f32_gradients(const attn<S> &p, const attn_f32_tile &t,
                                                 float *stage, float ds[4][4], float w[4][4])
{
    const int ty = (int)threadIdx.x / 16;
    const uint32_t dropped = attn_f32_dropped<DISTANCES>(p, t);
    attn_f32_logits<POSITIONS, DISTANCES>(p, t, stage, ds);
    attn_f32_clear(w);
    attn_f32_product<DISTANCES>(w, stage, attn_f32_results(p, p.dout, t.b, t.h), t.i,
                                attn_f32_keys(p, p.v, t.b, t.h),
                                DISTANCES ? t.i + p.ahead - t.j : t.j, p.dim);
#pragma unroll
    for (int r = 0; r < 4; r++) {
        const int64_t row = attn_row(p, t.b, t.h, min(t.i + 4 * ty + r, p.queries - 1));
        const float lse = p.lse[row], delta = p.delta[row];
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const float probability = expf(ds[r][c] - lse);
            const float keep = dropped >> (4 * r + c) & 1u ? 0.0f : p.keep_scale;
            ds[r][c] = probability * (keep * w[r][c] - delta);
            w[r][c] = keep * probability;
        }
    }
}

/* The offset of element (row, x) of a head in a [B,n,H*D] tensor. */
template <class S>
static __device__ inline int64_t attn_f32_element(const attn<S> &p, int b, int n, int row, int h,
                                                  int x)
{
    return ((int64_t)b * n + row) * p.width + (int64_t)h * p.dim + x;
}

/* Blocks are numbered slab (64 columns of the head) first, then head, batch row, tile. */
struct attn_f32_block {
    int x0, h, b, tile;
    __device__ attn_f32_block(int slabs, int heads, int batch)
    {
        unsigned k = blockIdx.x;
        x0 = (int)(k % (unsigned)slabs) * ATTN_F32_TILE;
        k /= (unsigned)slabs;
        h = (int)(k % (unsigned)heads);
        k /= (unsigned)heads;
        b = (int)(k % (unsigned)batch);
        tile = (int)(k / (unsigned)batch);
    }
};

#endif
