/* chunk_project.h - inputs and attributes of the dynamic projection. */
#ifndef TP_CHUNK_PROJECT_H
#define TP_CHUNK_PROJECT_H

#include <tapegrad/op.h>

/* The second values are an input of chunk_project_kv alone. */
enum { CHUNK_X, CHUNK_SCORES, CHUNK_MASK, CHUNK_V, CHUNK_NX };

typedef struct tp__chunk_attr {
    int64_t heads, chunk, rank;
} tp__chunk_attr;

/* The input that result i is made of. */
static inline int tp__chunk_values(int i)
{
    return i == 0 ? CHUNK_X : CHUNK_V;
}

#endif
