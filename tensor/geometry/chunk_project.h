/* chunk_project.h - inputs and attributes of the dynamic projection. */
#ifndef TP_CHUNK_PROJECT_H
#define TP_CHUNK_PROJECT_H

#include "tensor/geometry/packed.h"

/* The last two are for chunk_project_kv only. With offsets, chunks are packed documents. */
enum { CHUNK_X, CHUNK_SCORES, CHUNK_MASK, CHUNK_V, CHUNK_OFFSET, CHUNK_NX };

typedef struct tp__chunk_attr {
    int64_t heads, chunk, rank; /* chunk: tokens, of documents at most */
} tp__chunk_attr;

static inline bool tp__chunk_packed(const tp_view *x, int nx)
{
    return nx > CHUNK_OFFSET && !tp_absent(&x[CHUNK_OFFSET]);
}

/* The chunks of checked inputs: their rows in [B*N,C]. */
static inline tp_packing tp__chunks(const tp_view *x, int nx, const tp__chunk_attr *a)
{
    if (tp__chunk_packed(x, nx)) return tp__packing(&x[CHUNK_OFFSET], x[CHUNK_X].dim[0], a->chunk);
    const tp_packing p = { NULL, false, x[CHUNK_X].dim[0] * (x[CHUNK_X].dim[1] / a->chunk),
                           x[CHUNK_X].dim[0] * x[CHUNK_X].dim[1], a->chunk };
    return p;
}

/* The input of result i. */
static inline int tp__chunk_values(int i)
{
    return i == 0 ? CHUNK_X : CHUNK_V;
}

#endif
