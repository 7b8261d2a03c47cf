/* remap.c - flip and pad_nd: y is made of stretches of x (geometry/remap.h).
 *
 * The elements at an index of the last axis stay together as a unit. Forward visits the units of y:
 * a forward stretch is one memcpy, as is a unit in any order. Backward gathers: the thread that
 * owns some units of a row of dx adds all stretches of dy that came from them, in a fixed order. */
#include "tensor/geometry/remap.h"
#include "cpu/kit/copies.h"
#include "cpu/kit/real.h"
#include "tensor/geometry/whole.h"
#include "tensor/kernel.h"
#include "tensor/shape.h"

#define GRAIN (8 * TP_BLOCK) /* elements */

typedef struct job {
    tp_remap m;
    const char *from;
    char *to;
    int64_t size;      /* per element */
    const void *value; /* in gaps */
} job;

static job job_of(tp_remap m, const tp_view *from, const tp_view *to, const void *value)
{
    job j = { .m = m, .from = from->data, .to = to->data, .value = value };
    j.size = (int64_t)tp_dtype_size(to->dtype);
    if (m.inner > GRAIN && m.n < TP_MAX_DIMS) { /* threads share long units */
        j.m.axis[j.m.n++] = (tp_remap_axis){ .nx = m.inner,
                                             .ny = m.inner,
                                             .x_stride = 1,
                                             .y_stride = 1,
                                             .part[TP_MIDDLE] = { 0, 0, m.inner, 1 } };
        j.m.inner = 1;
    }
    return j;
}

/* ---- forward ---- */

/* Copies n units of a constant number of bytes, the source backwards. */
TP_INLINE void copy_fixed_back(char *restrict to, const char *restrict from, int64_t bytes,
                               int64_t n)
{
    for (int64_t i = 0; i < n; i++) memcpy(to + i * bytes, from - i * bytes, (size_t)bytes);
}

static void copy_back(char *restrict to, const char *restrict from, int64_t unit, int64_t n)
{
    switch (unit) {
    case 1: copy_fixed_back(to, from, 1, n); break;
    case 4: copy_fixed_back(to, from, 4, n); break;
    case 8: copy_fixed_back(to, from, 8, n); break;
    case 12: copy_fixed_back(to, from, 12, n); break;
    case 16: copy_fixed_back(to, from, 16, n); break;
    default: copy_fixed_back(to, from, unit, n);
    }
}

/* The element of x where row `row` of y begins, or -1 if the row is constant. */
static int64_t row_from(const tp_remap *m, int64_t row)
{
    int64_t at = 0;
    for (int k = m->n - 2; k >= 0; k--) {
        const int64_t x = tp__remap_source(&m->axis[k], row % m->axis[k].ny).x;
        row /= m->axis[k].ny;
        if (x < 0) return -1;
        at += x * m->axis[k].x_stride;
    }
    return at;
}

static void remap_range(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const job *j = ctx;
    const tp_remap_axis *const last = &j->m.axis[j->m.n - 1];
    const int64_t unit = j->m.inner * j->size;
    int64_t row = begin / last->ny, i = begin % last->ny;
    (void)thread;
    for (int64_t u = begin, n; u < end; row++, i = 0) {
        const int64_t at = row_from(&j->m, row);
        for (; i < last->ny && u < end; i += n, u += n) {
            const tp_remap_source s = tp__remap_source(last, i);
            char *const to = j->to + u * unit;
            const bool gap = at < 0 || s.x < 0;
            const char *const from = gap ? NULL : j->from + at * j->size + s.x * unit;
            n = tp__least(at < 0 ? last->ny - i : s.left, end - u);
            if (gap)
                tp__repeat(to, j->value, j->size, n * j->m.inner);
            else if (s.step > 0)
                memcpy(to, from, (size_t)(n * unit));
            else if (s.step < 0)
                copy_back(to, from, unit, n);
            else
                tp__repeat(to, from, unit, n);
        }
    }
}

static void remap(const tp_call *c, tp_remap m, const tp_view *from, const tp_view *to,
                  double value)
{
    uint64_t element = 0;
    if (to->numel == 0) return;
    tp_st(&(tp_view){ .data = &element, .dtype = to->dtype }, 0, value);
    const job j = job_of(m, from, to, &element);
    tp__parallel(c->dev, to->numel / j.m.inner, 1 + GRAIN / j.m.inner, remap_range, &j);
}

/* ---- backward ---- */

static void add(real *restrict to, const real *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] += from[i];
}

/* Adds what the stretch took from units [begin, end) of a row of dx. */
static void add_stretch(real *dx, const real *dy, const tp_stretch *t, int64_t inner, int64_t begin,
                        int64_t end)
{
    const int64_t least = t->step < 0 ? t->x - t->n + 1 : t->x;
    const int64_t most = t->step == 0 ? t->x + 1 : least + t->n;
    begin = tp__most(begin, least);
    end = tp__least(end, most);
    if (t->n == 0 || begin >= end) return;
    if (t->step > 0)
        add(dx + begin * inner, dy + (t->y + begin - t->x) * inner, (end - begin) * inner);
    else if (t->step < 0)
        for (int64_t i = begin; i < end; i++)
            add(dx + i * inner, dy + (t->y + t->x - i) * inner, inner);
    else
        for (int64_t k = 0; k < t->n; k++) add(dx + t->x * inner, dy + (t->y + k) * inner, inner);
}

/* The same for a row of dy; stores the first one. */
static void add_row(const job *j, real *dx, const real *dy, int64_t begin, int64_t end, bool first)
{
    const tp_stretch *const part = j->m.axis[j->m.n - 1].part;
    const int64_t inner = j->m.inner, at = part[TP_MIDDLE].y;
    if (first)
        memcpy(dx + begin * inner, dy + (at + begin) * inner,
               (size_t)((end - begin) * inner) * sizeof *dx);
    else
        add_stretch(dx, dy, &part[TP_MIDDLE], inner, begin, end);
    add_stretch(dx, dy, &part[TP_BEFORE], inner, begin, end);
    add_stretch(dx, dy, &part[TP_AFTER], inner, begin, end);
}

/* Rows of dy that came from row `row` of dx. */
static int64_t uses_of(const tp_remap *m, int64_t row)
{
    int64_t n = 1;
    for (int k = m->n - 2; k >= 0; k--) {
        n *= tp__remap_uses(&m->axis[k], row % m->axis[k].nx);
        row /= m->axis[k].nx;
    }
    return n;
}

/* The first element of use t of a row. */
static int64_t use_at(const tp_remap *m, int64_t row, int64_t t)
{
    int64_t at = 0;
    for (int k = m->n - 2; k >= 0; k--) {
        const tp_remap_axis *const a = &m->axis[k];
        const int64_t i = row % a->nx, n = tp__remap_uses(a, i);
        at += tp__remap_use(a, i, t % n) * a->y_stride;
        row /= a->nx;
        t /= n;
    }
    return at;
}

static void gather_range(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const job *j = ctx;
    const int64_t length = j->m.axis[j->m.n - 1].nx;
    (void)thread;
    for (int64_t u = begin, n; u < end; u += n) {
        const int64_t row = u / length, i = u % length, uses = uses_of(&j->m, row);
        real *const dx = (real *)j->to + row * length * j->m.inner;
        n = tp__least(length - i, end - u);
        for (int64_t t = 0; t < uses; t++)
            add_row(j, dx, (const real *)j->from + use_at(&j->m, row, t), i, i + n, t == 0);
    }
}

/* ---- the ops ---- */

static tp_code flip(const tp_call *c, const tp_view *from, const tp_view *to)
{
    if (to->data) remap(c, tp__remap_flip(from, *(const int *)c->attr), from, to, 0.0);
    return TP_OK;
}

static tp_code flip_fwd(const tp_call *c)
{
    return flip(c, &c->x[0], &c->y[0]);
}

static tp_code flip_bwd(const tp_call *c)
{
    return flip(c, &c->dy[0], &c->dx[0]);
}

static tp_code pad_nd_fwd(const tp_call *c)
{
    const tp_pad_cfg *cfg = c->attr;
    remap(c, tp__remap_pad(&c->x[0], cfg), &c->x[0], &c->y[0],
          cfg->mode == TP_PAD_CONSTANT ? cfg->value : 0.0);
    return TP_OK;
}

static tp_code pad_nd_bwd(const tp_call *c)
{
    const tp_view *dx = &c->dx[0];
    if (!dx->data || dx->numel == 0) return TP_OK;
    const job j = job_of(tp__remap_pad(dx, c->attr), &c->dy[0], dx, NULL);
    tp__parallel(c->dev, dx->numel / j.m.inner, 1 + GRAIN / j.m.inner, gather_range, &j);
    return TP_OK;
}

TP_CPU_KERNEL_UNTYPED(flip_fwd)
TP_CPU_KERNEL_UNTYPED(flip_bwd)
TP_CPU_KERNEL_UNTYPED(pad_nd_fwd)
TP_CPU_KERNEL(pad_nd_bwd)
