/* dropout.c - y = m x and y = residual + m (x + b); m is 1/(1-p) if the element's word is at least
 * p 2^32, else 0; rows [R,C].
 *
 * Backward recomputes the mask from the random stream, which costs less than storing and reading
 * it. The gradient of b, the column sums of m dy, is summed in fixed blocks of rows. */
#include "cpu/kit/philox_words.h"
#include "cpu/kit/real.h"
#include "cpu/kit/row_blocks.h"
#include "tensor/kernel.h"

typedef struct mask {
    uint32_t below; /* 0: all is kept, no words are needed */
    real scale;
    tp_words words;
} mask;

static mask mask_of(const tp_call *c)
{
    const double p = c->train ? *(const double *)c->attr : 0.0;
    return (mask){ .below = tp__drop_below(p),
                   .scale = (real)(1.0 / (1.0 - p)),
                   .words = { .rng = c->rng, .group = -1 } };
}

/* Like tp__words_at; zeros if everything is kept. */
static inline const uint32_t *mask_at(mask *m, int64_t e, int64_t *n)
{
    if (m->below) return tp__words_at(&m->words, e, n);
    if (*n > TP_PHILOX_WORDS) *n = TP_PHILOX_WORDS;
    return m->words.w;
}

/* Prefetches the elements of x[0..end) after the next group of words from e on. Computing words
 * reads nothing, so hardware prefetching stops: without this the loop waits for memory, and a
 * dropout of 16 MB takes three times as long. */
static inline void fetch_next(const real *x, int64_t e, int64_t end)
{
    const int64_t from = e + TP_PHILOX_WORDS, stop = from + TP_PHILOX_WORDS;
    for (int64_t i = from; i < (stop < end ? stop : end); i += 64 / (int64_t)sizeof *x)
        __builtin_prefetch(x + i);
}

/* ---- dropout ---- */

static void drop(const tp_call *c, const real *x, real *y, int64_t begin, int64_t end)
{
    mask m = mask_of(c);
    for (int64_t e = begin, n; e < end; e += n) {
        n = end - e;
        fetch_next(x, e, end);
        const uint32_t *w = mask_at(&m, e, &n);
        for (int64_t i = 0; i < n; i++) y[e + i] = w[i] >= m.below ? x[e + i] * m.scale : RC(0.0);
    }
}

static void dropout_fwd_range(const tp_call *c, int64_t begin, int64_t end)
{
    drop(c, c->x[0].data, c->y[0].data, begin, end);
}

static void dropout_bwd_range(const tp_call *c, int64_t begin, int64_t end)
{
    drop(c, c->dy[0].data, c->dx[0].data, begin, end);
}

static tp_code dropout_fwd(const tp_call *c)
{
    tp__for(c, c->x[0].numel, 4 * TP_BLOCK, dropout_fwd_range);
    return TP_OK;
}

static tp_code dropout_bwd(const tp_call *c)
{
    if (c->dx[0].data) tp__for(c, c->x[0].numel, 4 * TP_BLOCK, dropout_bwd_range);
    return TP_OK;
}

/* ---- residual + dropout(x + b) ---- */

/* n elements of one row. */
static inline void add_piece(int64_t n, const uint32_t *restrict w, const mask *m,
                             const real *restrict x, const real *restrict b,
                             const real *restrict residual, real *restrict y)
{
    if (b)
        for (int64_t i = 0; i < n; i++)
            y[i] = residual[i] + (w[i] >= m->below ? (x[i] + b[i]) * m->scale : RC(0.0));
    else
        for (int64_t i = 0; i < n; i++)
            y[i] = residual[i] + (w[i] >= m->below ? x[i] * m->scale : RC(0.0));
}

static void dropout_add_rows(const tp_call *c, int64_t begin, int64_t end)
{
    const real *x = c->x[0].data, *b = c->x[1].data, *residual = c->x[2].data;
    const int64_t C = c->x[0].dim[c->x[0].ndim - 1];
    real *y = c->y[0].data;
    mask m = mask_of(c);
    for (int64_t r = begin; r < end; r++)
        for (int64_t j = 0, n; j < C; j += n) {
            const int64_t e = r * C + j;
            n = C - j;
            fetch_next(x, e, end * C);
            fetch_next(residual, e, end * C);
            const uint32_t *w = mask_at(&m, e, &n);
            add_piece(n, w, &m, x + e, b ? b + j : NULL, residual + e, y + e);
        }
}

static tp_code dropout_add_fwd(const tp_call *c)
{
    const tp_view *x = &c->x[0];
    if (x->numel == 0) return TP_OK;
    const int64_t C = x->dim[x->ndim - 1];
    tp__for(c, x->numel / C, 1 + 4 * TP_BLOCK / C, dropout_add_rows);
    return TP_OK;
}

/* dx = m dy and db += m dy, if wanted, for n elements of one row. */
static inline void grad_piece(int64_t n, const uint32_t *restrict w, const mask *m,
                              const real *restrict dy, real *restrict dx, real *restrict db)
{
    const uint32_t below = m->below;
    const real scale = m->scale;
    for (int64_t i = 0; dx && i < n; i++) dx[i] = w[i] >= below ? dy[i] * scale : RC(0.0);
    for (int64_t i = 0; db && i < n; i++) db[i] += w[i] >= below ? dy[i] * scale : RC(0.0);
}

/* Blocks of rows; the partial sums of db are rows of c->work. */
static void dropout_add_blocks(const tp_call *c, int64_t begin, int64_t end)
{
    const int64_t C = c->x[0].dim[c->x[0].ndim - 1], rows = c->x[0].numel / C;
    const int64_t step = tp__block_rows(rows);
    const real *dy = c->dy[0].data;
    real *dx = c->dx[0].data;
    mask m = mask_of(c);
    for (int64_t k = begin; k < end; k++) {
        real *db = c->dx[1].data ? (real *)c->work + k * C : NULL;
        const int64_t last = (k + 1) * step < rows ? (k + 1) * step : rows;
        if (db) memset(db, 0, (size_t)C * sizeof *db);
        for (int64_t r = k * step; r < last; r++)
            for (int64_t j = 0, n; j < C; j += n) {
                const int64_t e = r * C + j;
                n = C - j;
                fetch_next(dy, e, last * C);
                const uint32_t *w = mask_at(&m, e, &n);
                grad_piece(n, w, &m, dy + e, dx ? dx + e : NULL, db ? db + j : NULL);
            }
    }
}

static void copy_range(const tp_call *c, int64_t begin, int64_t end)
{
    const real *dy = c->dy[0].data;
    real *dx = c->dx[2].data;
    memcpy(dx + begin, dy + begin, (size_t)(end - begin) * sizeof *dx);
}

static tp_code dropout_add_bwd(const tp_call *c)
{
    const tp_view *x = &c->x[0], *db = &c->dx[1];
    const int64_t C = x->dim[x->ndim - 1], blocks = tp__row_blocks(C ? x->numel / C : 0);

    if (C && (c->dx[0].data || db->data)) tp__for(c, blocks, 1, dropout_add_blocks);
    if (db->data) tp__add_blocks(db->data, false, C, c->work, blocks, C);
    if (c->dx[2].data) tp__for(c, x->numel, 4 * TP_BLOCK, copy_range);
    return TP_OK;
}

static size_t dropout_add_work(const tp_call *c)
{
    const tp_view *x = &c->x[0], *b = &c->x[1];
    if (!tp_is_backward(c) || tp_absent(b) || b->dim[0] == 0) return 0;
    return (size_t)(tp__row_blocks(x->numel / b->dim[0]) * b->dim[0]) * sizeof(double);
}

TP_CPU_WORK(dropout_add_work)
TP_CPU_KERNEL(dropout_fwd)
TP_CPU_KERNEL(dropout_bwd)
TP_CPU_KERNEL(dropout_add_fwd)
TP_CPU_KERNEL(dropout_add_bwd)
