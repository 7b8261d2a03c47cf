/* glu.c - gated linear units: y = act(g) u, and the plain y = a s(b) of two halves.
 *
 *     g = X Wg^T + bg   u = X Wu^T + bu     dg = dy u act'(g)   du = dy act(g)
 *     dX = dg Wg + du Wu     dWg = dg^T X, dWu = du^T X     db = sums of the rows
 *
 * The thread that computed a tile of u adds the biases and multiplies by act(g) while it is in
 * cache. dg and du are the halves of the rows of a matrix dZ [rows,2N], so if Wg and Wu are one
 * weight each gradient is one product. */
#include "cpu/kit/activation.h"
#include "cpu/kit/real.h"
#include "cpu/kit/row_blocks.h"
#include "tensor/geometry/linalg.h"
#include "tensor/geometry/shape_ops.h"
#include "tensor/kernel.h"
#include "tensor/shape.h"

/* ---- glu_linear ---- */

typedef struct glu {
    tp_glu_kind kind;
    bool both;          /* one weight holds the gate and the other factor */
    int64_t rows, N, K; /* y is [rows,N] */
} glu;

static glu glu_of(const tp_call *c)
{
    const bool both = tp_absent(&c->x[3]);
    const int64_t N = c->x[1].dim[0] / (both ? 2 : 1), K = c->x[1].dim[1];
    return (glu){ ((const tp__glu_attr *)c->attr)->kind, both,
                  N > 0   ? c->y[0].numel / N
                  : K > 0 ? c->x[0].numel / K
                          : 0,
                  N, K };
}

/* The part of w, b or a gradient: 0 is the gate's, 1 the other's; or NULL. at: c->x or c->dx. */
static real *part_of(const tp_view *at, const glu *g, int what, int part)
{
    const int64_t half = what == 1 ? g->N * g->K : g->N;
    real *data = at[g->both || part == 0 ? what : what + 2].data;
    return data && g->both ? data + part * half : data;
}

TP_INLINE real gate(tp_glu_kind kind, real g, real *slope)
{
    if (kind == TP_GLU_SILU) return silu_both(g, slope);
    if (kind == TP_GLU_GELU) return gelu_both(g, slope);
    if (kind == TP_GLU_RELU) {
        *slope = relu_slope(g);
        return relu_value(g);
    }
    const real s = logistic(g);
    *slope = s * (1 - s);
    return s;
}

/* Inlined with a constant kind, so that loops vectorise. */
TP_INLINE void gate_loop(tp_glu_kind kind, int64_t n, const real *restrict g,
                         const real *restrict u, real *restrict y)
{
    for (int64_t i = 0; i < n; i++) {
        real slope;
        y[i] = gate(kind, g[i], &slope) * u[i];
    }
}

TP_INLINE void slope_loop(tp_glu_kind kind, int64_t n, const real *restrict g,
                          const real *restrict u, const real *restrict dy, real *restrict dg,
                          real *restrict du)
{
    for (int64_t i = 0; i < n; i++) {
        real slope;
        const real a = gate(kind, g[i], &slope);
        dg[i] = dy[i] * u[i] * slope;
        du[i] = dy[i] * a;
    }
}

static void gate_row(tp_glu_kind kind, int64_t n, const real *g, const real *u, real *y)
{
    switch (kind) {
    case TP_GLU_SIGMOID: gate_loop(TP_GLU_SIGMOID, n, g, u, y); break;
    case TP_GLU_SILU: gate_loop(TP_GLU_SILU, n, g, u, y); break;
    case TP_GLU_GELU: gate_loop(TP_GLU_GELU, n, g, u, y); break;
    case TP_GLU_RELU: gate_loop(TP_GLU_RELU, n, g, u, y); break;
    }
}

static void slope_row(tp_glu_kind kind, int64_t n, const real *g, const real *u, const real *dy,
                      real *dg, real *du)
{
    switch (kind) {
    case TP_GLU_SIGMOID: slope_loop(TP_GLU_SIGMOID, n, g, u, dy, dg, du); break;
    case TP_GLU_SILU: slope_loop(TP_GLU_SILU, n, g, u, dy, dg, du); break;
    case TP_GLU_GELU: slope_loop(TP_GLU_GELU, n, g, u, dy, dg, du); break;
    case TP_GLU_RELU: slope_loop(TP_GLU_RELU, n, g, u, dy, dg, du); break;
    }
}

static void finish_tile(const void *ctx, void *z, int64_t ldz, int64_t i, int64_t j, int64_t m,
                        int64_t n)
{
    const tp_call *c = ctx;
    const glu p = glu_of(c);
    (void)z, (void)ldz;
    const real *bg = part_of(c->x, &p, 2, 0), *bu = part_of(c->x, &p, 2, 1);
    for (int64_t r = i; r < i + m; r++) {
        const int64_t at = r * p.N + j;
        real *g = (real *)c->y[1].data + at, *u = (real *)c->y[2].data + at;
        real *y = (real *)c->y[0].data + at;
        for (int64_t x = 0; bg && x < n; x++) g[x] += bg[j + x];
        for (int64_t x = 0; bu && x < n; x++) u[x] += bu[j + x];
        gate_row(p.kind, n, g, u, y);
    }
}

static tp_code glu_linear_fwd(const tp_call *c)
{
    const glu p = glu_of(c);
    for (int part = 0; part < 2; part++)
        tp__gemm_parallel(c->dev, &(tp_gemm){ .dtype = REAL,
                                              .m = p.rows,
                                              .n = p.N,
                                              .k = p.K,
                                              .batch = 1,
                                              .a = c->x[0].data,
                                              .lda = p.K,
                                              .b = part_of(c->x, &p, 1, part),
                                              .ldb = p.K,
                                              .tb = true,
                                              .c = c->y[1 + part].data,
                                              .ldc = p.N,
                                              .work = c->work,
                                              .done = part == 1 ? finish_tile : NULL,
                                              .ctx = c });
    return TP_OK;
}

static size_t products_work(const tp_call *c)
{
    return tp__product_work(c->dev, REAL, &c->x[0], &c->x[1]);
}

/* c->work: scratch of the products, then dZ [rows,2N], then partial sums of both biases
 * [blocks,2N]. */
static size_t glu_linear_work(const tp_call *c)
{
    const glu p = glu_of(c);
    if (!tp_is_backward(c)) return products_work(c);
    return products_work(c) + (size_t)((p.rows + tp__row_blocks(p.rows)) * 2 * p.N) * sizeof(real);
}

static real *dz_of(const tp_call *c)
{
    return (real *)((char *)c->work + products_work(c));
}

static bool wants_sums(const tp_call *c)
{
    return c->dx[2].data || c->dx[4].data;
}

static void dz_blocks(const tp_call *c, int64_t begin, int64_t end)
{
    const glu p = glu_of(c);
    const int64_t size = tp__block_rows(p.rows), N = p.N;
    for (int64_t k = begin; k < end; k++) {
        real *part = wants_sums(c) ? dz_of(c) + (p.rows + k) * 2 * N : NULL;
        if (part) memset(part, 0, (size_t)(2 * N) * sizeof *part);
        for (int64_t r = k * size; r < p.rows && r < (k + 1) * size; r++) {
            const real *g = (const real *)c->y[1].data + r * N;
            const real *u = (const real *)c->y[2].data + r * N;
            const real *dy = (const real *)c->dy[0].data + r * N;
            real *dz = dz_of(c) + r * 2 * N;
            slope_row(p.kind, N, g, u, dy, dz, dz + N);
            for (int64_t i = 0; part && i < 2 * N; i++) part[i] += dz[i];
        }
    }
}

/* dX = dZ W: one product, or one per weight. */
static void dx_products(const tp_call *c, const glu *p)
{
    for (int part = 0; part < (p->both ? 1 : 2); part++)
        tp__gemm_parallel(c->dev, &(tp_gemm){ .dtype = REAL,
                                              .m = p->rows,
                                              .n = p->K,
                                              .k = p->both ? 2 * p->N : p->N,
                                              .batch = 1,
                                              .add = part == 1 || c->add & 1u,
                                              .a = dz_of(c) + part * p->N,
                                              .lda = 2 * p->N,
                                              .b = part_of(c->x, p, 1, part),
                                              .ldb = p->K,
                                              .c = c->dx[0].data,
                                              .ldc = p->K,
                                              .work = c->work });
}

/* dW = dZ^T X for the weight at input `what`. */
static void dw_product(const tp_call *c, const glu *p, int what)
{
    tp__gemm_parallel(c->dev, &(tp_gemm){ .dtype = REAL,
                                          .m = p->both ? 2 * p->N : p->N,
                                          .n = p->K,
                                          .k = p->rows,
                                          .batch = 1,
                                          .add = c->add >> what & 1u,
                                          .a = dz_of(c) + (what == 3 ? p->N : 0),
                                          .lda = 2 * p->N,
                                          .ta = true,
                                          .b = c->x[0].data,
                                          .ldb = p->K,
                                          .c = c->dx[what].data,
                                          .ldc = p->K,
                                          .work = c->work });
}

static tp_code glu_linear_bwd(const tp_call *c)
{
    const glu p = glu_of(c);
    const int64_t blocks = tp__row_blocks(p.rows);
    const real *sums = dz_of(c) + p.rows * 2 * p.N;
    tp__for(c, blocks, 1, dz_blocks);
    if (c->dx[0].data) dx_products(c, &p);
    for (int what = 1; what < 4; what += 2)
        if (c->dx[what].data) dw_product(c, &p, what);
    for (int what = 2; what < 5; what += 2)
        if (c->dx[what].data)
            tp__add_blocks(c->dx[what].data, c->add >> what & 1u, p.both ? 2 * p.N : p.N,
                           sums + (what == 4 ? p.N : 0), blocks, 2 * p.N);
    return TP_OK;
}

/* ---- glu ---- */

enum { GRAIN = 4096 }; /* elements worth a thread */

/* y is [outer,half], x [outer,2,half]. */
static int64_t half_of(const tp_call *c)
{
    const tp_view *y = &c->y[0];
    int64_t outer, dim, inner;
    tp__axis_split(y, tp__axis(y->ndim, ((const tp_axis_attr *)c->attr)->axis), &outer, &dim,
                   &inner);
    return dim * inner;
}

static void value_range(const tp_call *c, int64_t begin, int64_t end)
{
    const int64_t half = half_of(c);
    for (int64_t i = begin, n; i < end; i += n) {
        const int64_t row = i / half, left = (row + 1) * half - i;
        const real *restrict a = (const real *)c->x[0].data + i + row * half;
        const real *restrict b = a + half;
        real *restrict y = (real *)c->y[0].data + i;
        n = left < end - i ? left : end - i;
        for (int64_t k = 0; k < n; k++) y[k] = a[k] * logistic(b[k]);
    }
}

static void grad_range(const tp_call *c, int64_t begin, int64_t end)
{
    const int64_t half = half_of(c);
    for (int64_t i = begin, n; i < end; i += n) {
        const int64_t row = i / half, left = (row + 1) * half - i;
        const real *restrict a = (const real *)c->x[0].data + i + row * half;
        const real *restrict b = a + half;
        const real *restrict dy = (const real *)c->dy[0].data + i;
        real *restrict da = (real *)c->dx[0].data + i + row * half, *restrict db = da + half;
        n = left < end - i ? left : end - i;
        for (int64_t k = 0; k < n; k++) {
            const real s = logistic(b[k]);
            da[k] = dy[k] * s;
            db[k] = dy[k] * a[k] * s * (1 - s);
        }
    }
}

static tp_code glu_fwd(const tp_call *c)
{
    tp__for(c, c->y[0].numel, GRAIN, value_range);
    return TP_OK;
}

static tp_code glu_bwd(const tp_call *c)
{
    if (c->dx[0].data) tp__for(c, c->dy[0].numel, GRAIN, grad_range);
    return TP_OK;
}

TP_CPU_WORK(glu_linear_work)
TP_CPU_KERNEL(glu_linear_fwd)
TP_CPU_KERNEL(glu_linear_bwd)
TP_CPU_KERNEL(glu_fwd)
TP_CPU_KERNEL(glu_bwd)
