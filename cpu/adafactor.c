/* adafactor.c - Adafactor's update over the flat blocks of a parameter set; formula in segments.h.
 *
 * Four passes. The first reads the gradients of matrices by slabs of rows (factored.h) and moves
 * the averages of rows, and of columns if a matrix has one slab; the second adds the columns of
 * several slabs and divides the rows by their mean. The third leaves two sums of squares per block,
 * which are added in order; the fourth updates, and recomputes the step, which is cheaper than
 * storing it. Sums are in double. */
#include "cpu/kit/real.h"
#include "cpu/kit/segment_loop.h"
#include "tensor/geometry/factored.h"

enum { STRIP = 64 }; /* columns summed at a time */

static tp_factored_work work_of(const tp_call *c)
{
    const tp_optim_attr *a = c->attr;
    return tp__factored_work(c->work, &a->s, c->y[1].numel);
}

/* A segment's part of state k: rows, columns, or squares of unfactored parameters. */
static real *state(const tp_call *c, const tp_segment *s, int k)
{
    return (real *)c->y[1 + k].data + s->own[k];
}

/* ---- averages of rows and columns ---- */

static inline void move(real *average, double weight, double mean)
{
    *average += (real)(weight * (mean - (double)*average));
}

/* The square of the factor on gradients. */
static double scale_of_squares(const tp_call *c)
{
    const tp_optim_attr *a = c->attr;
    return a->scale * a->scale;
}

static double squares(const real *restrict g, int64_t n)
{
    double sum = 0.0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; j++) sum += (double)g[j] * (double)g[j];
    return sum;
}

/* Sums of squares down n columns of g [rows,cols]. */
static void squares_down(const real *restrict g, int64_t rows, int64_t cols, int64_t n,
                         double *restrict sum)
{
    for (int64_t j = 0; j < n; j++) sum[j] = 0.0;
    for (int64_t i = 0; i < rows; i++, g += cols)
        for (int64_t j = 0; j < n; j++) sum[j] += (double)g[j] * (double)g[j];
}

static void sum_slab(const tp_call *c, const tp_segment *s, int64_t matrix, int64_t slab)
{
    const int64_t R = s->rows, C = s->cols, slabs = tp__slabs(s), each = tp__slab_rows(s);
    const int64_t first = slab * each, rows = slab == slabs - 1 ? R - first : each;
    const real *g = (const real *)s->grad + (matrix * R + first) * C;
    real *row = state(c, s, 0) + matrix * R + first, *col = state(c, s, 1) + matrix * C;
    const double by_row = scale_of_squares(c) / (double)C, by_col = scale_of_squares(c) / (double)R;
    double *sums = slabs > 1 ? work_of(c).col + tp__slab_sums(s, matrix, slab) : NULL, own[STRIP];

    for (int64_t i = 0; i < rows; i++) move(row + i, s->root, by_row * squares(g + i * C, C));
    for (int64_t j = 0; j < C; j += STRIP) {
        const int64_t n = C - j < STRIP ? C - j : STRIP;
        squares_down(g + j, rows, C, n, slabs > 1 ? sums + j : own);
        for (int64_t k = 0; slabs == 1 && k < n; k++) move(col + j + k, s->root, by_col * own[k]);
    }
}

static void sums_block(const tp_call *c, const tp_segment *s, int64_t block, int64_t at, int64_t n)
{
    const int64_t part = block - s->block;
    (void)at;
    (void)n;
    if (!tp__is_factored(s)) return;
    const int64_t slabs = tp__slabs(s), all = tp__matrices(s) * slabs;
    for (int64_t t = tp__share(s, all, part); t < tp__share(s, all, part + 1); t++)
        sum_slab(c, s, t / slabs, t % slabs);
}

/* Adds column i of all matrices over its matrix's slabs. */
static void finish_column(const tp_call *c, const tp_segment *s, int64_t i)
{
    const int64_t slabs = tp__slabs(s);
    const double *at = work_of(c).col + tp__slab_sums(s, i / s->cols, 0) + i % s->cols;
    double sum = 0.0;
    for (int64_t k = 0; k < slabs; k++) sum += at[k * s->cols];
    move(state(c, s, 1) + i, s->root, scale_of_squares(c) * sum / (double)s->rows);
}

static void finish_rows(const tp_call *c, const tp_segment *s, int64_t matrix)
{
    const tp_optim_attr *a = c->attr;
    const int64_t R = s->rows;
    const real *restrict row = state(c, s, 0) + matrix * R;
    double *restrict to = work_of(c).row + s->own[0] + matrix * R, sum = 0.0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < R; i++) sum += (double)row[i];
    const double mean = sum / (double)R, least = a->k[TP_ADAFACTOR_EPS1];
    const double by = 1.0 / (mean < least ? least : mean);
    for (int64_t i = 0; i < R; i++) to[i] = by * (double)row[i];
}

static void finish_block(const tp_call *c, const tp_segment *s, int64_t block, int64_t at,
                         int64_t n)
{
    const int64_t part = block - s->block;
    (void)at;
    (void)n;
    if (!tp__is_factored(s)) return;
    const int64_t matrices = tp__matrices(s), columns = tp__slabs(s) > 1 ? matrices * s->cols : 0;
    for (int64_t i = tp__share(s, columns, part); i < tp__share(s, columns, part + 1); i++)
        finish_column(c, s, i);
    for (int64_t m = tp__share(s, matrices, part); m < tp__share(s, matrices, part + 1); m++)
        finish_rows(c, s, m);
}

/* ---- the update ---- */

/* Elements with mean square row * col[i]: the rest of a row, or part of a vector. */
typedef struct stretch {
    int64_t n;
    real row;
    const real *col;
} stretch;

/* The stretch from element i of the segment on, with at most n elements. */
static stretch stretch_at(const tp_call *c, const tp_segment *s, int64_t i, int64_t n)
{
    if (!tp__is_factored(s)) return (stretch){ n, 1, state(c, s, 2) + i };
    const int64_t row = i / s->cols, j = i % s->cols, rest = s->cols - j;
    const real *col = state(c, s, 1) + row / s->rows * s->cols + j;
    return (stretch){ rest < n ? rest : n, (real)work_of(c).row[s->own[0] + row], col };
}

/* NaN stays. */
static inline real update_of(real g, real square, real eps)
{
    const real root = r_sqrt(square);
    return g / (root < eps ? eps : root);
}

static void move_squares(const tp_call *c, const tp_segment *s, int64_t at, int64_t n)
{
    const real *restrict g = tp__gradient(s, at);
    real *restrict v = state(c, s, 2) + (at - s->at);
    const double k = scale_of_squares(c), weight = s->root;
    for (int64_t i = 0; i < n; i++) move(v + i, weight, k * (double)g[i] * (double)g[i]);
}

static void norms_block(const tp_call *c, const tp_segment *s, int64_t block, int64_t at, int64_t n)
{
    const tp_optim_attr *a = c->attr;
    const real scale = (real)a->scale, eps = (real)a->k[TP_ADAFACTOR_EPS1];
    const real *restrict p = (const real *)c->y[0].data + at;
    double uu = 0.0;
    if (!tp__is_factored(s)) move_squares(c, s, at, n);
    for (int64_t done = 0; done < n;) {
        const stretch t = stretch_at(c, s, at - s->at + done, n - done);
        const real *restrict g = tp__gradient(s, at + done);
#pragma omp simd reduction(+ : uu)
        for (int64_t i = 0; i < t.n; i++) {
            const double u = (double)update_of(scale * g[i], t.row * t.col[i], eps);
            uu += u * u;
        }
        done += t.n;
    }
    work_of(c).part[2 * block] = squares(p, n);
    work_of(c).part[2 * block + 1] = uu;
}

static void update_block(const tp_call *c, const tp_segment *s, int64_t block, int64_t at,
                         int64_t n)
{
    const tp_optim_attr *a = c->attr;
    const real scale = (real)a->scale, eps = (real)a->k[TP_ADAFACTOR_EPS1];
    const real rate = (real)work_of(c).factor[s - a->s.at], before = (real)s->before;
    (void)block;
    for (int64_t done = 0; done < n;) {
        const stretch t = stretch_at(c, s, at - s->at + done, n - done);
        const real *restrict g = tp__gradient(s, at + done);
        real *restrict p = (real *)c->y[0].data + at + done;
        for (int64_t i = 0; i < t.n; i++) {
            const real u = update_of(scale * g[i], t.row * t.col[i], eps);
            p[i] = p[i] - before * p[i] - rate * u;
        }
        done += t.n;
    }
}

static tp_code adafactor_step(const tp_call *c)
{
    const tp_optim_attr *a = c->attr;
    const tp_factored_work w = work_of(c);
    tp__for_blocks(c, sums_block);
    tp__for_blocks(c, finish_block);
    tp__for_blocks(c, norms_block);
    for (int64_t i = 0; i < a->s.n; i++) {
        const tp_segment *s = &a->s.at[i];
        const tp_block_sums sum = tp__block_sums(&a->s, w.part, i);
        w.factor[i] = tp__adafactor_rate(a->k, s, sum.a, sum.b);
    }
    tp__for_blocks(c, update_block);
    return TP_OK;
}

TP_CPU_KERNEL(adafactor_step)
