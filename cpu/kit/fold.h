/* fold.h - sums over the broadcast of an operand b: out[b] = sum of x[a], or of x[a] w[a], over the
 * elements of a that b[b] broadcasts to.
 *
 * Terms not stored in an array are computed by a function, in pieces that stay in cache.
 *
 * It serves sum, mean and the gradients of small operands. broadcast.h splits the sums by shape
 * only, so results do not depend on the number of threads. No temporary has the size of a. */
#ifndef TP_FOLD_H
#define TP_FOLD_H

#include "cpu/kit/real.h"
#include "cpu/kit/sums.h"
#include "tensor/geometry/broadcast.h"
#include "tensor/kernel.h"

/* Writes the terms of elements [begin, end) of a to out. */
typedef void (*fold_terms)(const void *ctx, int64_t begin, int64_t end, real *out);

typedef struct fold_job {
    const tp_fold_split *f;
    const real *x, *w; /* w: NULL, or factors of x */
    real *out;         /* [blocks][nb] */
    fold_terms terms;  /* or NULL: replaces x */
    const void *ctx;
} fold_job;

enum { FOLD_PIECE = 1024 }; /* terms computed at once; a multiple of fold_dot's runs */

/* Returns n terms from element i on; n <= FOLD_PIECE if they are computed. */
static inline const real *fold_from(const fold_job *job, int64_t i, int64_t n, real *room)
{
    if (!job->terms) return job->x + i;
    job->terms(job->ctx, i, i + n, room);
    return room;
}

/* Adds short runs in float and their sums in double: float is too imprecise for thousands. */
static inline double fold_dot(const real *x, const real *w, int64_t n)
{
    double sum = 0.0;
    for (int64_t begin = 0; begin < n; begin += 512) {
        const int64_t some = begin + 512 < n ? 512 : n - begin;
        sum += (double)(w ? dot_of(x + begin, w + begin, some) : sum_of(x + begin, some));
    }
    return sum;
}

static inline void fold_add(real *restrict to, const real *x, const real *w, int64_t n)
{
    if (w)
        for (int64_t i = 0; i < n; i++) to[i] += x[i] * w[i];
    else
        for (int64_t i = 0; i < n; i++) to[i] += x[i];
}

/* Adds rows `step` elements apart. Four at once save three passes over the sums. */
static inline void fold_add_rows(real *restrict to, const real *x, int64_t step, int64_t rows,
                                 int64_t n)
{
    for (; rows >= 4; rows -= 4, x += 4 * step) {
        const real *a = x, *b = a + step, *c = b + step, *d = c + step;
        for (int64_t i = 0; i < n; i++) to[i] += (a[i] + b[i]) + (c[i] + d[i]);
    }
    for (; rows > 0; rows--, x += step) fold_add(to, x, NULL, n);
}

/* Sums onto one element of b, which a whole row of a meets. Spans are pieces of rows. */
static inline real fold_one(const fold_job *job, int64_t at, int64_t first, int64_t last)
{
    const tp_fold_split *f = job->f;
    real room[FOLD_PIECE];
    double sum = 0.0;
    for (int64_t s = first; s < last; s++) {
        const int64_t piece = s % f->pieces * f->width, left = f->p.n - piece;
        const int64_t i = at + tp__axes_at(&f->p.again, s / f->pieces) + piece;
        const int64_t n = left < f->width ? left : f->width, step = job->terms ? FOLD_PIECE : n;
        for (int64_t k = 0; k < n; k += step) {
            const int64_t m = step < n - k ? step : n - k;
            sum += fold_dot(fold_from(job, i + k, m, room), job->w ? job->w + i + k : NULL, m);
        }
    }
    return (real)sum;
}

/* Sums onto n consecutive elements of b at once. Spans are rows. */
static inline void fold_columns(const fold_job *job, int64_t at, int64_t first, int64_t last,
                                real *to, int64_t n)
{
    real room[FOLD_PIECE]; /* n is at most tp_fold_split's piece width, which fits */
    memset(to, 0, (size_t)n * sizeof *to);
    for (int64_t s = first; s < last;) {
        const tp_even run = tp__even(&job->f->p.again, s, last);
        s += run.items;
        if (!job->terms && !job->w) {
            fold_add_rows(to, job->x + at + run.at, run.step, run.items, n);
            continue;
        }
        for (int64_t k = 0, i = at + run.at; k < run.items; k++, i += run.step)
            fold_add(to, fold_from(job, i, n, room), job->w ? job->w + i : NULL, n);
    }
}

/* Sums `rows` rows of a constant, small number of elements. */
TP_INLINE void fold_short_rows(const real *restrict x, int64_t rows, int n, real *restrict out)
{
    for (int64_t r = 0; r < rows; r++) {
        real sum = x[r * n];
        for (int i = 1; i < n; i++) sum += x[r * n + i];
        out[r] = sum;
    }
}

/* Sums contiguous rows of n elements. w: factors, or NULL. */
static inline void fold_rows(const real *restrict x, const real *w, int64_t rows, int64_t n,
                             real *restrict out)
{
    switch (w ? 0 : n) {
    case 2: fold_short_rows(x, rows, 2, out); break;
    case 3: fold_short_rows(x, rows, 3, out); break;
    case 4: fold_short_rows(x, rows, 4, out); break;
    case 8: fold_short_rows(x, rows, 8, out); break;
    default:
        for (int64_t r = 0; r < rows; r++)
            out[r] = (real)fold_dot(x + r * n, w ? w + r * n : NULL, n);
    }
}

/* A task is one block of spans for one element, or one piece of a row, of b. */
static inline void fold_tasks(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const fold_job *job = ctx;
    const tp_fold_split *f = job->f;
    const tp_bcast *p = &f->p;
    const int64_t pieces = p->one ? 1 : f->pieces;
    (void)thread;
    if (p->one && f->spans == 1 && !job->terms) { /* contiguous rows, one task each */
        fold_rows(job->x + begin * p->n, job->w ? job->w + begin * p->n : NULL, end - begin, p->n,
                  job->out + begin);
        return;
    }
    for (int64_t t = begin; t < end; t++) {
        const int64_t j = t % pieces * f->width, row = t / pieces % p->kept.count;
        const int64_t block = t / pieces / p->kept.count, first = block * f->block;
        const int64_t last = first + f->block < f->spans ? first + f->block : f->spans;
        const int64_t at = tp__axes_at(&p->kept, row);
        real *out = job->out + block * f->nb;
        if (p->one) {
            out[row] = fold_one(job, at, first, last);
        } else {
            const int64_t n = p->n - j < f->width ? p->n - j : f->width;
            fold_columns(job, at + j, first, last, out + row * p->n + j, n);
        }
    }
}

static inline void fold_all(const tp_call *c, const tp_view *a, const tp_view *b, fold_job job,
                            real *out)
{
    const tp_fold_split f = tp__fold(a, b);
    job.f = &f;
    job.out = f.blocks > 1 ? c->work : out;
    const int64_t tasks = f.blocks * f.p.kept.count * (f.p.one ? 1 : f.pieces);
    tp__parallel(c->dev, tasks, 4 * TP_BLOCK / (f.width * f.block + 1), fold_tasks, &job);
    if (f.blocks == 1) return;
    for (int64_t i = 0; i < f.nb; i++) {
        double sum = 0.0;
        for (int64_t k = 0; k < f.blocks; k++) sum += (double)job.out[k * f.nb + i];
        out[i] = (real)sum;
    }
}

/* x and w have shape a, out has shape b; only the shapes of the views a and b are read. */
static inline void fold(const tp_call *c, const tp_view *a, const tp_view *b, const real *x,
                        const real *w, real *out)
{
    fold_all(c, a, b, (fold_job){ .x = x, .w = w }, out);
}

/* The same for computed terms. */
static inline void fold_computed(const tp_call *c, const tp_view *a, const tp_view *b,
                                 fold_terms terms, const void *ctx, real *out)
{
    fold_all(c, a, b, (fold_job){ .terms = terms, .ctx = ctx }, out);
}

#endif
