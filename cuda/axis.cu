/* axis.cu - ops that cut and join along one axis: slice, pad, concat, stack, split, roll.
 *
 * Relative to the axis, a tensor is [outer][dim][inner]. Every result is a matrix of `outer` rows,
 * assembled from parts: pieces of rows of other tensors, or a constant. A slice has one part, a pad
 * three, a roll two, and a concat one per input.
 *
 * With more than FEW parts, each thread moves one word, which also costs a bisection.
 *
 * Otherwise a thread writes 16 bytes. It reads them as one word if all pieces consist of such
 * words, else as several narrower ones: odd sizes cost loads from cache, not memory. Each element
 * is read and written once, with one division per 16 bytes: bound by memory. */
#include "cuda/kit/move.cuh"
#include "tensor/geometry/shape_ops.h"
#include "tensor/shape.h"

/* Columns up to `end` of row r: column k is data[r * step + at + k], or the constant. */
struct piece {
    const void *data; /* NULL: the constant */
    int64_t end, step, at;
};

enum { FEW = 16 }; /* parts that are searched in turn */

/* Sizes are in elements, then in words. */
struct rows {
    int64_t count, columns;
    int parts;
    piece part[FEW];
};

struct plan {
    rows r;
    tp_divisor columns;
    uint4 value; /* 16 bytes of copies */
};

/* The source of word i of y, and the number of contiguous words from there. */
template <class W> struct source {
    const W *from;
    int64_t left;
};

template <class W> static __device__ inline source<W> source_of(const plan &p, int64_t i)
{
    const int64_t row = tp_over(p.columns, i), column = i - row * p.columns.d;
    int k = 0;
    while (column >= p.r.part[k].end) k++;
    const W *data = static_cast<const W *>(p.r.part[k].data);
    const source<W> s = { data ? data + row * p.r.part[k].step + p.r.part[k].at + column : NULL,
                          p.r.part[k].end - column };
    return s;
}

template <class W> static __device__ inline W word_of(const plan &p, int64_t i)
{
    const W *from = source_of<W>(p, i).from;
    W value;
    memcpy(&value, &p.value, sizeof value);
    return from ? *from : value;
}

template <class W>
__global__ void __launch_bounds__(TP_THREADS) fill_rows(plan p, int64_t n, int64_t packs, W *y)
{
    constexpr int N = (int)(16 / sizeof(W));
    TP_EACH (i, packs) {
        const source<W> s = source_of<W>(p, i * N);
        if (s.left < N) { /* spans several parts */
#pragma unroll 1
            for (int k = 0; k < N; k++) y[i * N + k] = word_of<W>(p, i * N + k);
            continue;
        }
        tp_pack<W> v;
        memcpy(&v, &p.value, sizeof v);
        if (s.from) {
#pragma unroll
            for (int k = 0; k < N; k++) v.at[k] = s.from[k];
        }
        tp_store(y + i * N, v);
    }
    TP_EACH (i, n - packs * N) y[packs * N + i] = word_of<W>(p, packs * N + i);
}

static tp_code write_rows(const tp_call *c, const tp_view *y, const rows &r, double value)
{
    const int64_t size = (int64_t)tp_dtype_size(y->dtype);
    int bytes = tp_widest(r.columns * size, (uintptr_t)y->data);
    plan p = { r, {}, tp_repeated(y->dtype, value) };
    for (int k = 0; k < r.parts; k++) {
        const piece &a = r.part[k];
        bytes = tp_widest(bytes, (uintptr_t)a.data, a.end * size, a.step * size, a.at * size);
    }
    const int64_t elements = bytes / size, n = r.count * r.columns / elements;
    p.columns = tp_by(r.columns / elements);
    for (int k = 0; k < r.parts; k++) {
        p.r.part[k].end /= elements;
        p.r.part[k].step /= elements;
        p.r.part[k].at /= elements;
    }
    return tp_with_word(bytes, [&](auto w) {
        typedef decltype(w) W;
        const int64_t N = (int64_t)(16 / sizeof(W)), packs = tp_aligned(y->data) ? n / N : 0;
        return tp_launch(c, fill_rows<W>, tp_grid(c, packs ? packs : n), TP_THREADS, 0, p, n, packs,
                         tp_out<W>(y));
    });
}

/* ---- rows and parts ---- */

/* The sizes that the tensors of an op share. */
struct frame {
    int64_t outer, inner;
};

static frame frame_of(const tp_view *v, int axis)
{
    int64_t dim;
    frame f;
    tp__axis_split(v, tp__axis(v->ndim, axis), &f.outer, &dim, &f.inner);
    return f;
}

/* Elements of a row of v, which may lack the axis (stack). */
static int64_t width(const frame &f, const tp_view *v)
{
    return f.outer ? v->numel / f.outer : 0;
}

/* Appends a part to r: n columns of x from column `from`, or of the constant if x is NULL. */
static void append(const frame &f, rows *r, const tp_view *x, int64_t from, int64_t n)
{
    const piece p = { x ? x->data : NULL, r->columns + n, x ? width(f, x) : 0, from - r->columns };
    if (n == 0) return;
    r->part[r->parts++] = p;
    r->columns += n;
}

/* small = large[at ...] along the axis. */
static tp_code cut(const tp_call *c, const frame &f, const tp_view *large, const tp_view *small,
                   int64_t at)
{
    rows r = { f.outer, 0, 0, {} };
    const size_t size = tp_dtype_size(large->dtype);
    if (small->numel == 0) return TP_OK;
    if (f.outer == 1)
        return tp__cuda_copy(c, small->data,
                             static_cast<const char *>(large->data) + at * f.inner * size,
                             small->numel * size);
    append(f, &r, large, at * f.inner, width(f, small));
    return write_rows(c, small, r, 0.0);
}

/* large[at ...] = small along the axis; the rest of large becomes the constant. */
static tp_code surround(const tp_call *c, const frame &f, const tp_view *large,
                        const tp_view *small, int64_t at, double value)
{
    rows r = { f.outer, 0, 0, {} };
    append(f, &r, NULL, 0, at * f.inner);
    append(f, &r, small, 0, width(f, small));
    append(f, &r, NULL, 0, width(f, large) - r.columns);
    return write_rows(c, large, r, value);
}

/* ---- many parts ---- */

/* Parts of one tensor that fit the arguments of a launch. */
enum { BATCH = 192 };

/* Columns begin .. end of the whole's rows; `begin` is the previous part's end. */
struct slot {
    void *data; /* NULL: not wanted */
    int64_t end;
};

/* Columns from, from + 1, ... of a whole of `width` columns; sizes in words. */
struct batch {
    tp_divisor columns;
    int64_t from, width;
    void *whole;
    int parts;
    slot part[BATCH];
};

/* A thread moves one word and finds its part by bisection. */
template <class W, bool JOIN>
__global__ void __launch_bounds__(TP_THREADS) move_parts(batch b, int64_t n)
{
    TP_EACH (i, n) {
        const int64_t row = tp_over(b.columns, i), column = i - row * b.columns.d;
        int k = 0, last = b.parts - 1; /* the first part that ends beyond the column */
        while (k < last) {
            const int middle = (k + last) / 2;
            if (column < b.part[middle].end)
                last = middle;
            else
                k = middle + 1;
        }
        W *small = static_cast<W *>(b.part[k].data);
        W *large = static_cast<W *>(b.whole) + row * b.width + b.from + column;
        if (!small) continue;
        const int64_t begin = k > 0 ? b.part[k - 1].end : 0;
        small += row * (b.part[k].end - begin) + column - begin;
        if (JOIN)
            *large = *small;
        else
            *small = *large;
    }
}

/* Joins the parts, or splits the whole, in one launch per BATCH parts. */
template <bool JOIN>
static tp_code move_all(const tp_call *c, const frame &f, const tp_view *whole,
                        const tp_view *parts, int n)
{
    const int64_t size = (int64_t)tp_dtype_size(whole->dtype), outer = f.outer;
    int bytes = tp_widest(whole->numel / outer * size, (uintptr_t)whole->data);
    for (int i = 0; i < n; i++)
        bytes = tp_widest(bytes, (uintptr_t)parts[i].data, parts[i].numel / outer * size);
    return tp_with_word(bytes, [&](auto w) {
        typedef decltype(w) W;
        batch b = {};
        tp_code code = TP_OK;
        b.width = whole->numel / outer * size / bytes;
        b.whole = whole->data;
        for (int i = 0; i < n && code == TP_OK; b.from += b.columns.d) {
            int64_t end = 0;
            for (b.parts = 0; b.parts < BATCH && i < n; i++) {
                if (parts[i].numel == 0) continue;
                end += parts[i].numel / outer * size / bytes;
                b.part[b.parts++] = { parts[i].data, end };
            }
            b.columns = tp_by(end);
            code = tp_launch(c, move_parts<W, JOIN>, tp_grid(c, outer * end), TP_THREADS, 0, b,
                             outer * end);
        }
        return code;
    });
}

/* whole = the concatenation of the parts. */
static tp_code join(const tp_call *c, const tp_view *whole, const tp_view *parts, int n)
{
    const frame f = frame_of(whole, static_cast<const tp_axis_attr *>(c->attr)->axis);
    if (whole->numel == 0) return TP_OK;
    if (n > FEW) return move_all<true>(c, f, whole, parts, n);
    rows r = { f.outer, 0, 0, {} };
    for (int i = 0; i < n; i++) append(f, &r, &parts[i], 0, width(f, &parts[i]));
    return write_rows(c, whole, r, 0.0);
}

/* A part of a split: columns at .. at + columns of the whole's rows, as n words of their own. The
 * threads before `end` copy a pack each of this part or an earlier one. */
struct cut_part {
    void *data;
    tp_divisor columns;
    int64_t at, n, end;
};

/* Parts of one tensor with rows of `step` words. packed: all parts begin at 16 bytes. */
struct cuts {
    const void *whole;
    int64_t step;
    bool packed;
    int parts;
    cut_part part[FEW];
};

template <class W> __global__ void __launch_bounds__(TP_THREADS) cut_rows(cuts p, int64_t packs)
{
    constexpr int N = (int)(16 / sizeof(W));
    const W *whole = static_cast<const W *>(p.whole);
    TP_EACH (i, packs) {
        int k = 0;
        while (i >= p.part[k].end) k++;
        const cut_part &a = p.part[k];
        const int64_t first = (i - (k > 0 ? p.part[k - 1].end : 0)) * N;
        const int64_t row = tp_over(a.columns, first), column = first - row * a.columns.d;
        const W *from = whole + row * p.step + a.at + column;
        W *to = static_cast<W *>(a.data) + first;
        if (p.packed && column + N <= a.columns.d) {
            tp_pack<W> v;
#pragma unroll
            for (int e = 0; e < N; e++) v.at[e] = from[e];
            tp_store(to, v);
            continue;
        }
#pragma unroll 1
        for (int e = 0; e < N && first + e < a.n; e++) {
            const int64_t r = tp_over(a.columns, first + e);
            to[e] = whole[r * p.step + a.at + first + e - r * a.columns.d];
        }
    }
}

/* Cuts 2 .. FEW parts out of the whole in one launch; sizes are in bytes until the width of a word
 * is known. */
static tp_code cut_few(const tp_call *c, const frame &f, const tp_view *whole, const tp_view *parts,
                       int n)
{
    const int64_t size = (int64_t)tp_dtype_size(whole->dtype);
    cuts p = { whole->data, width(f, whole) * size, true, 0, {} };
    int bytes = tp_widest(p.step, (uintptr_t)p.whole);
    int64_t columns[FEW], at = 0, packs = 0;
    for (int i = 0; i < n; i++) {
        const int64_t wide = width(f, &parts[i]) * size;
        if (parts[i].data && wide > 0) {
            p.packed = p.packed && tp_aligned(parts[i].data);
            bytes = tp_widest(bytes, (uintptr_t)parts[i].data, wide, at);
            columns[p.parts] = wide;
            p.part[p.parts++] = { parts[i].data, {}, at, 0, 0 };
        }
        at += wide;
    }
    p.step /= bytes;
    for (int k = 0; k < p.parts; k++) {
        cut_part &a = p.part[k];
        a.columns = tp_by(columns[k] / bytes);
        a.at /= bytes;
        a.n = f.outer * a.columns.d;
        a.end = packs += (a.n * bytes + 15) / 16;
    }
    return tp_with_word(bytes, [&](auto w) {
        return tp_launch(c, cut_rows<decltype(w)>, tp_grid(c, packs), TP_THREADS, 0, p, packs);
    });
}

/* Splits the whole into its parts; those without data are skipped. */
static tp_code cut_all(const tp_call *c, const tp_view *whole, const tp_view *parts, int n)
{
    const frame f = frame_of(whole, static_cast<const tp_axis_attr *>(c->attr)->axis);
    int64_t at = 0, from = 0;
    int wanted = 0, only = 0;
    if (whole->numel == 0) return TP_OK;
    if (n > FEW) return move_all<false>(c, f, whole, parts, n);
    for (int i = 0; i < n; i++) {
        if (parts[i].data && parts[i].numel > 0) {
            wanted++;
            only = i;
            from = at;
        }
        at += width(f, &parts[i]) / f.inner;
    }
    if (wanted == 0) return TP_OK;
    return wanted == 1 ? cut(c, f, whole, &parts[only], from) : cut_few(c, f, whole, parts, n);
}

/* ---- slice and pad ---- */

static tp_code slice_fwd(const tp_call *c)
{
    const tp_slice_attr *a = static_cast<const tp_slice_attr *>(c->attr);
    return cut(c, frame_of(&c->x[0], a->axis), &c->x[0], &c->y[0], a->start);
}

/* large += small; large points at the first element that small is added to. */
template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    add_rows(tp_divisor columns, int64_t step, int64_t n, int64_t packs, const S *small, S *large)
{
    constexpr int N = (int)(16 / sizeof(S));
    TP_EACH (i, packs) {
        const int64_t row = tp_over(columns, i * N);
        S *to = large + row * step + i * N - row * columns.d;
        const tp_pack<S> a = tp_load(small + i * N);
        tp_pack<S> v = tp_load(static_cast<const S *>(to));
#pragma unroll
        for (int k = 0; k < N; k++) tp_put(&v.at[k], tp_float(v.at[k]) + tp_float(a.at[k]));
        tp_store(to, v);
    }
    TP_EACH (i, n - packs * N) {
        const int64_t e = packs * N + i, row = tp_over(columns, e);
        S *to = large + row * step + e - row * columns.d;
        tp_put(to, tp_float(*to) + tp_float(small[e]));
    }
}

template <class S>
static tp_code add_to(const tp_call *c, const frame &f, const tp_view *large, const tp_view *small,
                      int64_t at)
{
    constexpr int N = (int)(16 / sizeof(S));
    const int64_t n = small->numel, columns = width(f, small), step = width(f, large);
    S *to = tp_out<S>(large) + at * f.inner;
    const bool whole = columns % N == 0 && step % N == 0 && tp_aligned(tp_in<S>(small), to);
    return tp_launch(c, add_rows<S>, tp_grid(c, whole ? n / N : n), TP_THREADS, 0, tp_by(columns),
                     step, n, whole ? n / N : 0, tp_in<S>(small), to);
}

static tp_code slice_bwd(const tp_call *c)
{
    const tp_slice_attr *a = static_cast<const tp_slice_attr *>(c->attr);
    const frame f = frame_of(&c->dx[0], a->axis);
    if (!c->dx[0].data) return TP_OK;
    if (!(c->add & 1u)) return surround(c, f, &c->dx[0], &c->dy[0], a->start, 0.0);
    return tp_with_type(c, c->dx[0].dtype, [&](auto s) {
        return add_to<decltype(s)>(c, f, &c->dx[0], &c->dy[0], a->start);
    });
}

static tp_code pad_fwd(const tp_call *c)
{
    const tp_pad_attr *a = static_cast<const tp_pad_attr *>(c->attr);
    return surround(c, frame_of(&c->y[0], a->axis), &c->y[0], &c->x[0], a->before, a->value);
}

static tp_code pad_bwd(const tp_call *c)
{
    const tp_pad_attr *a = static_cast<const tp_pad_attr *>(c->attr);
    if (!c->dx[0].data) return TP_OK;
    return cut(c, frame_of(&c->dy[0], a->axis), &c->dy[0], &c->dx[0], a->before);
}

/* ---- concat, stack, split ---- */

static tp_code concat_fwd(const tp_call *c)
{
    return join(c, &c->y[0], c->x, c->nx);
}

static tp_code concat_bwd(const tp_call *c)
{
    return cut_all(c, &c->dy[0], c->dx, c->nx);
}

static tp_code split_fwd(const tp_call *c)
{
    return cut_all(c, &c->x[0], c->y, c->ny);
}

static tp_code split_bwd(const tp_call *c)
{
    return c->dx[0].data ? join(c, &c->dx[0], c->dy, c->ny) : TP_OK;
}

/* ---- roll: two parts swap places ---- */

static tp_code roll(const tp_call *c, const tp_view *from, const tp_view *to, int64_t sign)
{
    const tp_roll_attr *a = static_cast<const tp_roll_attr *>(c->attr);
    const frame f = frame_of(from, a->axis);
    rows r = { f.outer, 0, 0, {} };
    if (from->numel == 0) return TP_OK;
    const int64_t dim = width(f, from) / f.inner, shift = (a->shift % dim * sign + dim) % dim;
    append(f, &r, from, (dim - shift) * f.inner, shift * f.inner);
    append(f, &r, from, 0, (dim - shift) * f.inner);
    return write_rows(c, to, r, 0.0);
}

static tp_code roll_fwd(const tp_call *c)
{
    return roll(c, &c->x[0], &c->y[0], 1);
}

static tp_code roll_bwd(const tp_call *c)
{
    return c->dx[0].data ? roll(c, &c->dy[0], &c->dx[0], -1) : TP_OK;
}

TP_CUDA_KERNEL_UNTYPED(slice_fwd)
TP_CUDA_KERNEL_UNTYPED(slice_bwd)
TP_CUDA_KERNEL_UNTYPED(pad_fwd)
TP_CUDA_KERNEL_UNTYPED(pad_bwd)
TP_CUDA_KERNEL_UNTYPED(concat_fwd)
TP_CUDA_KERNEL_UNTYPED(concat_bwd)
TP_CUDA_KERNEL_UNTYPED(split_fwd)
TP_CUDA_KERNEL_UNTYPED(split_bwd)
TP_CUDA_KERNEL_UNTYPED(roll_fwd)
TP_CUDA_KERNEL_UNTYPED(roll_bwd)
