/* norms.h - attributes shared by the normalisations and their kernels. */
#ifndef TP_NORMS_H
#define TP_NORMS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tp__rownorm_attr {
    double eps;
    bool centre; /* layer norm; RMS norm does not subtract the mean */
} tp__rownorm_attr;

/* Inputs of layer norm, and of RMS norm without b. v: layernorm_kv only, whose outputs are those of
 * x and of v; the statistics of all rows follow the outputs. */
enum { ROWNORM_X, ROWNORM_W, ROWNORM_B, ROWNORM_V, ROWNORM_NX };

typedef struct tp__batchnorm_attr {
    double momentum, eps;
} tp__batchnorm_attr;

typedef struct tp__groupnorm_attr {
    int64_t groups;
    bool each; /* instance norm: a group per channel; groups is 0 */
    double eps;
} tp__groupnorm_attr;

/* Channels of a group of C. */
static inline int64_t tp__group_size(const tp__groupnorm_attr *at, int64_t C)
{
    return at->each || C == 0 ? 1 : C / at->groups;
}

typedef struct tp__standardize_attr {
    double eps;
    bool biased; /* biased variance, with eps under the root */
} tp__standardize_attr;

#endif
