/* gather.c - gather and scatter_add along an axis, each the backward of the other.
 *
 * The index consists of lines along the axis. A line reads from or adds to one line of the larger
 * tensor, in order: lines are independent, so results do not depend on the number of threads. */
#include <stdio.h>

#include "cpu/kit/real.h"
#include "tensor/geometry/index.h"
#include "tensor/kernel.h"
#include "tensor/shape.h"

/* Lines of the index and of the larger tensor along the axis. */
typedef struct lines {
    const tp_view *index;
    int axis;
    int64_t count, length, step, big_step; /* steps along a line */
    int64_t big_stride[TP_MAX_DIMS];
} lines;

static lines lines_of(const tp_call *c)
{
    const tp_view *big = &c->x[0], *index = &c->x[1];
    lines l = { .index = index, .axis = tp__axis(big->ndim, *(const int *)c->attr), .count = 1 };
    int64_t step = 1, big_step = 1;
    for (int d = index->ndim - 1; d >= 0; d--) {
        l.big_stride[d] = big_step;
        if (d == l.axis) {
            l.length = index->dim[d];
            l.step = step;
            l.big_step = big_step;
        } else {
            l.count *= index->dim[d];
        }
        step *= index->dim[d];
        big_step *= big->dim[d];
    }
    return l;
}

/* The offsets of line k in the index and in the larger tensor. */
static void line_at(const lines *l, int64_t k, int64_t *at, int64_t *big_at)
{
    int64_t step = 1;
    *at = *big_at = 0;
    for (int d = l->index->ndim - 1; d >= 0; d--) {
        if (d != l->axis) {
            const int64_t i = k % l->index->dim[d];
            k /= l->index->dim[d];
            *at += i * step;
            *big_at += i * l->big_stride[d];
        }
        step *= l->index->dim[d];
    }
}

static tp_code check_index(const tp_call *c, const lines *l)
{
    const int64_t size = c->x[0].dim[l->axis], bad = tp__first_outside(l->index, 0, size);
    if (bad < 0) return TP_OK;
    snprintf(c->why, TP_WHY, "index %lld at position %lld, but axis %d has size %lld",
             (long long)tp__index(l->index, bad), (long long)bad, l->axis, (long long)size);
    return TP_E_VALUE;
}

typedef struct job {
    lines l;
    const real *from;
    real *to;
} job;

/* to[i] = from[index[i]] */
static void take(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const job *j = ctx;
    (void)thread;
    for (int64_t k = begin; k < end; k++) {
        int64_t at, big_at;
        line_at(&j->l, k, &at, &big_at);
        for (int64_t i = 0; i < j->l.length; i++, at += j->l.step)
            j->to[at] = j->from[big_at + tp__index(j->l.index, at) * j->l.big_step];
    }
}

/* to[index[i]] += from[i] */
static void put(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const job *j = ctx;
    (void)thread;
    for (int64_t k = begin; k < end; k++) {
        int64_t at, big_at;
        line_at(&j->l, k, &at, &big_at);
        for (int64_t i = 0; i < j->l.length; i++, at += j->l.step)
            j->to[big_at + tp__index(j->l.index, at) * j->l.big_step] += j->from[at];
    }
}

static void each_line(const tp_call *c, tp_body body, const void *from, void *to)
{
    const job j = { lines_of(c), from, to };
    tp__parallel(c->dev, j.l.count, 1 + TP_BLOCK / (j.l.length + 1), body, &j);
}

static tp_code gather_fwd(const tp_call *c)
{
    const lines l = lines_of(c);
    const tp_code code = check_index(c, &l);
    if (code == TP_OK) each_line(c, take, c->x[0].data, c->y[0].data);
    return code;
}

static tp_code gather_bwd(const tp_call *c)
{
    const tp_view *dx = &c->dx[0];
    if (!dx->data) return TP_OK;
    memset(dx->data, 0, (size_t)dx->numel * sizeof(real));
    each_line(c, put, c->dy[0].data, dx->data);
    return TP_OK;
}

static tp_code scatter_add_fwd(const tp_call *c)
{
    const lines l = lines_of(c);
    const tp_code code = check_index(c, &l);
    if (code != TP_OK || c->y[0].numel == 0) return code;
    memcpy(c->y[0].data, c->x[0].data, (size_t)c->y[0].numel * sizeof(real));
    each_line(c, put, c->x[2].data, c->y[0].data);
    return TP_OK;
}

static tp_code scatter_add_bwd(const tp_call *c)
{
    const tp_view *dy = &c->dy[0], *dx = &c->dx[0];
    if (dx->data && dx->numel) memcpy(dx->data, dy->data, (size_t)dx->numel * sizeof(real));
    if (c->dx[2].data) each_line(c, take, dy->data, c->dx[2].data);
    return TP_OK;
}

TP_CPU_KERNEL(gather_fwd)
TP_CPU_KERNEL(gather_bwd)
TP_CPU_KERNEL(scatter_add_fwd)
TP_CPU_KERNEL(scatter_add_bwd)
