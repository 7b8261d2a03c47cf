/* sampling.h - choosing the next token from logits. */
#ifndef SAMPLING_H
#define SAMPLING_H

#include <stdbool.h>
#include <stdint.h>

typedef struct sampler {
    double temperature; /* 0: always the most likely token                           */
    int64_t top_k;      /* sample among the k most likely; 0: all                    */
    double top_p;       /* sample among the most likely whose probabilities reach it */
    uint64_t random;    /* state, initially the seed                                 */
} sampler;

/* The next token among those with allowed[id]; -1 if none of their logits is finite. */
int64_t sample(sampler *s, const float *logits, const bool *allowed, int64_t n);

#endif
