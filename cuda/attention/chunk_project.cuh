/* chunk_project.cuh - the dynamic projection: sizes, and the entry points of chunk_spans.cu. */
#ifndef TP_CHUNK_PROJECT_CUH
#define TP_CHUNK_PROJECT_CUH

#include "cuda/kit/kernel.cuh"
#include "tensor/geometry/chunk_project.h"

typedef struct chunk_geometry {
    int64_t chunks, l, r, n, H, D, C; /* x [chunks,l,C], C = H D; z [chunks,l,n], n = H r */
    const uint8_t *mask;              /* [chunks,l] or NULL                               */
    tp_packing rows;                  /* of the chunks; up to l each if packed            */
} chunk_geometry;

/* Is a token (of all chunks) visible? */
static __device__ inline bool chunk_shown(const chunk_geometry &g, int64_t token)
{
    return !g.mask || g.mask[token];
}

/* The views of one projected tensor in a call. */
typedef struct chunk_values {
    const tp_view *x, *y, *dy, *dx;
    bool add; /* its gradient of the scores is added to an earlier one */
} chunk_values;

/* Stores or adds. */
template <class S> static __device__ inline void chunk_put(S *to, float v, bool add)
{
    tp_put(to, add ? tp_float(*to) + v : v);
}

/* Calls f with the gradient's type: its tensor's, or f32 for a parameter. */
template <class S, class F> static tp_code chunk_with_gradient(const tp_view *dx, F f)
{
    return dx->dtype == TP_F32 ? f(float()) : f(S());
}

/* Long chunks: blocks take spans of the tokens of a head, up to eight ranks. */
enum { TP_CHUNK_SPAN = 512, TP_CHUNK_RANKS = 8 };

static inline int64_t tp__chunk_spans(const chunk_geometry &g)
{
    return (g.l + TP_CHUNK_SPAN - 1) / TP_CHUNK_SPAN;
}

static inline bool tp__chunk_spans_serve(const chunk_geometry &g)
{
    return !g.rows.offset && g.l >= 64 && g.r <= TP_CHUNK_RANKS && g.D > 0;
}
tp_code tp__chunk_spans_fwd(const tp_call *c, const chunk_geometry &g, const chunk_values &v);
tp_code tp__chunk_spans_bwd(const tp_call *c, const chunk_geometry &g, const chunk_values &v);

#endif
