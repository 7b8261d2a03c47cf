/* index.h - reads integer tensors of either width; shared by the ops that do so. */
#ifndef TP_INDEX_H
#define TP_INDEX_H

#include <tapegrad/op.h>

/* The attributes of tp_embedding. pad: the id whose row gets no gradient; -1: none. */
typedef struct tp_embedding_attr {
    double scale;
    int64_t pad;
} tp_embedding_attr;

static inline int64_t tp__index(const tp_view *v, int64_t i)
{
    return v->dtype == TP_I32 ? ((const int32_t *)v->data)[i] : ((const int64_t *)v->data)[i];
}

/* Index of the first element outside [low, high), or -1. */
static inline int64_t tp__first_outside(const tp_view *v, int64_t low, int64_t high)
{
    for (int64_t i = 0; i < v->numel; i++) {
        const int64_t k = tp__index(v, i);
        if (k < low || k >= high) return i;
    }
    return -1;
}

#endif
