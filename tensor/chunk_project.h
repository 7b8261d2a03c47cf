/* chunk_project.h - attributes of the dynamic projection, and the scratch of its CPU kernels. */
#ifndef TP_CHUNK_PROJECT_H
#define TP_CHUNK_PROJECT_H

#include <tapegrad/op.h>

typedef struct tp__chunk_attr {
    int64_t heads, chunk, rank;
} tp__chunk_attr;

/* Elements of scratch a thread needs: p, its gradient, two rows. */
static inline size_t tp__chunk_scratch(const tp__chunk_attr *a)
{
    return (size_t)((2 * a->chunk + 2) * a->heads * a->rank + 15) / 16 * 16;
}

#endif
