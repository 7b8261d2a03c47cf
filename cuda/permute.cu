/* permute.cu - reorders axes: copies of rows, or transposes of tiles.
 *
 * Axes that stay adjacent are merged first. If the last axis of y is the last of x, rows are copied
 * in words of up to 16 bytes, with one fast division per axis and word. Otherwise y's last axis and
 * x's contiguous axis span matrices, which go through tiles in shared memory, so that x and y are
 * accessed in runs of 128 bytes. Elements below 4 bytes are moved four bytes at a time and
 * transposed in registers if sizes allow it. Matrices with a side of at most 8 need no tiles: a
 * thread moves a line across the long side.
 *
 * Each element is read and written once: bound by memory. Only the size of a dtype matters. */
#include "cuda/kit/move.cuh"
#include "tensor/geometry/permute_plan.h"

enum { NARROW = 8 };

/* ---- rows ---- */

template <class W>
__global__ void __launch_bounds__(TP_THREADS)
    copy_rows(tp_places from, tp_divisor columns, int64_t n, const W *x, W *y)
{
    TP_EACH (i, n) {
        const int64_t row = tp_over(columns, i);
        y[i] = x[tp_place(from, row) + i - row * columns.d];
    }
}

static tp_code copy(const tp_call *c, const tp_view *x, const tp_view *y, const tp_permute_plan &p)
{
    const int64_t size = (int64_t)tp_dtype_size(x->dtype), columns = p.dim[p.n - 1];
    tp_axes from, to;
    const int bytes = tp_widest(columns * size, (uintptr_t)x->data, (uintptr_t)y->data);
    tp__permute_others(&p, p.n - 1, p.n - 1, &from, &to); /* its strides are multiples of columns */
    const int64_t elements = bytes / size, n = x->numel / elements;
    return tp_with_word(bytes, [&](auto w) {
        typedef decltype(w) W;
        return tp_launch(c, copy_rows<W>, tp_grid(c, n), TP_THREADS, 0,
                         tp_places_of(from, elements), tp_by(columns / elements), n, tp_in<W>(x),
                         tp_out<W>(y));
    });
}

/* ---- matrices: y[r * row_step + k] = x[r + k * column_step] ---- */

struct matrices {
    tp_places from, to;
    int64_t count, rows, columns; /* of y */
    int64_t row_step, column_step;
    tp_divisor across, down; /* in tiles, or in items of the long side */
};

/* Tiles of SIDE x SIDE elements. A line of the tile is a column of y in 32 words of N rows,
 * followed by a gap, with an extra gap after each 32 lines. This avoids bank conflicts between
 * lanes that write words of one line and between lanes that read a word of each N-th line. */
template <class E, int N>
__global__ void __launch_bounds__(TP_THREADS) transpose_tiles(matrices m, const E *x, E *y)
{
    typedef typename std::conditional<N == 1, E, uint32_t>::type word;
    constexpr int SIDE = 32 * N, WARPS = TP_THREADS / 32;
    TP_SHARED(word, tile, [SIDE * 33 + N]);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    TP_EACH_BLOCK (t, m.count * m.across.d * m.down.d) {
        const int64_t strip = tp_over(m.across, t), matrix = tp_over(m.down, strip);
        const int64_t k0 = (t - strip * m.across.d) * SIDE, r0 = (strip - matrix * m.down.d) * SIDE;
        const E *from = x + tp_place(m.from, matrix) + r0 + k0 * m.column_step + lane * N;
        E *to = y + tp_place(m.to, matrix) + r0 * m.row_step + k0 + lane * N;
        const int rows = (int)min((int64_t)SIDE, m.rows - r0);
        const int columns = (int)min((int64_t)SIDE, m.columns - k0);
        word read[SIDE / WARPS]; /* all loads come before the first store */
#pragma unroll
        for (int i = 0; i < SIDE / WARPS; i++) {
            const int k = warp + i * WARPS;
            if (k < columns && lane * N < rows)
                read[i] = *reinterpret_cast<const word *>(from + k * m.column_step);
        }
#pragma unroll
        for (int i = 0; i < SIDE / WARPS; i++) {
            const int k = warp + i * WARPS;
            if (k < columns && lane * N < rows) tile[k * 33 + k / 32 + lane] = read[i];
        }
        __syncthreads();
#pragma unroll
        for (int r = warp; r < 32; r += WARPS) {
            E in[N][N], out[N];
            if (lane * N >= columns || r * N >= rows) continue;
#pragma unroll
            for (int k = 0; k < N; k++) {
                const int line = lane * N + k;
                memcpy(in[k], &tile[line * 33 + line / 32 + r], sizeof in[k]);
            }
#pragma unroll
            for (int i = 0; i < N; i++) {
                word all;
#pragma unroll
                for (int k = 0; k < N; k++) out[k] = in[k][i];
                memcpy(&all, out, sizeof all);
                *reinterpret_cast<word *>(to + (r * N + i) * m.row_step) = all;
            }
        }
        __syncthreads();
    }
}

/* For matrices with a short side of n elements, over which a thread loops. x_long ... y_short:
 * strides along both sides in x and y. */
template <class E>
__global__ void __launch_bounds__(TP_THREADS)
    transpose_narrow(matrices m, int64_t n, int64_t x_long, int64_t x_short, int64_t y_long,
                     int64_t y_short, const E *x, E *y)
{
    TP_EACH (t, m.count * m.across.d) {
        const int64_t matrix = tp_over(m.across, t), i = t - matrix * m.across.d;
        const E *from = x + tp_place(m.from, matrix) + i * x_long;
        E *to = y + tp_place(m.to, matrix) + i * y_long;
        E v[NARROW];
#pragma unroll
        for (int k = 0; k < NARROW; k++)
            if (k < n) v[k] = from[k * x_short];
#pragma unroll
        for (int k = 0; k < NARROW; k++)
            if (k < n) to[k * y_short] = v[k];
    }
}

template <class E, int N>
static tp_code tiles(const tp_call *c, matrices m, const tp_view *x, const tp_view *y)
{
    const int64_t side = 32 * N;
    m.across = tp_by((m.columns + side - 1) / side);
    m.down = tp_by((m.rows + side - 1) / side);
    return tp_launch(c, transpose_tiles<E, N>, tp_grid(c, m.count * m.across.d * m.down.d, 1),
                     TP_THREADS, 0, m, tp_in<E>(x), tp_out<E>(y));
}

template <class E>
static tp_code narrow(const tp_call *c, matrices m, const tp_view *x, const tp_view *y)
{
    const bool flat = m.rows < m.columns; /* y has few rows */
    m.across = tp_by(flat ? m.columns : m.rows);
    return tp_launch(c, transpose_narrow<E>, tp_grid(c, m.count * m.across.d), TP_THREADS, 0, m,
                     flat ? m.rows : m.columns, flat ? m.column_step : 1, flat ? 1 : m.column_step,
                     flat ? 1 : m.row_step, flat ? m.row_step : 1, tp_in<E>(x), tp_out<E>(y));
}

/* bytes: the widest word that divides the lines of x and of y. */
static tp_code transpose(const tp_call *c, const matrices &m, const tp_view *x, const tp_view *y,
                         int bytes)
{
    const size_t size = tp_dtype_size(x->dtype);
    const bool thin = m.rows <= NARROW || m.columns <= NARROW, fours = bytes >= 4;
    if (thin)
        return tp_with_element((int)size, [&](auto e) { return narrow<decltype(e)>(c, m, x, y); });
    if (size == 1 && fours) return tiles<uint8_t, 4>(c, m, x, y);
    if (size == 2 && fours) return tiles<uint16_t, 2>(c, m, x, y);
    return tp_with_element((int)size, [&](auto e) { return tiles<decltype(e), 1>(c, m, x, y); });
}

static tp_code permute(const tp_call *c, const tp_view *x, const tp_view *y, const int *order)
{
    if (x->numel == 0) return TP_OK;
    const tp_permute_plan p = tp__permute_plan(x, order);
    const int64_t size = (int64_t)tp_dtype_size(x->dtype);
    const int last = p.n - 1;
    if (p.from[last] == 1) return copy(c, x, y, p);
    int row = 0; /* the axis of y that is contiguous in x */
    while (p.from[row] != 1) row++;
    tp_axes from, to;
    matrices m = {};
    tp__permute_others(&p, row, last, &from, &to);
    m.from = tp_places_of(from, 1);
    m.to = tp_places_of(to, 1);
    m.count = from.count;
    m.rows = p.dim[row];
    m.columns = p.dim[last];
    m.row_step = p.to[row];
    m.column_step = p.from[last];
    /* Strides but 1 are multiples of rows in x, of columns in y. */
    return transpose(
        c, m, x, y,
        tp_widest(m.rows * size, m.columns * size, (uintptr_t)x->data, (uintptr_t)y->data));
}

/* The axes of c->attr, a tp_shape, and of its inverse. */
static void orders(const tp_call *c, int *order, int *inverse)
{
    const tp_shape *s = static_cast<const tp_shape *>(c->attr);
    for (int i = 0; i < s->ndim; i++) {
        order[i] = (int)(s->dim[i] < 0 ? s->dim[i] + s->ndim : s->dim[i]);
        inverse[order[i]] = i;
    }
}

static tp_code permute_fwd(const tp_call *c)
{
    int order[TP_MAX_DIMS] = { 0 }, inverse[TP_MAX_DIMS] = { 0 };
    orders(c, order, inverse);
    return permute(c, &c->x[0], &c->y[0], order);
}

static tp_code permute_bwd(const tp_call *c)
{
    int order[TP_MAX_DIMS] = { 0 }, inverse[TP_MAX_DIMS] = { 0 };
    orders(c, order, inverse);
    return c->dx[0].data ? permute(c, &c->dy[0], &c->dx[0], inverse) : TP_OK;
}

TP_CUDA_KERNEL_UNTYPED(permute_fwd)
TP_CUDA_KERNEL_UNTYPED(permute_bwd)
