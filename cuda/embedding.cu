/* embedding.cu - y[i] = scale table[id[i]], rows of C elements; its gradient sums rows of dy by id
 * (keyed_sums.cuh).
 *
 * Forward moves 8 bytes per element (f32; half of that in bf16). Bound by memory. Ids out of range
 * give NaN and no gradient. */
#include "cuda/kit/keyed_sums.cuh"

/* The id of token i, or -1 if it is out of range. */
struct id_list {
    const void *at;
    bool wide; /* i64 */
    int64_t V;

    __device__ int64_t operator()(int64_t i) const
    {
        const int64_t id =
            wide ? static_cast<const int64_t *>(at)[i] : static_cast<const int32_t *>(at)[i];
        return id < V ? id : -1;
    }
};

/* ---- forward ---- */

template <class S, int N>
__global__ void __launch_bounds__(TP_THREADS)
    take_rows(id_list ids, int64_t n, tp_divisor columns, float scale, const S *table, S *y)
{
    TP_EACH (t, n * columns.d) {
        const int64_t i = tp_over(columns, t), j = t - i * columns.d, id = ids(i);
        const bool inside = id >= 0;
        tp_pack<S, N> v = {};
        if (inside) v = tp_load_n<S, N>(table + (id * columns.d + j) * N);
        for (int e = 0; e < N; e++) tp_put(&v.at[e], inside ? scale * tp_float(v.at[e]) : NAN);
        tp_store(y + t * N, v);
    }
}

/* ---- launchers ---- */

static float scale_of(const tp_call *c)
{
    return (float)*static_cast<const double *>(c->attr);
}

static id_list ids_of(const tp_call *c)
{
    return { c->x[1].data, c->x[1].dtype == TP_I64, c->x[0].dim[0] };
}

template <class S> static tp_code embedding_fwd(const tp_call *c)
{
    const int64_t n = c->x[1].numel, C = c->x[0].dim[1];
    const S *table = tp_in<S>(&c->x[0]);
    S *y = tp_out<S>(&c->y[0]);
    return tp_in_packs<(int)(16 / sizeof(S))>(tp_aligned(table, y), C, [&](auto size) {
        constexpr int N = decltype(size)::value;
        return tp_launch(c, take_rows<S, N>, tp_grid(c, n * (C / N)), TP_THREADS, 0, ids_of(c), n,
                         tp_by(C / N), scale_of(c), table, y);
    });
}

/* c->work: tp_keyed_sums_work bytes. */
template <class S> static tp_code embedding_bwd(const tp_call *c)
{
    const tp_view *to = &c->dx[0];
    const bool add = (c->add & 1u) != 0;
    if (!to->data) return TP_OK;
    if (!add && to->numel > 0) {
        const tp_code code = tp__cuda_zero(c, to->data, (size_t)to->numel * sizeof(S));
        if (code != TP_OK) return code;
    }
    return tp_add_by_key(c, ids_of(c), c->x[1].numel, to->dim[0], to->dim[1], scale_of(c), add,
                         tp_in<S>(&c->dy[0]), tp_out<S>(to));
}

static size_t embedding_work(const tp_call *c)
{
    return tp_is_backward(c) ? tp_keyed_sums_work(c->x[1].numel, c->x[0].dim[1]) : 0;
}

TP_CUDA_WORK(embedding_work)
TP_CUDA_KERNEL(embedding_fwd)
TP_CUDA_KERNEL(embedding_bwd)
