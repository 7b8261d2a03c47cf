/* embedding.cu - rows of a tensor by index: embedding, y[i] = scale table[id[i]], index_select and
 * index_add along an axis of x [outer,size,inner], whose rows are [inner]. Adding sums rows by
 * index (keyed_sums.cuh), one key for each of outer * n.
 *
 * Reading moves 8 bytes per element (f32; half of that in bf16). Bound by memory. Indices out of
 * range give NaN, and nothing is added. */
#include "cuda/kit/keyed_sums.cuh"
#include "tensor/geometry/index.h"
#include "tensor/shape.h"

/* The row of x for row i of outer * n, or -1 if its index is out of range. */
struct row_list {
    const void *at;                     /* [n] */
    bool wide;                          /* i64 */
    int64_t outer, n, size, inner, pad; /* pad: an id treated as out of range; -1: none */

    __device__ int64_t operator()(int64_t i) const
    {
        const int64_t o = i < n ? 0 : tp_div(i, n), k = i - o * n;
        const int64_t id =
            wide ? static_cast<const int64_t *>(at)[k] : static_cast<const int32_t *>(at)[k];
        return id >= 0 && id < size && id != pad ? o * size + id : -1;
    }
};

/* Backward skips the padding id's row. */
static row_list rows_of_table(const tp_call *c)
{
    const tp_view *table = &c->x[0], *ids = &c->x[1];
    const int64_t pad =
        tp_is_backward(c) ? static_cast<const tp_embedding_attr *>(c->attr)->pad : -1;
    return { ids->data, ids->dtype == TP_I64, 1, ids->numel, table->dim[0], table->dim[1], pad };
}

static row_list rows_along(const tp_call *c)
{
    const tp_view *x = &c->x[0], *index = &c->x[1];
    const int axis = tp__axis(x->ndim, *static_cast<const int *>(c->attr));
    row_list r = { index->data, index->dtype == TP_I64, 1, index->numel, x->dim[axis], 1, -1 };
    for (int d = 0; d < x->ndim; d++)
        if (d != axis) *(d < axis ? &r.outer : &r.inner) *= x->dim[d];
    return r;
}

static float scale_of(const tp_call *c)
{
    return (float)static_cast<const tp_embedding_attr *>(c->attr)->scale;
}

/* ---- reading ---- */

template <class S, class Y, int N>
__global__ void __launch_bounds__(TP_THREADS)
    take_rows(row_list rows, tp_divisor columns, float scale, const S *from, Y *to)
{
    TP_EACH (t, rows.outer * rows.n * columns.d) {
        const int64_t i = tp_over(columns, t), j = t - i * columns.d, row = rows(i);
        const bool inside = row >= 0;
        tp_pack<S, N> v = {};
        tp_pack<Y, N> y;
        if (inside) v = tp_load_n<S, N>(from + (row * columns.d + j) * N);
        for (int e = 0; e < N; e++) tp_put(&y.at[e], inside ? scale * tp_float(v.at[e]) : NAN);
        tp_store(to + t * N, y);
    }
}

/* to [outer,n,inner] = scale from[:,index] */
template <class S, class Y>
static tp_code take(const tp_call *c, const row_list &r, float scale, const S *from, Y *to)
{
    constexpr int WIDE = (int)(16 / (sizeof(S) < sizeof(Y) ? sizeof(S) : sizeof(Y)));
    const bool aligned = tp_aligned(from, static_cast<const void *>(to));
    return tp_in_packs<WIDE>(aligned, r.inner, [&](auto size) {
        constexpr int N = decltype(size)::value;
        return tp_launch(c, take_rows<S, Y, N>, tp_grid(c, r.outer * r.n * (r.inner / N)),
                         TP_THREADS, 0, r, tp_by(r.inner / N), scale, from, to);
    });
}

/* ---- adding ---- */

/* to[:,index] = or += scale from [outer,n,inner] */
template <class X, class S>
static tp_code put(const tp_call *c, const row_list &r, float scale, bool add, const X *from, S *to)
{
    const int64_t numel = r.outer * r.size * r.inner;
    if (!add && numel > 0) {
        const tp_code code = tp__cuda_zero(c, to, (size_t)numel * sizeof(S));
        if (code != TP_OK) return code;
    }
    return tp_add_by_key(c, r, r.outer * r.n, r.outer * r.size, r.inner, scale, add, from, to);
}

static size_t work_of(const row_list &r)
{
    return tp_keyed_sums_work(r.outer * r.n, r.inner);
}

/* ---- the ops ---- */

template <class S> static tp_code embedding_fwd(const tp_call *c)
{
    return take(c, rows_of_table(c), scale_of(c), tp_in<S>(&c->x[0]), tp_out<S>(&c->y[0]));
}

template <class S> static tp_code embedding_bwd(const tp_call *c)
{
    if (!c->dx[0].data) return TP_OK;
    return put(c, rows_of_table(c), scale_of(c), c->add & 1u, tp_in<S>(&c->dy[0]),
               tp_out<S>(&c->dx[0]));
}

template <class S> static tp_code index_select_fwd(const tp_call *c)
{
    return take(c, rows_along(c), 1.0f, tp_in<S>(&c->x[0]), tp_out<S>(&c->y[0]));
}

template <class S> static tp_code index_select_bwd(const tp_call *c)
{
    if (!c->dx[0].data) return TP_OK;
    return put(c, rows_along(c), 1.0f, c->add & 1u, tp_in<S>(&c->dy[0]), tp_out<S>(&c->dx[0]));
}

/* src may differ from x in floating-point dtype. */
template <class S> static tp_code index_add_fwd(const tp_call *c)
{
    const tp_view *y = &c->y[0];
    if (y->numel == 0) return TP_OK;
    const tp_code code = tp__cuda_copy(c, y->data, c->x[0].data, (size_t)y->numel * sizeof(S));
    if (code != TP_OK) return code;
    return tp_with_type(c, c->x[2].dtype, [&](auto v) {
        return put(c, rows_along(c), 1.0f, true, tp_in<decltype(v)>(&c->x[2]), tp_out<S>(y));
    });
}

template <class S> static tp_code index_add_bwd(const tp_call *c)
{
    const tp_view *dsrc = &c->dx[2];
    if (!dsrc->data) return TP_OK;
    return tp_with_type(c, dsrc->dtype, [&](auto v) {
        return take(c, rows_along(c), 1.0f, tp_in<S>(&c->dy[0]), tp_out<decltype(v)>(dsrc));
    });
}

static size_t embedding_work(const tp_call *c)
{
    return tp_is_backward(c) ? work_of(rows_of_table(c)) : 0;
}

static size_t index_select_work(const tp_call *c)
{
    return tp_is_backward(c) ? work_of(rows_along(c)) : 0;
}

static size_t index_add_work(const tp_call *c)
{
    return tp_is_backward(c) ? 0 : work_of(rows_along(c));
}

TP_CUDA_WORK(embedding_work)
TP_CUDA_WORK(index_select_work)
TP_CUDA_WORK(index_add_work)
TP_CUDA_KERNEL(embedding_fwd)
TP_CUDA_KERNEL(embedding_bwd)
TP_CUDA_KERNEL(index_select_fwd)
TP_CUDA_KERNEL(index_select_bwd)
TP_CUDA_KERNEL(index_add_fwd)
TP_CUDA_KERNEL(index_add_bwd)
