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

/* Long chunks on a GPU: blocks take spans of the tokens of a head, up to eight ranks. */
enum { TP_CHUNK_SPAN = 512, TP_CHUNK_RANKS = 8 };

static inline int64_t tp__chunk_spans(const tp__chunk_attr *a)
{
    return (a->chunk + TP_CHUNK_SPAN - 1) / TP_CHUNK_SPAN;
}

/* Floats of scratch on a GPU for `tokens` tokens of width C. Of each span and rank the sums of D
 * elements, the largest score and the sum of the powers; three floats of each column of scores. Or
 * weights and their gradients. */
static inline int64_t tp__chunk_gpu_scratch(const tp__chunk_attr *a, int64_t tokens, int64_t C,
                                            bool backward)
{
    const int64_t columns = tokens / a->chunk * a->heads * a->rank;
    const int64_t spans = columns * (tp__chunk_spans(a) * (C / a->heads + 2) + 3);
    const int64_t weights = columns * a->chunk * (backward ? 2 : 1);
    return spans > weights ? spans : weights;
}

#endif
