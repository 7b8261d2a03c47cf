/* linear.c - Y = act(Z), Z = X W^T + b, and its gradient.
 *
 *     dZ = dY act'(Z)     dX = dZ W     dW = dZ^T X     db = sum of the rows of dZ
 *
 * The thread that computed a tile of the product applies bias, activation and dropout to it while
 * it is in cache. Tensors in bf16 are read and written as bf16; computation between products is in
 * f32. Hidden output: act'(Z), a by-product of act(Z); for ReLU one byte per element, Z > 0;
 * without an activation none. It contains the factors of the dropout, so backward draws nothing. */
#include "cpu/kit/activation.h"
#include "cpu/kit/philox_words.h"
#include "cpu/kit/product.h"
#include "cpu/kit/real.h"
#include "cpu/kit/row_blocks.h"
#include "cpu/kit/stored.h"
#include "tensor/geometry/linalg.h"
#include "tensor/kernel.h"

static tp_act act_of(const tp_call *c)
{
    return ((const tp__linear_attr *)c->attr)->act;
}

static tp_keeper keeper_of(const tp_call *c)
{
    return tp__keeper(c, ((const tp__linear_attr *)c->attr)->dropout);
}

/* Drops n values of act(Z), from element `at` on, and the same of what backward reads: slopes or,
 * for ReLU, bytes. Selects: 0 times infinity would be NaN. A tile of OpenBLAS's products, on
 * processors without ours, is as wide as Z. */
static void drop_row(const tp_keeper *k, int64_t at, int64_t n, real *y, real *slope,
                     uint8_t *positive)
{
    for (; n > 0; at += ROOM, n -= ROOM) {
        const int64_t m = n < ROOM ? n : ROOM;
        real factor[ROOM];
        tp__draw_keep(k, at, m, 1, factor);
        for (int64_t i = 0; i < m; i++) y[i] = factor[i] > 0 ? y[i] * factor[i] : 0;
        for (int64_t i = 0; slope && i < m; i++)
            slope[i] = factor[i] > 0 ? slope[i] * factor[i] : 0;
        for (int64_t i = 0; positive && i < m; i++) positive[i] = positive[i] && factor[i] > 0;
        y += ROOM;
        if (slope) slope += ROOM;
        if (positive) positive += ROOM;
    }
}

/* Bias, activation and dropout of n elements z, from element `at` of Z on. Activations other than
 * ReLU replace Z by their slopes. */
static void finish_row(const tp_call *c, real *z, const real *b, int64_t at, int64_t n)
{
    const tp_act act = act_of(c);
    const tp_keeper k = keeper_of(c);
    real room[ROOM], *y = row_at(&c->y[0], c->y[0].data, at, room);
    for (int64_t i = 0; b && i < n; i++) z[i] += b[i];
    if (act == TP_ACT_RELU) {
        uint8_t *positive = (uint8_t *)c->y[1].data + at;
        for (int64_t i = 0; i < n; i++) positive[i] = z[i] > 0;
        for (int64_t i = 0; i < n; i++) z[i] = relu_value(z[i]);
        if (k.below) drop_row(&k, at, n, z, NULL, positive);
    } else if (act == TP_ACT_GELU) {
        for (int64_t i = 0; i < n; i++) y[i] = gelu_both(z[i], &z[i]);
    } else if (act == TP_ACT_QUICK_GELU) {
        for (int64_t i = 0; i < n; i++) y[i] = quick_gelu_both(z[i], &z[i]);
    } else if (act == TP_ACT_SILU) {
        for (int64_t i = 0; i < n; i++) y[i] = silu_both(z[i], &z[i]);
    } else if (act == TP_ACT_GELU_TANH) {
        for (int64_t i = 0; i < n; i++) y[i] = gelu_tanh_both(z[i], &z[i]);
    } else if (act == TP_ACT_TANH) {
        for (int64_t i = 0; i < n; i++) y[i] = tanh_both(z[i], &z[i]);
    } else if (act == TP_ACT_SIGMOID) {
        for (int64_t i = 0; i < n; i++) y[i] = sigmoid_both(z[i], &z[i]);
    }
    if (tp__keeps_slope(act) && k.below) drop_row(&k, at, n, y, z, NULL);
    if (tp__keeps_slope(act)) put_row(&c->y[0], c->y[0].data, at, n, y);
}

static void finish_tile(const void *ctx, void *z, int64_t ldz, int64_t i, int64_t j, int64_t m,
                        int64_t n)
{
    const tp_call *c = ctx;
    const int64_t N = c->x[1].dim[0];
    real room[ROOM];
    const real *b = c->x[2].data ? read_row(&c->x[2], c->x[2].data, j, n, room) : NULL;
    for (int64_t r = 0; r < m; r++) finish_row(c, (real *)z + r * ldz, b, (i + r) * N + j, n);
}

static int64_t rows_of(const tp_call *c)
{
    const int64_t N = c->x[1].dim[0], K = c->x[1].dim[1];
    return N > 0 ? c->y[0].numel / N : K > 0 ? c->x[0].numel / K : 0;
}

static tp_code linear_fwd(const tp_call *c)
{
    const int64_t N = c->x[1].dim[0], K = c->x[1].dim[1];
    tp__gemm_parallel(c->dev, &(tp_gemm){ .dtype = stored_dtype(c),
                                          .c_dtype = c->y[0].dtype,
                                          .m = rows_of(c),
                                          .n = N,
                                          .k = K,
                                          .batch = 1,
                                          .a = c->x[0].data,
                                          .lda = K,
                                          .b = c->x[1].data,
                                          .ldb = K,
                                          .tb = true,
                                          .c = c->y[tp__keeps_slope(act_of(c))].data,
                                          .ldc = N,
                                          .work = c->work,
                                          .done = finish_tile,
                                          .ctx = c });
    return TP_OK;
}

static size_t products_work(const tp_call *c)
{
    return tp__product_work(c->dev, stored_dtype(c), &c->x[0], &c->x[1]);
}

/* c->work: scratch of the products, then partial sums of db [blocks,N], then, with an activation,
 * dZ [rows,N], stored like Y. */
static size_t linear_work(const tp_call *c)
{
    if (!tp_is_backward(c)) return products_work(c);
    const int64_t N = c->x[1].dim[0], rows = N > 0 ? c->y[0].numel / N : 0;
    const int64_t dz = act_of(c) == TP_ACT_NONE ? 0 : c->y[0].numel;
    const int64_t db = tp_absent(&c->x[2]) ? 0 : tp__row_blocks(rows) * N;
    return products_work(c) + (size_t)db * sizeof(real) +
           (size_t)dz * tp_dtype_size(stored_dtype(c));
}

static real *db_parts(const tp_call *c)
{
    return (real *)((char *)c->work + products_work(c));
}

static void *dz_of(const tp_call *c)
{
    const int64_t N = c->x[1].dim[0], rows = N > 0 ? c->dy[0].numel / N : 0;
    if (act_of(c) == TP_ACT_NONE) return c->dy[0].data;
    return db_parts(c) + (tp_absent(&c->x[2]) ? 0 : tp__row_blocks(rows) * N);
}

/* n elements of dZ from `at` on, in f32: in place or in `room`. */
static const real *dz_row(const tp_call *c, int64_t at, int64_t n, real *room)
{
    real other[ROOM];
    const real *dy = read_row(&c->dy[0], c->dy[0].data, at, n, room);
    if (act_of(c) == TP_ACT_NONE) return dy;
    real *dz = row_at(&c->dy[0], dz_of(c), at, room);
    const tp_keeper k = keeper_of(c);
    if (act_of(c) == TP_ACT_RELU) {
        const uint8_t *positive = (const uint8_t *)c->y[1].data + at;
        const real scale = k.below ? k.scale : 1;
        for (int64_t i = 0; i < n; i++) dz[i] = positive[i] ? dy[i] * scale : 0;
    } else {
        const real *slope = read_row(&c->y[1], c->y[1].data, at, n, other);
        if (k.below) /* slopes of dropped elements are 0 */
            for (int64_t i = 0; i < n; i++) dz[i] = slope[i] != 0 ? dy[i] * slope[i] : 0;
        else
            for (int64_t i = 0; i < n; i++) dz[i] = dy[i] * slope[i];
    }
    put_row(&c->dy[0], dz_of(c), at, n, dz);
    return dz;
}

static void dz_blocks(const tp_call *c, int64_t begin, int64_t end)
{
    const int64_t N = c->x[1].dim[0], rows = rows_of(c), size = tp__block_rows(rows);
    for (int64_t k = begin; k < end; k++) {
        real *part = c->dx[2].data ? db_parts(c) + k * N : NULL;
        if (part) memset(part, 0, (size_t)N * sizeof *part);
        for (int64_t r = k * size; r < rows && r < (k + 1) * size; r++)
            for (int64_t j = 0; j < N; j += ROOM) {
                const int64_t n = N - j < ROOM ? N - j : ROOM;
                real room[ROOM];
                const real *dz = dz_row(c, r * N + j, n, room);
                for (int64_t i = 0; part && i < n; i++) part[j + i] += dz[i];
            }
    }
}

/* dX = dZ W (to = 0) or dW = dZ^T X (to = 1). */
static void dz_product(const tp_call *c, int to, int64_t m, int64_t k)
{
    const int64_t N = c->x[1].dim[0], K = c->x[1].dim[1];
    tp__gemm_parallel(c->dev, &(tp_gemm){ .dtype = stored_dtype(c),
                                          .c_dtype = c->dx[to].dtype,
                                          .m = m,
                                          .n = K,
                                          .k = k,
                                          .batch = 1,
                                          .add = c->add >> to & 1u,
                                          .a = dz_of(c),
                                          .lda = N,
                                          .ta = to == 1,
                                          .b = c->x[1 - to].data,
                                          .ldb = K,
                                          .c = c->dx[to].data,
                                          .ldc = K,
                                          .work = c->work });
}

static tp_code linear_bwd(const tp_call *c)
{
    const int64_t N = c->x[1].dim[0], rows = rows_of(c), blocks = tp__row_blocks(rows);
    if (c->dx[2].data || act_of(c) != TP_ACT_NONE) tp__for(c, blocks, 1, dz_blocks);
    if (c->dx[0].data) dz_product(c, 0, rows, N);
    if (c->dx[1].data) dz_product(c, 1, N, rows);
    if (c->dx[2].data) tp__add_blocks_to(&c->dx[2], c->add >> 2 & 1u, N, db_parts(c), blocks, N);
    return TP_OK;
}

TP_CPU_WORK(linear_work)
TP_CPU_KERNEL(linear_fwd)
TP_CPU_KERNEL(linear_bwd)
