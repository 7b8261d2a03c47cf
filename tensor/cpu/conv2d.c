/* conv2d.c - convolutions of channels-last images, and their gradients, as matrix products.
 *
 *     Y = X' W' + b     dX = dY' W''     dW = dY^T X'     db = sum of the rows of dY
 *
 * conv2d_pass.c computes Y and dX, conv2d_dw.c dW, tile by tile (kit/conv2d_tiles.h). 1 x 1
 * convolutions are products with X itself. */
#include "tensor/cpu/kit/add_blocks.h"
#include "tensor/cpu/kit/conv2d_cut.h"
#include "tensor/cpu/kit/real.h"
#include "tensor/cpu/kit/row_blocks.h"
#include "tensor/kernel.h"

void TP_KERNEL_FN(conv2d_pass)(const tp_call *c, const tp__conv2d *g, const tp__conv2d_pass *p,
                               const real *from, const real *bias, real *to, bool add);
void TP_KERNEL_FN(conv2d_dw)(const tp_call *c, const tp__conv2d *g);

/* ---- forward ---- */

static tp__conv2d conv_of(const tp_call *c)
{
    return tp__conv2d_of(c->attr, &c->x[0], &c->x[1]);
}

static void add_bias(const void *ctx, int64_t i, int64_t j, int64_t m, int64_t n)
{
    const tp_call *c = ctx;
    const int64_t Co = c->x[1].dim[0];
    const real *b = c->x[2].data;
    for (int64_t r = i; b && r < i + m; r++) {
        real *y = (real *)c->y[0].data + r * Co;
        for (int64_t k = j; k < j + n; k++) y[k] += b[k];
    }
}

static tp_code conv2d_fwd(const tp_call *c)
{
    const tp__conv2d g = conv_of(c);
    if (c->y[0].numel == 0) return TP_OK;
    if (tp__conv2d_is_product(&g)) {
        /* clang-format off */
        tp__gemm_parallel(c->dev, &(tp_gemm){
            .dtype = REAL, .m = c->y[0].numel / g.co, .n = g.co, .k = g.ci, .batch = 1,
            .a = c->x[0].data, .lda = g.ci, .b = c->x[1].data, .ldb = g.ci, .tb = true,
            .c = c->y[0].data, .ldc = g.co, .work = c->work, .done = add_bias, .ctx = c });
        /* clang-format on */
        return TP_OK;
    }
    const tp__conv2d_pass p = tp__conv2d_forward(&g);
    TP_KERNEL_FN(conv2d_pass)(c, &g, &p, c->x[0].data, c->x[2].data, c->y[0].data, false);
    return TP_OK;
}

/* ---- backward ---- */

static void dx(const tp_call *c, const tp__conv2d *g)
{
    const bool add = c->add & 1u;
    bool bare = false; /* some position is under no tap */
    for (int64_t k = 0; k < tp__conv2d_phases(g); k++) {
        const tp__conv2d_pass p = tp__conv2d_backward(g, k);
        bare |= tp__conv2d_weights(&p) == 0;
    }
    if (bare && !add) memset(c->dx[0].data, 0, (size_t)c->dx[0].numel * sizeof(real));
    for (int64_t k = 0; k < tp__conv2d_phases(g); k++) {
        const tp__conv2d_pass p = tp__conv2d_backward(g, k);
        if (tp__conv2d_weights(&p) > 0)
            TP_KERNEL_FN(conv2d_pass)(c, g, &p, c->dy[0].data, NULL, c->dx[0].data, add);
    }
}

/* dX = dY W (to = 0) or dW = dY^T X (to = 1), of a 1 x 1 convolution. */
static void product(const tp_call *c, const tp__conv2d *g, int to)
{
    const int64_t rows = g->batch * g->axis[0].out * g->axis[1].out;
    /* clang-format off */
    tp__gemm_parallel(c->dev, &(tp_gemm){
        .dtype = REAL, .m = to ? g->co : rows, .n = g->ci, .k = to ? rows : g->co, .batch = 1,
        .a = c->dy[0].data, .lda = g->co, .ta = to == 1,
        .b = c->x[1 - to].data, .ldb = g->ci, .add = c->add >> to & 1u,
        .c = c->dx[to].data, .ldc = g->ci, .work = c->work });
    /* clang-format on */
}

static void db_blocks(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const tp__conv2d g = conv_of(c);
    const int64_t rows = g.batch * g.axis[0].out * g.axis[1].out, size = tp__block_rows(rows);
    const tp__conv2d_room room = tp__conv2d_room_of(REAL, &g, true, c->dev->threads);
    (void)thread;
    for (int64_t k = begin; k < end; k++) {
        real *part = (real *)((char *)c->work + room.db) + k * g.co;
        memset(part, 0, (size_t)g.co * sizeof *part);
        for (int64_t r = k * size; r < rows && r < (k + 1) * size; r++) {
            const real *dy = (const real *)c->dy[0].data + r * g.co;
            for (int64_t i = 0; i < g.co; i++) part[i] += dy[i];
        }
    }
}

static tp_code conv2d_bwd(const tp_call *c)
{
    const tp__conv2d g = conv_of(c);
    const tp__conv2d_room room = tp__conv2d_room_of(REAL, &g, true, c->dev->threads);
    const int64_t blocks = tp__row_blocks(g.batch * g.axis[0].out * g.axis[1].out);
    const bool is_product = tp__conv2d_is_product(&g);
    if (c->dx[0].data && is_product) product(c, &g, 0);
    if (c->dx[0].data && !is_product) dx(c, &g);
    if (c->dx[1].data && is_product) product(c, &g, 1);
    if (c->dx[1].data && !is_product) TP_KERNEL_FN(conv2d_dw)(c, &g);
    if (!c->dx[2].data) return TP_OK;
    tp__for(c, blocks, 1, db_blocks);
    tp__add_blocks(c->dx[2].data, c->add >> 2 & 1u, g.co, (real *)((char *)c->work + room.db),
                   blocks, g.co);
    return TP_OK;
}

static size_t conv2d_work(const tp_call *c)
{
    const tp__conv2d g = conv_of(c);
    return tp__conv2d_room_of(REAL, &g, tp_is_backward(c), c->dev->threads).all;
}

TP_CPU_WORK(conv2d_work)
TP_CPU_KERNEL(conv2d_fwd)
TP_CPU_KERNEL(conv2d_bwd)
