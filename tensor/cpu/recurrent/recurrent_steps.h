/* recurrent_steps.h - how both directions of tp_lstm and tp_gru run through the steps of a chunk, and the rows that they
 * gather for it.
 *
 * Threads share the rows of the batch and run through a chunk without waiting for each other. If the batch is too small
 * for that, they share the units and meet after each step. Neither changes any bit. */
#ifndef TP_RECURRENT_STEPS_H
#define TP_RECURRENT_STEPS_H

#include <string.h>

#include "tensor/cpu/recurrent/recurrent_plan.h"

#define MIN_WORK                                                                                   \
    1.0e6 /* least multiply-adds of a thread's share of a step, if threads share units */

/* Rows first, first + stride, ... of the steps [s, end) and the panels [from, to). */
typedef struct part {
    const plan *p;
    int64_t s, end, base; /* base: the packed row at which the chunk begins */
    int64_t first, stride, from, to;
} part;

typedef void (*step_body)(const part *q, int64_t s);

typedef struct sharing {
    part q;
    step_body body;
    bool backward;
} sharing;

static inline void run_rows(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const sharing *h = ctx;
    (void)thread;
    for (int64_t k = begin; k < end; k++) {
        part q = h->q;
        q.first = k;
        for (int64_t s = q.s; s < q.end; s++) h->body(&q, h->backward ? q.end - 1 - (s - q.s) : s);
    }
}

static inline void run_panels(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const sharing *h = ctx;
    part q = h->q;
    (void)thread;
    q.from = begin;
    q.to = end;
    h->body(&q, q.s);
}

/* Runs a chunk of steps on all threads. */
static inline void run_steps(const plan *p, int64_t s, int64_t end, int64_t panels, bool backward,
                             step_body body)
{
    const int threads = p->c->dev->threads;
    sharing h = { { p, s, end, p->begin[s], 0, 1, 0, panels }, body, backward };
    const double work = (double)p->z.B * (double)p->z.H * (double)(p->z.gates * p->z.H);
    const int64_t least = ROWS_OF(p->z.gates);
    if (p->z.B >= threads * least || work < MIN_WORK * 2) {
        h.q.stride = tp__most(1, tp__least(threads, p->z.B / least));
        tp__parallel(p->c->dev, h.q.stride, 1, run_rows, &h);
        return;
    }
    const int64_t grain = tp__ceil_div(panels, threads);
    for (int64_t k = s; k < end; k++) {
        h.q.s = backward ? end - 1 - (k - s) : k;
        tp__parallel(p->c->dev, panels, grain, run_panels, &h);
    }
}

/* The number of rows of q among the first n. */
static inline int64_t own_rows(const part *q, int64_t n)
{
    return q->first < n ? tp__ceil_div(n - q->first, q->stride) : 0;
}

/* ---- gathering ---- */

/* Rows of p->x for the steps [s, end). */
typedef struct gathering {
    const plan *p;
    const real *from; /* [B*N,width]; NULL: h before each step */
    real *to;         /* scatter: receives the rows of p->x     */
    int64_t s, width;
    bool add;
} gathering;

static inline void gather_steps(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const gathering *g = ctx;
    const plan *p = g->p;
    const size_t bytes = (size_t)g->width * sizeof(real);
    (void)thread;
    for (int64_t s = g->s + begin; s < g->s + end; s++)
        for (int64_t i = 0; i < active(p, s); i++)
            memcpy(p->x + (p->begin[s] - p->begin[g->s] + i) * g->width,
                   g->from ? g->from + place(p, i, s) * g->width : h_before(p, i, s), bytes);
}

static inline void gather(const plan *p, const real *from, int64_t width, int64_t s, int64_t end)
{
    const gathering g = { .p = p, .from = from, .s = s, .width = width };
    tp__parallel(p->c->dev, end - s, tp__ceil_div(end - s, 8), gather_steps, &g);
}

#endif
