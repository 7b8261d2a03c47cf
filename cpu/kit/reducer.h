/* reducer.h - reductions over any set of axes, other than plain sums (fold.h).
 *
 * A reduction is a struct of functions over a state of a few doubles for each result. The broadcast
 * of the result into x determines what is contiguous: either rows whose n elements belong to one
 * result, or rows of n elements of n results. tp__fold cuts both into blocks by shape only, and the
 * blocks' states are joined in order, so results do not depend on the number of threads. x is read
 * once, in place. */
#ifndef TP_REDUCER_H
#define TP_REDUCER_H

#include "cpu/kit/real.h"
#include "tensor/geometry/broadcast.h"
#include "tensor/geometry/reduced.h"
#include "tensor/geometry/whole.h"
#include "tensor/kernel.h"

enum {
    REDUCER_STATE = 3,    /* most doubles per result */
    REDUCER_WIDTH = 1024, /* most adjacent results: FOLD_COLUMNS */
    REDUCER_TERMS = 512,  /* most terms of a sum in real before it is a double */
    REDUCER_ROWS = 64     /* the same for adjacent rows */
};

/* The states of n results lie in planes of n: s[k * n + j] is number k of result j. The terms of a
 * result are counted from 0 in row-major order of the reduced axes; `at` is the first given
 * term. */
typedef struct reducer {
    int state;
    double first[REDUCER_STATE]; /* the state of no terms */
    void (*row)(const tp_call *c, const void *x, int64_t n, int64_t at, double *s);
    /* Rows of n elements of n results, `step` elements apart. */
    void (*columns)(const tp_call *c, const void *x, int64_t step, int64_t rows, int64_t n,
                    int64_t at, double *s);
    void (*join)(double *s, const double *t, int64_t n); /* the terms of t follow those of s */
    /* Stores results i... */
    void (*finish)(const tp_call *c, const double *s, int64_t n, int64_t i);
    /* Stores results i... of contiguous rows of n elements. NULL: use row and finish. */
    void (*whole_rows)(const tp_call *c, const void *x, int64_t rows, int64_t n, int64_t i);
} reducer;

typedef struct reducer_job {
    const tp_call *c;
    const reducer *r;
    tp_fold_split f;
    int64_t pieces; /* of the results that a row meets */
    size_t size;    /* bytes of an element of x */
} reducer_job;

static inline int reduced_axes(const tp_call *c)
{
    return ((const tp_reduce_attr *)c->attr)->axes;
}

static inline tp_view reduced(const tp_call *c)
{
    return tp__reduced(&c->x[0], reduced_axes(c));
}

static inline const void *reducer_at(const reducer_job *job, int64_t i)
{
    return (const char *)job->c->x[0].data + i * (int64_t)job->size;
}

static inline void reduce_row(const reducer_job *job, int64_t at, int64_t first, int64_t last,
                              double *s)
{
    const tp_fold_split *f = &job->f;
    for (int64_t k = first; k < last; k++) {
        const int64_t row = f->pieces == 1 ? k : k / f->pieces,
                      piece = (k - row * f->pieces) * f->width;
        const int64_t i = at + tp__axes_at(&f->p.again, row) + piece;
        job->r->row(job->c, reducer_at(job, i), tp__least(f->width, f->p.n - piece),
                    row * f->p.n + piece, s);
    }
}

/* Reduces rows in order along the last repeated axis. */
static inline void reduce_columns(const reducer_job *job, int64_t at, int64_t first, int64_t last,
                                  int64_t n, double *s)
{
    for (int64_t k = first; k < last;) {
        const tp_even run = tp__even(&job->f.p.again, k, last);
        job->r->columns(job->c, reducer_at(job, at + run.at), run.step, run.items, n, k, s);
        k += run.items;
    }
}

static inline void reducer_clear(const reducer *r, double *s, int64_t n)
{
    for (int k = 0; k < r->state; k++)
        for (int64_t j = 0; j < n; j++) s[k * n + j] = r->first[k];
}

/* Results [i, i+n) of piece t (returns i); *at: the first x they meet. */
static inline int64_t reducer_piece(const reducer_job *job, int64_t t, int64_t *n, int64_t *at)
{
    const tp_bcast *p = &job->f.p;
    const int64_t row = job->pieces == 1 ? t : t / job->pieces;
    const int64_t j = (t - row * job->pieces) * job->f.width;
    *n = p->one ? 1 : tp__least(job->f.width, p->n - j);
    *at = tp__axes_at(&p->kept, row) + (p->one ? 0 : j);
    return p->one ? row : row * p->n + j;
}

static inline void reducer_tasks(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const reducer_job *job = ctx;
    const tp_fold_split *f = &job->f;
    const int64_t pieces = f->p.kept.count * job->pieces;
    double own[REDUCER_STATE * REDUCER_WIDTH];
    (void)thread;
    if (f->p.one && f->spans == 1 && job->r->whole_rows) {
        job->r->whole_rows(job->c, reducer_at(job, begin * f->p.n), end - begin, f->p.n, begin);
        return;
    }
    for (int64_t t = begin; t < end; t++) {
        int64_t n, at;
        const int64_t block = f->blocks == 1 ? 0 : t / pieces;
        const int64_t i = reducer_piece(job, t - block * pieces, &n, &at);
        const int64_t first = block * f->block, last = tp__least(first + f->block, f->spans);
        double *s = own;
        if (f->blocks > 1) s = (double *)job->c->work + (block * f->nb + i) * job->r->state;
        reducer_clear(job->r, s, n);
        if (f->p.one)
            reduce_row(job, at, first, last, s);
        else
            reduce_columns(job, at, first, last, n, s);
        if (f->blocks == 1) job->r->finish(job->c, s, n, i);
    }
}

static inline void reducer_join(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const reducer_job *job = ctx;
    const int64_t state = job->r->state;
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        int64_t n, at;
        const int64_t i = reducer_piece(job, t, &n, &at);
        double *s = (double *)job->c->work + i * state;
        for (int64_t k = 1; k < job->f.blocks; k++)
            job->r->join(s, (const double *)job->c->work + (k * job->f.nb + i) * state, n);
        job->r->finish(job->c, s, n, i);
    }
}

/* c->work: tp__reduce_work(c, r->state * sizeof(double)) bytes. */
static inline tp_code reduce(const tp_call *c, const reducer *r)
{
    const tp_view b = reduced(c);
    reducer_job job = { c, r, tp__fold(&c->x[0], &b), 1, tp_dtype_size(c->x[0].dtype) };
    const tp_fold_split *f = &job.f;
    if (c->y[0].numel == 0) return TP_OK;
    if (!f->p.one) job.pieces = f->pieces;
    const int64_t results = f->p.kept.count * job.pieces;
    tp__parallel(c->dev, f->blocks * results, 4 * TP_BLOCK / (f->width * f->block + 1),
                 reducer_tasks, &job);
    if (f->blocks > 1) tp__parallel(c->dev, results, 16, reducer_join, &job);
    return TP_OK;
}

#endif
