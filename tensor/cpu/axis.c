/* axis.c - ops that cut and join along one axis: slice, pad, concat, stack, split, roll.
 *
 * With respect to the axis a tensor is [outer][dim][inner], and each op moves blocks of `count` indices:
 * `outer` runs of count * inner elements. The backward of cutting is placing, and vice versa. Elements
 * are only moved, so one function serves all dtypes. */
#include "tensor/cpu/kit/repeat.h"
#include "tensor/geometry/shape_ops.h"
#include "tensor/kernel.h"
#include "tensor/shape.h"

#define GRAIN (8 * TP_BLOCK) /* elements */

/* The sizes that the tensors of an op share. */
typedef struct frame {
    const tp_device *dev;
    int64_t outer, inner;
    tp_dtype dtype;
} frame;

/* A block of one tensor: the size of its axis, and the index at which the block begins. */
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
    float *y32 = to;
    double *y64 = to;
    const float *x32 = from;
    const double *x64 = from;
    if (dtype == TP_F64)
        for (int64_t i = 0; i < n; i++) y64[i] += x64[i];
    else
        for (int64_t i = 0; i < n; i++) y32[i] += x32[i];
}

static void move_range(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const runs *r = ctx;
    const int64_t size = (int64_t)tp_dtype_size(r->dtype);
    (void)thread;
    for (int64_t i = begin, n; i < end; i += n) {
        const int64_t run = i / r->n, at = i % r->n;
        char *to = r->to + (run * r->to_step + at) * size;
        n = r->n - at < end - i ? r->n - at : end - i;
        if (!r->from)
            tp__repeat(to, r->value, size, n);
        else if (r->add)
            add(r->dtype, to, r->from + (run * r->from_step + at) * size, n);
        else
            memcpy(to, r->from + (run * r->from_step + at) * size, (size_t)(n * size));
    }
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

/* The size of the axis in v, which need not have that axis (stack: 1). */
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

/* large[at ...] = small, or += small; the rest of large is unchanged. */
static void place(const frame *f, const tp_view *large, const tp_view *small, int64_t at,
                  bool add_to)
{
    const int64_t n = extent(f, small);
    move(f, (side){ large->data, extent(f, large), at }, (side){ small->data, n, 0 }, n, add_to);
}

/* The same, and the rest of large becomes `value`. */
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

/* ---- concat, stack and split: the parts of one tensor, one after the other ---- */

/* Copies from the whole to its parts, or from the parts to the whole; parts without data are
 * skipped. */
static tp_code parts(const tp_call *c, const tp_view *whole, const tp_view *part, int n, bool join)
{
    const tp_axis_attr *a = c->attr;
    int64_t dim, at = 0;
    const frame f = frame_of(c, whole, a->axis, &dim);
    for (int i = 0; i < n; at += extent(&f, &part[i]), i++) {
        if (!part[i].data) continue;
        if (join)
            place(&f, whole, &part[i], at, false);
        else
            cut(&f, whole, &part[i], at);
    }
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
