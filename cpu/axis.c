/* axis.c - ops that cut and join along one axis: slice, pad, concat, stack, split, roll.
 *
 * Relative to the axis a tensor is [outer][dim][inner], and each op moves blocks of `count`
 * indices: `outer` runs of count * inner elements. The backward of cutting is placing, and vice
 * versa. Elements are only moved, so one function serves all dtypes. */
#include "cpu/kit/copies.h"
#include "tensor/bf16.h"
#include "tensor/geometry/shape_ops.h"
#include "tensor/kernel.h"
#include "tensor/shape.h"

#define GRAIN (8 * TP_BLOCK) /* elements */

/* The sizes shared by an op's tensors. */
typedef struct frame {
    const tp_device *dev;
    int64_t outer, inner;
    tp_dtype dtype;
} frame;

/* A block of one tensor: the size of its axis, and the block's first index. */
typedef struct side {
    void *data;
    int64_t dim, at;
} side;

/* `outer` runs of n elements, `step` apart in each tensor. */
typedef struct runs {
    char *to;
    const char *from; /* NULL: every element becomes *value */
    int64_t n, to_step, from_step;
    tp_dtype dtype;
    bool add;
    const void *value;
} runs;

static void add(tp_dtype dtype, void *to, const void *from, int64_t n)
{
    uint16_t *y16 = to;
    float *y32 = to;
    double *y64 = to;
    const uint16_t *x16 = from;
    const float *x32 = from;
    const double *x64 = from;
    if (dtype == TP_F64)
        for (int64_t i = 0; i < n; i++) y64[i] += x64[i];
    else if (dtype == TP_BF16)
        for (int64_t i = 0; i < n; i++)
            y16[i] = tp__to_bf16(tp__from_bf16(y16[i]) + tp__from_bf16(x16[i]));
    else
        for (int64_t i = 0; i < n; i++) y32[i] += x32[i];
}

/* Moves elements [at, at + n) of each of `count` runs from `run` on. */
static void move_runs(const runs *r, int64_t run, int64_t count, int64_t at, int64_t n)
{
    const int64_t size = (int64_t)tp_dtype_size(r->dtype);
    const int64_t to_step = r->to_step * size, from_step = r->from_step * size;
    char *to = r->to + run * to_step + at * size;
    const char *from = r->from ? r->from + run * from_step + at * size : NULL;
    if (from && !r->add) {
        tp__copy_rows(to, to_step, from, from_step, count, n * size);
        return;
    }
    for (int64_t i = 0; i < count; i++, to += to_step) {
        if (from)
            add(r->dtype, to, from + i * from_step, n);
        else
            tp__repeat(to, r->value, size, n);
    }
}

static void move_range(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const runs *r = ctx;
    const int64_t first = begin / r->n, last = end / r->n, skip = begin % r->n, rest = end % r->n;
    (void)thread;
    if (first == last) {
        move_runs(r, first, 1, skip, end - begin);
        return;
    }
    if (skip > 0) move_runs(r, first, 1, skip, r->n - skip);
    move_runs(r, first + (skip > 0), last - first - (skip > 0), 0, r->n);
    if (rest > 0) move_runs(r, last, 1, 0, rest);
}

/* to = from, or to += from, for a block of `count` indices. */
static void move(const frame *f, side to, side from, int64_t count, bool add_to)
{
    const int64_t size = (int64_t)tp_dtype_size(f->dtype), n = count * f->inner;
    if (f->outer * n == 0) return;
    const runs r = { .to = (char *)to.data + to.at * f->inner * size,
                     .from = (const char *)from.data + from.at * f->inner * size,
                     .n = n,
                     .to_step = to.dim * f->inner,
                     .from_step = from.dim * f->inner,
                     .dtype = f->dtype,
                     .add = add_to };
    tp__parallel(f->dev, f->outer * n, GRAIN, move_range, &r);
}

static void set(const frame *f, side to, int64_t count, double value)
{
    uint64_t element = 0;
    const tp_view v = { .data = &element, .dtype = f->dtype };
    tp_st(&v, 0, value);
    const int64_t size = (int64_t)tp_dtype_size(f->dtype), n = count * f->inner;
    if (f->outer * n == 0) return;
    const runs r = { .to = (char *)to.data + to.at * f->inner * size,
                     .n = n,
                     .to_step = to.dim * f->inner,
                     .dtype = f->dtype,
                     .value = &element };
    tp__parallel(f->dev, f->outer * n, GRAIN, move_range, &r);
}

static frame frame_of(const tp_call *c, const tp_view *v, int axis, int64_t *dim)
{
    frame f = { .dev = c->dev, .dtype = v->dtype };
    tp__axis_split(v, tp__axis(v->ndim, axis), &f.outer, dim, &f.inner);
    return f;
}

/* The size of the axis in v, or 1 if v lacks it (stack). */
static int64_t extent(const frame *f, const tp_view *v)
{
    const int64_t rest = f->outer * f->inner;
    return rest ? v->numel / rest : 0;
}

/* small = large[at ...] along the axis. */
static void cut(const frame *f, const tp_view *large, const tp_view *small, int64_t at)
{
    const int64_t n = extent(f, small);
    move(f, (side){ small->data, n, 0 }, (side){ large->data, extent(f, large), at }, n, false);
}

/* large[at ...] = or += small; the rest of large is unchanged. */
static void place(const frame *f, const tp_view *large, const tp_view *small, int64_t at,
                  bool add_to)
{
    const int64_t n = extent(f, small);
    move(f, (side){ large->data, extent(f, large), at }, (side){ small->data, n, 0 }, n, add_to);
}

/* The same; the rest of large becomes `value`. */
static void surround(const frame *f, const tp_view *large, const tp_view *small, int64_t at,
                     double value)
{
    const int64_t dim = extent(f, large), end = at + extent(f, small);
    set(f, (side){ large->data, dim, 0 }, at, value);
    place(f, large, small, at, false);
    set(f, (side){ large->data, dim, end }, dim - end, value);
}

/* ---- slice and pad ---- */

static tp_code slice_fwd(const tp_call *c)
{
    const tp_slice_attr *a = c->attr;
    int64_t dim;
    const frame f = frame_of(c, &c->x[0], a->axis, &dim);
    cut(&f, &c->x[0], &c->y[0], a->start);
    return TP_OK;
}

static tp_code slice_bwd(const tp_call *c)
{
    const tp_slice_attr *a = c->attr;
    int64_t dim;
    const frame f = frame_of(c, &c->dx[0], a->axis, &dim);
    if (!c->dx[0].data) return TP_OK;
    if (c->add & 1u)
        place(&f, &c->dx[0], &c->dy[0], a->start, true);
    else
        surround(&f, &c->dx[0], &c->dy[0], a->start, 0.0);
    return TP_OK;
}

static tp_code pad_fwd(const tp_call *c)
{
    const tp_pad_attr *a = c->attr;
    int64_t dim;
    const frame f = frame_of(c, &c->y[0], a->axis, &dim);
    surround(&f, &c->y[0], &c->x[0], a->before, a->value);
    return TP_OK;
}

static tp_code pad_bwd(const tp_call *c)
{
    const tp_pad_attr *a = c->attr;
    int64_t dim;
    const frame f = frame_of(c, &c->dy[0], a->axis, &dim);
    if (c->dx[0].data) cut(&f, &c->dy[0], &c->dx[0], a->before);
    return TP_OK;
}

/* ---- concat, stack and split: consecutive parts of one tensor ---- */

/* The whole as a matrix of `outer` rows of `width` elements, cut into blocks of rows and pieces of
 * rows. Each part has some of the columns. */
typedef struct joint {
    char *whole;
    const tp_view *part;
    int parts, axis, ndim; /* of the whole; parts of a stack lack the axis */
    int64_t outer, inner, width, size;
    int64_t rows, columns, pieces; /* of a block, of a piece; pieces of a row */
    bool join;
} joint;

/* Moves columns [begin, end) of the whole's `rows` rows from `row` on. */
static void move_parts(const joint *j, int64_t row, int64_t rows, int64_t begin, int64_t end)
{
    int64_t at = 0;
    for (int i = 0; i < j->parts && at < end; i++) {
        const tp_view *p = &j->part[i];
        const int64_t width = j->inner * (p->ndim == j->ndim ? p->dim[j->axis] : 1);
        const int64_t from = begin > at ? begin - at : 0;
        const int64_t n = (end - at < width ? end - at : width) - from;
        if (n > 0 && p->data) {
            char *small = (char *)p->data + (row * width + from) * j->size;
            char *large = j->whole + (row * j->width + at + from) * j->size;
            const int64_t step = width * j->size, large_step = j->width * j->size;
            if (j->join)
                tp__copy_rows(large, large_step, small, step, rows, n * j->size);
            else
                tp__copy_rows(small, step, large, large_step, rows, n * j->size);
        }
        at += width;
    }
}

static void move_tasks(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const joint *j = ctx;
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        const int64_t row = t / j->pieces * j->rows, at = t % j->pieces * j->columns;
        move_parts(j, row, j->outer - row < j->rows ? j->outer - row : j->rows, at,
                   j->width - at < j->columns ? j->width : at + j->columns);
    }
}

/* Copies from the parts to the whole, or back; skips parts without data. */
static tp_code parts(const tp_call *c, const tp_view *whole, const tp_view *part, int n, bool join)
{
    const tp_axis_attr *a = c->attr;
    int64_t dim;
    if (whole->numel == 0) return TP_OK;
    const frame f = frame_of(c, whole, a->axis, &dim);
    joint j = { .whole = whole->data,
                .part = part,
                .parts = n,
                .axis = tp__axis(whole->ndim, a->axis),
                .ndim = whole->ndim,
                .outer = f.outer,
                .inner = f.inner,
                .width = dim * f.inner,
                .size = (int64_t)tp_dtype_size(f.dtype),
                .join = join };
    j.columns = j.width < GRAIN ? j.width : GRAIN;
    j.pieces = (j.width + j.columns - 1) / j.columns;
    j.rows = (GRAIN + j.columns - 1) / j.columns;
    tp__parallel(c->dev, (j.outer + j.rows - 1) / j.rows * j.pieces, 1, move_tasks, &j);
    return TP_OK;
}

static tp_code concat_fwd(const tp_call *c)
{
    return parts(c, &c->y[0], c->x, c->nx, true);
}

static tp_code concat_bwd(const tp_call *c)
{
    return parts(c, &c->dy[0], c->dx, c->nx, false);
}

static tp_code split_fwd(const tp_call *c)
{
    return parts(c, &c->x[0], c->y, c->ny, false);
}

static tp_code split_bwd(const tp_call *c)
{
    return c->dx[0].data ? parts(c, &c->dx[0], c->dy, c->ny, true) : TP_OK;
}

/* ---- roll: two blocks swap places ---- */

static tp_code roll(const tp_call *c, const tp_view *from, const tp_view *to, int64_t sign)
{
    const tp_roll_attr *a = c->attr;
    int64_t dim;
    const frame f = frame_of(c, from, a->axis, &dim);
    if (dim == 0) return TP_OK;
    const int64_t shift = (a->shift % dim * sign + dim) % dim;
    move(&f, (side){ to->data, dim, shift }, (side){ from->data, dim, 0 }, dim - shift, false);
    move(&f, (side){ to->data, dim, 0 }, (side){ from->data, dim, dim - shift }, shift, false);
    return TP_OK;
}

static tp_code roll_fwd(const tp_call *c)
{
    return roll(c, &c->x[0], &c->y[0], 1);
}

static tp_code roll_bwd(const tp_call *c)
{
    return c->dx[0].data ? roll(c, &c->dy[0], &c->dx[0], -1) : TP_OK;
}

TP_CPU_KERNEL_UNTYPED(slice_fwd)
TP_CPU_KERNEL_UNTYPED(slice_bwd)
TP_CPU_KERNEL_UNTYPED(pad_fwd)
TP_CPU_KERNEL_UNTYPED(pad_bwd)
TP_CPU_KERNEL_UNTYPED(concat_fwd)
TP_CPU_KERNEL_UNTYPED(concat_bwd)
TP_CPU_KERNEL_UNTYPED(split_fwd)
TP_CPU_KERNEL_UNTYPED(split_bwd)
TP_CPU_KERNEL_UNTYPED(roll_fwd)
TP_CPU_KERNEL_UNTYPED(roll_bwd)
