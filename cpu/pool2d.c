/* pool2d.c - max and average pooling of channels-last images.
 *
 * In forward a task is rows of outputs; in backward rows of inputs, which gather from the outputs
 * whose windows contain them, so each result has one writer. Vectorised over channels. */
#include "cpu/kit/real.h"
#include "tensor/geometry/pool.h"
#include "tensor/kernel.h"

enum { GRAIN = 16384 }; /* additions or comparisons worth a thread */

/* About how many inputs of an axis an output uses. */
static int64_t width(const tp__pool_axis *a)
{
    const int64_t w = a->kernel ? a->kernel : a->in / a->out + 1;
    return w < a->in ? w : a->in;
}

static tp__pool pool_of(const tp_call *c, const tp_view *x)
{
    return tp__pool_of(c->attr, x);
}

/* Runs body over rows of outputs, or of inputs. */
static void for_rows(const tp_call *c, const tp__pool *g, bool back, tp_call_body body)
{
    const tp__pool_axis *h = &g->axis[0], *w = &g->axis[1];
    const int64_t rows = g->batch * (back ? h->in : h->out);
    if (rows == 0 || w->in == 0 || g->channels == 0) return;
    const double steps = (double)g->batch * (double)(h->out * w->out) * (double)g->channels *
                         (double)width(h) * (double)width(w);
    const double grain = (double)GRAIN * (double)rows / steps;
    tp__for(c, rows, grain > 1 ? (int64_t)grain : 1, body);
}

/* Joins n channels at position p of an image with the largest so far. NaN counts as the largest. */
static inline void join(const real *x, int32_t p, int64_t n, real *restrict y, int32_t *restrict at)
{
    for (int64_t i = 0; i < n; i++) {
        const bool more = (!(x[i] <= y[i])) & (y[i] == y[i]);
        y[i] = more ? x[i] : y[i];
        at[i] = more ? p : at[i];
    }
}

static void max_rows(const tp_call *c, int64_t begin, int64_t end)
{
    const tp__pool g = pool_of(c, &c->x[0]);
    const int64_t C = g.channels, W = g.axis[1].in;
    for (int64_t r = begin; r < end; r++) {
        const real *x = (const real *)c->x[0].data + r / g.axis[0].out * g.axis[0].in * W * C;
        const tp__range h = tp__pool_window(&g.axis[0], r % g.axis[0].out);
        for (int64_t o = 0; o < g.axis[1].out; o++) {
            const tp__range w = tp__pool_window(&g.axis[1], o);
            const int64_t first = h.first * W + w.first;
            real *y = (real *)c->y[0].data + (r * g.axis[1].out + o) * C;
            int32_t *at = (int32_t *)c->y[1].data + (r * g.axis[1].out + o) * C;
            memcpy(y, x + first * C, (size_t)C * sizeof *y);
            for (int64_t i = 0; i < C; i++) at[i] = (int32_t)first;
            for (int64_t i = h.first; i < h.end; i++)
                for (int64_t j = w.first; j < w.end; j++)
                    join(x + (i * W + j) * C, (int32_t)(i * W + j), C, y, at);
        }
    }
}

static tp_code max_pool2d_fwd(const tp_call *c)
{
    const tp__pool g = pool_of(c, &c->x[0]);
    for_rows(c, &g, false, max_rows);
    return TP_OK;
}

static void max_grad(const tp_call *c, int64_t begin, int64_t end)
{
    const tp__pool g = pool_of(c, &c->dx[0]);
    const int64_t C = g.channels, H = g.axis[0].in, W = g.axis[1].in, across = g.axis[1].out;
    for (int64_t r = begin; r < end; r++) {
        const tp__range h = tp__pool_seen(&g.axis[0], r % H);
        for (int64_t j = 0; j < W; j++) {
            const tp__range w = tp__pool_seen(&g.axis[1], j);
            const int32_t here = (int32_t)(r % H * W + j);
            real *dx = (real *)c->dx[0].data + (r * W + j) * C;
            memset(dx, 0, (size_t)C * sizeof *dx);
            for (int64_t o = h.first; o < h.end; o++)
                for (int64_t p = w.first; p < w.end; p++) {
                    const int64_t from = ((r / H * g.axis[0].out + o) * across + p) * C;
                    const real *dy = (const real *)c->dy[0].data + from;
                    const int32_t *at = (const int32_t *)c->y[1].data + from;
                    for (int64_t i = 0; i < C; i++) dx[i] += at[i] == here ? dy[i] : 0;
                }
        }
    }
}

static tp_code max_pool2d_bwd(const tp_call *c)
{
    const tp__pool g = pool_of(c, &c->dx[0]);
    if (c->dx[0].data) for_rows(c, &g, true, max_grad);
    return TP_OK;
}

static void avg_rows(const tp_call *c, int64_t begin, int64_t end)
{
    const tp__pool g = pool_of(c, &c->x[0]);
    const int64_t C = g.channels, W = g.axis[1].in;
    for (int64_t r = begin; r < end; r++) {
        const real *x = (const real *)c->x[0].data + r / g.axis[0].out * g.axis[0].in * W * C;
        const int64_t row = r % g.axis[0].out;
        const tp__range h = tp__pool_window(&g.axis[0], row);
        const int64_t tall = tp__pool_count(&g, 0, row);
        for (int64_t o = 0; o < g.axis[1].out; o++) {
            const tp__range w = tp__pool_window(&g.axis[1], o);
            const real share = 1 / (real)(tall * tp__pool_count(&g, 1, o));
            real *restrict y = (real *)c->y[0].data + (r * g.axis[1].out + o) * C;
            memset(y, 0, (size_t)C * sizeof *y);
            for (int64_t i = h.first; i < h.end; i++)
                for (int64_t j = w.first; j < w.end; j++)
                    for (int64_t k = 0; k < C; k++) y[k] += x[(i * W + j) * C + k];
            for (int64_t k = 0; k < C; k++) y[k] *= share;
        }
    }
}

static tp_code avg_pool2d_fwd(const tp_call *c)
{
    const tp__pool g = pool_of(c, &c->x[0]);
    for_rows(c, &g, false, avg_rows);
    return TP_OK;
}

static void avg_grad(const tp_call *c, int64_t begin, int64_t end)
{
    const tp__pool g = pool_of(c, &c->dx[0]);
    const int64_t C = g.channels, H = g.axis[0].in, W = g.axis[1].in, across = g.axis[1].out;
    for (int64_t r = begin; r < end; r++) {
        const tp__range h = tp__pool_seen(&g.axis[0], r % H);
        for (int64_t j = 0; j < W; j++) {
            const tp__range w = tp__pool_seen(&g.axis[1], j);
            real *restrict dx = (real *)c->dx[0].data + (r * W + j) * C;
            memset(dx, 0, (size_t)C * sizeof *dx);
            for (int64_t o = h.first; o < h.end; o++) {
                const int64_t tall = tp__pool_count(&g, 0, o);
                const real *dy =
                    (const real *)c->dy[0].data + (r / H * g.axis[0].out + o) * across * C;
                for (int64_t p = w.first; p < w.end; p++) {
                    const real share = 1 / (real)(tall * tp__pool_count(&g, 1, p));
                    for (int64_t i = 0; i < C; i++) dx[i] += share * dy[p * C + i];
                }
            }
        }
    }
}

static tp_code avg_pool2d_bwd(const tp_call *c)
{
    const tp__pool g = pool_of(c, &c->dx[0]);
    if (c->dx[0].data) for_rows(c, &g, true, avg_grad);
    return TP_OK;
}

TP_CPU_KERNEL(max_pool2d_fwd)
TP_CPU_KERNEL(max_pool2d_bwd)
TP_CPU_KERNEL(avg_pool2d_fwd)
TP_CPU_KERNEL(avg_pool2d_bwd)
