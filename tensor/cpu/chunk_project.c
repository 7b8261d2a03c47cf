/* chunk_project.c - the dynamic projection of chunks, one pass over x.
 *
 * A task is one chunk of l rows. It computes the chunk's l H r weights in the thread's scratch [l][H r],
 * column by column of the scores, then sums the rows of x, which are in cache. Long chunks with many
 * ranks, such as whole images, are matrix products instead. */
#include "tensor/geometry/chunk_project.h"
#include "tensor/cpu/kit/real.h"
#include "tensor/kernel.h"

#define ROWS 64 /* rows of the chunks of a task: 16 rows of 512 floats are 32 KB */

static int64_t grain(const tp__chunk_attr *a)
{
    return a->chunk < ROWS ? ROWS / a->chunk : 1;
}

/* Tells whether a matrix product pays. */
static bool is_product(const tp__chunk_attr *a)
{
    return a->chunk >= 32 && a->rank >= 4;
}

/* p[s][k] = softmax over s of z[s][k], k < n = H r. max and sum are scratch [n]. */
static void chunk_softmax(const real *z, int64_t l, int64_t n, real *p, real *max, real *sum)
{
    memcpy(max, z, (size_t)n * sizeof *z);
    for (int64_t s = 1; s < l; s++)
        for (int64_t k = 0; k < n; k++) max[k] = z[s * n + k] > max[k] ? z[s * n + k] : max[k];
    memset(sum, 0, (size_t)n * sizeof *sum);
    for (int64_t s = 0; s < l; s++)
        for (int64_t k = 0; k < n; k++) {
            p[s * n + k] = r_exp(z[s * n + k] - max[k]);
            sum[k] += p[s * n + k];
        }
    for (int64_t k = 0; k < n; k++) sum[k] = RC(1.0) / sum[k];
    for (int64_t s = 0; s < l; s++)
        for (int64_t k = 0; k < n; k++) p[s * n + k] *= sum[k];
}

/* y[j] = sum_s p[s][i r + j] x[s] over each head i. */
static void chunk_sums(const tp__chunk_attr *a, int64_t C, const real *x, const real *p, real *y)
{
    const int64_t l = a->chunk, r = a->rank, H = a->heads, n = H * r, D = C / H;
    if (is_product(a)) {
        for (int64_t i = 0; i < H; i++)
            tp__gemm(REAL, true, false, r, D, l, 1.0, p + i * r, n, x + i * D, C, 0.0, y + i * D,
                     C);
        return;
    }
    memset(y, 0, (size_t)(r * C) * sizeof *y);
    for (int64_t s = 0; s < l; s++)
        for (int64_t i = 0; i < H; i++)
            for (int64_t j = 0; j < r; j++) {
                const real w = p[s * n + i * r + j], *xs = x + s * C + i * D;
                real *yj = y + j * C + i * D;
                for (int64_t d = 0; d < D; d++) yj[d] += w * xs[d];
            }
}

/* Elements of scratch a thread needs: p, its gradient, two rows. */
static size_t scratch_of(const tp__chunk_attr *a)
{
    return (size_t)((2 * a->chunk + 2) * a->heads * a->rank + 15) / 16 * 16;
}

static size_t chunk_project_work(const tp_call *c)
{
    if (c->x[1].numel == 0) return 0;
    return (size_t)c->dev->threads * scratch_of(c->attr) * sizeof(double);
}

static void chunk_forward(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const tp__chunk_attr *a = c->attr;
    const int64_t l = a->chunk, n = a->heads * a->rank, C = c->x[0].dim[2];
    real *p = (real *)c->work + (size_t)thread * scratch_of(a), *max = p + l * n;
    for (int64_t t = begin; t < end; t++) {
        chunk_softmax((const real *)c->x[1].data + t * l * n, l, n, p, max, max + n);
        chunk_sums(a, C, (const real *)c->x[0].data + t * l * C, p,
                   (real *)c->y[0].data + t * a->rank * C);
    }
}

static tp_code chunk_project_fwd(const tp_call *c)
{
    const tp__chunk_attr *a = c->attr;
    tp__for(c, c->x[0].dim[0] * (c->x[0].dim[1] / a->chunk), grain(a), chunk_forward);
    return TP_OK;
}

/* g[s][i r + j] = dy[j] x[s] over head i; dx[s] = sum_j p dy[j]. Either result may be NULL. */
static void chunk_products(const tp__chunk_attr *a, int64_t C, const real *x, const real *dy,
                           const real *p, real *g, real *dx)
{
    const int64_t l = a->chunk, r = a->rank, H = a->heads, n = H * r, D = C / H;
    if (is_product(a)) {
        for (int64_t i = 0; i < H; i++) {
            const real *dyi = dy + i * D, *pi = p + i * r;
            tp__gemm(REAL, false, true, l, r, D, 1.0, x + i * D, C, dyi, C, 0.0, g + i * r, n);
            if (dx) tp__gemm(REAL, false, false, l, D, r, 1.0, pi, n, dyi, C, 0.0, dx + i * D, C);
        }
        return;
    }
    for (int64_t s = 0; s < l; s++) {
        if (dx) memset(dx + s * C, 0, (size_t)C * sizeof *dx);
        for (int64_t i = 0; i < H; i++)
            for (int64_t j = 0; j < r; j++) {
                const real *dyj = dy + j * C + i * D, *xs = x + s * C + i * D;
                const real w = p[s * n + i * r + j];
                real dot = 0;
#pragma omp simd reduction(+ : dot)
                for (int64_t d = 0; d < D; d++) dot += dyj[d] * xs[d];
                g[s * n + i * r + j] = dot;
                if (!dx) continue;
                real *dxs = dx + s * C + i * D;
                for (int64_t d = 0; d < D; d++) dxs[d] += w * dyj[d];
            }
    }
}

/* dz = p (g - sum_s p g), the gradient of the softmax of each column. */
static void chunk_scores_grad(int64_t l, int64_t n, const real *p, const real *g, real *sum,
                              real *dz)
{
    memset(sum, 0, (size_t)n * sizeof *sum);
    for (int64_t s = 0; s < l; s++)
        for (int64_t k = 0; k < n; k++) sum[k] += p[s * n + k] * g[s * n + k];
    for (int64_t s = 0; s < l; s++)
        for (int64_t k = 0; k < n; k++) dz[s * n + k] = p[s * n + k] * (g[s * n + k] - sum[k]);
}

static void chunk_backward(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const tp__chunk_attr *a = c->attr;
    const int64_t l = a->chunk, n = a->heads * a->rank, C = c->x[0].dim[2];
    real *p = (real *)c->work + (size_t)thread * scratch_of(a), *g = p + l * n;
    real *max = g + l * n, *dx = c->dx[0].data, *dz = c->dx[1].data;
    for (int64_t t = begin; t < end; t++) {
        chunk_softmax((const real *)c->x[1].data + t * l * n, l, n, p, max, max + n);
        chunk_products(a, C, (const real *)c->x[0].data + t * l * C,
                       (const real *)c->dy[0].data + t * a->rank * C, p, g,
                       dx ? dx + t * l * C : NULL);
        if (dz) chunk_scores_grad(l, n, p, g, max, dz + t * l * n);
    }
}

static tp_code chunk_project_bwd(const tp_call *c)
{
    const tp__chunk_attr *a = c->attr;
    tp__for(c, c->x[0].dim[0] * (c->x[0].dim[1] / a->chunk), grain(a), chunk_backward);
    return TP_OK;
}

TP_CPU_WORK(chunk_project_work)
TP_CPU_KERNEL(chunk_project_fwd)
TP_CPU_KERNEL(chunk_project_bwd)
