/* sampling.h - choosing the next token from logits. */
#ifndef SAMPLING_H
#define SAMPLING_H

#include <stdbool.h>
#include <stdint.h>

typedef struct sampler {
    double temperature; /* 0: always the most likely token                    */
    int64_t top_k;      /* only among the k most likely; 0: all               */
    double top_p;       /* only among the most likely that together have it   */
    uint64_t random;    /* state, begins as the seed                          */
} sampler;

/* The next token among those with allowed[id], or -1 if no logit of them is a number. */
int64_t sample(sampler *s, const float *logits, const bool *allowed, int64_t n);

#endif
