/* interpolate.c - resizes channels-last images.
 *
 * In forward a task is rows of outputs; in backward it is rows of inputs, which gather from the outputs
 * that read them, so each result has one writer. Vectorised over channels; the weights of an axis are
 * computed once a call. */
#include "tensor/geometry/interpolate.h"
#include "tensor/cpu/kit/real.h"
#include "tensor/geometry/whole.h"
#include "tensor/kernel.h"

/* The taps of an output of an axis. c->work: those of each output, rows first, made once a call. */
typedef struct resize_taps {
    double w[4];
    int64_t first;
} resize_taps;

static tp__resize resize_of(const tp_call *c, const tp_view *x)
{
    return tp__resize_of(c->attr, x);
}

static void make_taps(const tp__resize *g, resize_taps *taps)
{
    for (int i = 0; i < 2; i++)
        for (int64_t o = 0; o < g->axis[i].out; o++, taps++)
            tp__resize_weights(&g->axis[i], o, taps->w, &taps->first);
}

/* The weight of input i in the output with these taps; two taps may be the same input at an edge. */
static double weight_of(const tp__resize_axis *a, const resize_taps *t, int64_t i)
{
    double w = 0.0;
    for (int k = 0; k < a->taps; k++)
        if (tp__resize_inside(a, t->first + k) == i) w += t->w[k];
    return w;
}

/* to[i] = u p[i] + v q[i], i < n, or adds that if `adds` is set. */
TP_INLINE void blend(bool adds, real u, const real *p, real v, const real *q, int64_t n,
                     real *restrict to)
{
    for (int64_t i = 0; i < n; i++) to[i] = (adds ? to[i] + u * p[i] : u * p[i]) + v * q[i];
}

static void resize_rows(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const tp__resize g = resize_of(c, &c->x[0]);
    const tp__resize_axis *h = &g.axis[0], *w = &g.axis[1];
    const resize_taps *rows = c->work, *cols = rows + h->out;
    const int64_t C = g.channels;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const resize_taps *a = &rows[r % h->out];
        for (int64_t o = 0; o < w->out; o++) {
            const resize_taps *b = &cols[o];
            real *y = (real *)c->y[0].data + (r * w->out + o) * C;
            if (h->taps == 1) {
                const int64_t at = (r / h->out * h->in + a->first) * w->in + b->first;
                memcpy(y, (const real *)c->x[0].data + at * C, (size_t)C * sizeof *y);
                continue;
            }
            for (int i = 0; i < h->taps; i++) {
                const int64_t row = r / h->out * h->in + tp__resize_inside(h, a->first + i);
                const real *x = (const real *)c->x[0].data + row * w->in * C;
                for (int j = 0; j < w->taps; j += 2) /* 2 or 4 taps */
                    blend(i + j > 0, (real)(a->w[i] * b->w[j]),
                          x + tp__resize_inside(w, b->first + j) * C, (real)(a->w[i] * b->w[j + 1]),
                          x + tp__resize_inside(w, b->first + j + 1) * C, C, y);
            }
        }
    }
}

static tp_code interpolate_fwd(const tp_call *c)
{
    const tp__resize g = resize_of(c, &c->x[0]);
    if (c->y[0].numel == 0) return TP_OK;
    make_taps(&g, c->work);
    tp__for(c, g.batch * g.axis[0].out, 16384 / (g.axis[1].out * g.channels), resize_rows);
    return TP_OK;
}

/* Adds n rows of outputs, with these weights, to a row of inputs. */
static void collect_rows(const tp__resize *g, const resize_taps *cols, const real *weight,
                         const real *dy, int64_t n, real *dx)
{
    const tp__resize_axis *w = &g->axis[1];
    const int64_t C = g->channels, row = w->out * C;
    for (int64_t j = 0; j < w->in; j++) {
        int64_t first, end;
        tp__resize_readers(w, j, &first, &end);
        for (int64_t p = first; p < end; p++) {
            const real part = (real)weight_of(w, &cols[p], j), *from = dy + p * C;
            if (part == 0) continue;
            for (int64_t o = 0; o + 1 < n; o += 2)
                blend(true, part * weight[o], from + o * row, part * weight[o + 1],
                      from + (o + 1) * row, C, dx + j * C);
            if (n % 2)
                blend(true, part * weight[n - 1], from + (n - 1) * row, 0, from, C, dx + j * C);
        }
    }
}

static void resize_grad(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    enum { AT_ONCE = 8 };
    const tp__resize g = resize_of(c, &c->dx[0]);
    const tp__resize_axis *h = &g.axis[0], *w = &g.axis[1];
    const resize_taps *rows = c->work, *cols = rows + h->out;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const int64_t size = w->in * g.channels;
        real *dx = (real *)c->dx[0].data + r * size, weight[AT_ONCE];
        int64_t first, last;
        memset(dx, 0, (size_t)size * sizeof *dx);
        tp__resize_readers(h, r % h->in, &first, &last);
        for (int64_t o = first, n; o < last; o += n) {
            const int64_t from = (r / h->in * h->out + o) * w->out * g.channels;
            n = tp__least(AT_ONCE, last - o);
            for (int64_t i = 0; i < n; i++) weight[i] = (real)weight_of(h, &rows[o + i], r % h->in);
            collect_rows(&g, cols, weight, (const real *)c->dy[0].data + from, n, dx);
        }
    }
}

static tp_code interpolate_bwd(const tp_call *c)
{
    const tp__resize g = resize_of(c, &c->dx[0]);
    if (!c->dx[0].data || c->dx[0].numel == 0) return TP_OK;
    make_taps(&g, c->work);
    tp__for(c, g.batch * g.axis[0].in, 16384 / (g.axis[1].in * g.channels), resize_grad);
    return TP_OK;
}

static size_t interpolate_work(const tp_call *c)
{
    const tp__interpolate_attr *at = c->attr;
    return (size_t)(at->size[0] + at->size[1]) * sizeof(resize_taps);
}

TP_CPU_WORK(interpolate_work)
TP_CPU_KERNEL(interpolate_fwd)
TP_CPU_KERNEL(interpolate_bwd)
