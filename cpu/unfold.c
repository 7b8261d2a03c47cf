/* unfold.c - the windows of maps, and sums of windows; each is the gradient of the other.
 *
 * With dilation 1 the taps of a window row are adjacent in the map: they move together, clipped at
 * the edges. Sums gather: the thread that owns some positions of a row of the map adds all window
 * rows that meet them, in a fixed order. */
#include "tensor/geometry/unfold.h"
#include "cpu/kit/real.h"
#include "tensor/kernel.h"

#define GRAIN (8 * TP_BLOCK) /* elements */

typedef struct job {
    tp__unfold g;
    const char *from;
    char *to;
    int64_t unit; /* bytes of a position */
} job;

static job job_of(const tp_call *c, const tp_view *map, const tp_view *from, const tp_view *to)
{
    job j = { tp__unfold_of(c->attr, map), from->data, to->data, 0 };
    j.unit = j.g.channels * (int64_t)tp_dtype_size(map->dtype);
    return j;
}

/* ---- windows of a map ---- */

/* Row `row` of the map at the taps of window o: one window row. */
static void copy_row(const job *j, char *to, const char *row, int64_t o)
{
    const tp__conv_axis *a = &j->g.axis[1];
    const tp__range k = tp__unfold_taps(a, o, 0, a->in);
    const int64_t n = k.end - k.first, at = o * a->stride - a->pad + k.first * a->dilation;
    memset(to, 0, (size_t)(k.first * j->unit));
    memset(to + k.end * j->unit, 0, (size_t)((a->taps - k.end) * j->unit));
    to += k.first * j->unit;
    if (n > 0 && a->dilation == 1) memcpy(to, row + at * j->unit, (size_t)(n * j->unit));
    for (int64_t i = 0; i < n && a->dilation > 1; i++)
        memcpy(to + i * j->unit, row + (at + i * a->dilation) * j->unit, (size_t)j->unit);
}

/* Windows [begin, end). */
static void unfold_range(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const job *j = ctx;
    const tp__conv_axis *h = &j->g.axis[0], *w = &j->g.axis[1];
    const int64_t bytes = w->taps * j->unit; /* per window row */
    (void)thread;
    for (int64_t p = begin; p < end; p++) {
        const int64_t image = p / w->out / h->out, o = p / w->out % h->out;
        const tp__range k = tp__unfold_taps(h, o, 0, h->in);
        char *to = j->to + p * h->taps * bytes;
        memset(to, 0, (size_t)(k.first * bytes));
        memset(to + k.end * bytes, 0, (size_t)((h->taps - k.end) * bytes));
        for (int64_t i = k.first; i < k.end; i++) {
            const int64_t row = image * h->in + o * h->stride - h->pad + i * h->dilation;
            copy_row(j, to + i * bytes, j->from + row * w->in * j->unit, p % w->out);
        }
    }
}

static tp_code unfold(const tp_call *c, const tp_view *from, const tp_view *to)
{
    if (!to->data || to->numel == 0) return TP_OK;
    const job j = job_of(c, from, from, to);
    const int64_t windows = j.g.batch * j.g.axis[0].out * j.g.axis[1].out;
    tp__parallel(c->dev, windows, 1 + GRAIN / (to->numel / windows), unfold_range, &j);
    return TP_OK;
}

/* ---- sums of windows ---- */

static void add(real *restrict to, const real *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] += from[i];
}

/* Adds row `from` of window o to positions [lo, hi) of a row of the map. */
static void add_row(const tp__unfold *g, real *row, const real *from, int64_t o, int64_t lo,
                    int64_t hi)
{
    const tp__conv_axis *a = &g->axis[1];
    const int64_t C = g->channels, base = o * a->stride - a->pad;
    const tp__range k = tp__unfold_taps(a, o, lo, hi);
    if (a->dilation == 1 && k.first < k.end)
        add(row + (base + k.first) * C, from + k.first * C, (k.end - k.first) * C);
    for (int64_t i = k.first; i < k.end && a->dilation > 1; i++)
        add(row + (base + i * a->dilation) * C, from + i * C, C);
}

/* Positions [begin, end) of the maps. */
static void fold_range(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const job *j = ctx;
    const tp__conv_axis *h = &j->g.axis[0], *w = &j->g.axis[1];
    const int64_t n = w->taps * j->g.channels; /* elements per window row */
    (void)thread;
    for (int64_t p = begin, hi; p < end; p += hi - p % w->in) {
        const int64_t line = p / w->in, image = line / h->in, y = line % h->in, lo = p % w->in;
        real *row = (real *)j->to + line * w->in * j->g.channels;
        hi = tp__least(w->in, lo + end - p);
        memset(row + lo * j->g.channels, 0, (size_t)((hi - lo) * j->unit));
        const tp__range rows = tp__unfold_seen(h, y, y + 1), cols = tp__unfold_seen(w, lo, hi);
        for (int64_t o = rows.first; o < rows.end; o++) {
            const tp__range tap = tp__unfold_taps(h, o, y, y + 1); /* one or none */
            const real *from =
                (const real *)j->from + ((image * h->out + o) * w->out * h->taps + tap.first) * n;
            for (int64_t i = cols.first; i < cols.end && tap.first < tap.end; i++)
                add_row(&j->g, row, from + i * h->taps * n, i, lo, hi);
        }
    }
}

static tp_code fold(const tp_call *c, const tp_view *from, const tp_view *to)
{
    if (!to->data || to->numel == 0) return TP_OK;
    const job j = job_of(c, to, from, to);
    const int64_t positions = to->numel / j.g.channels;
    const int64_t sums = (from->numel + to->numel) / positions;
    tp__parallel(c->dev, positions, 1 + GRAIN / sums, fold_range, &j);
    return TP_OK;
}

/* ---- the ops ---- */

static tp_code unfold_fwd(const tp_call *c)
{
    return unfold(c, &c->x[0], &c->y[0]);
}

static tp_code unfold_bwd(const tp_call *c)
{
    return fold(c, &c->dy[0], &c->dx[0]);
}

static tp_code fold_fwd(const tp_call *c)
{
    return fold(c, &c->x[0], &c->y[0]);
}

static tp_code fold_bwd(const tp_call *c)
{
    return unfold(c, &c->dy[0], &c->dx[0]);
}

TP_CPU_KERNEL_UNTYPED(unfold_fwd)
TP_CPU_KERNEL(unfold_bwd)
TP_CPU_KERNEL(fold_fwd)
TP_CPU_KERNEL_UNTYPED(fold_bwd)
