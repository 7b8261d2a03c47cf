/* norms.h - attributes that the normalisations share with their kernels. */
#ifndef TP_NORMS_H
#define TP_NORMS_H

#include <stdbool.h>

typedef struct tp__rownorm_attr {
    double eps;
    bool centre; /* layer norm; RMS norm does not subtract the mean */
} tp__rownorm_attr;

typedef struct tp__batchnorm_attr {
    double momentum, eps;
} tp__batchnorm_attr;

typedef struct tp__instancenorm_attr {
    double eps;
} tp__instancenorm_attr;

typedef struct tp__standardize_attr {
    double eps;
    bool biased; /* biased variance, with eps under the root */
} tp__standardize_attr;

#endif
