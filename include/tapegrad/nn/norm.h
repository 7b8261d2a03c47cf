/* nn/norm.h - modules of normalisations, channels last. See nn.h, which includes this. */
#ifndef TAPEGRAD_NN_NORM_H
#define TAPEGRAD_NN_NORM_H

#include <tapegrad/base.h>
#include <tapegrad/ops/attention.h>
#include <tapegrad/ops/layers.h>
#include <tapegrad/params.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Layer norm over the last axis: "weight" and "bias" [dim], initially 1 and 0. */
typedef struct tp_layernorm_m {
    const char *path;
    tp_tensor weight, bias;
    double eps;
} tp_layernorm_m;
TP_API void tp_layernorm_init(tp_params *P, tp_layernorm_m *m, const char *name, int64_t dim,
                              double eps);
TP_API tp_tensor tp_layernorm_forward(tp_tape *T, const tp_layernorm_m *m, tp_tensor x);

/* The same for two tensors, in one pass on a GPU (tp_layernorm_kv). */
TP_API tp_kv tp_layernorm_forward_kv(tp_tape *T, const tp_layernorm_m *m, tp_kv x);

/* RMS norm over the last axis: "weight" [dim], initially 1. */
typedef struct tp_rmsnorm_m {
    const char *path;
    tp_tensor weight;
    double eps;
} tp_rmsnorm_m;
TP_API void tp_rmsnorm_init(tp_params *P, tp_rmsnorm_m *m, const char *name, int64_t dim,
                            double eps);
TP_API tp_tensor tp_rmsnorm_forward(tp_tape *T, const tp_rmsnorm_m *m, tp_tensor x);

/* Batch norm per channel of x [...,dim]: "weight" and "bias" [dim], initially 1 and 0; buffers
 * "running_mean" and "running_var" [dim], initially 0 and 1, and "num_batches_tracked", the number
 * of training batches. The momentum is PyTorch's 0.1. */
typedef struct tp_batchnorm_m {
    const char *path;
    tp_tensor weight, bias, mean, var, batches;
    double momentum, eps;
} tp_batchnorm_m;
TP_API void tp_batchnorm_init(tp_params *P, tp_batchnorm_m *m, const char *name, int64_t dim,
                              double eps);
TP_API tp_tensor tp_batchnorm_forward(tp_tape *T, const tp_batchnorm_m *m, tp_tensor x);

/* Group norm of x [B,...,dim] in `groups` groups of neighbouring channels: "weight" and "bias"
 * [dim], initially 1 and 0. */
typedef struct tp_groupnorm_m {
    const char *path;
    tp_tensor weight, bias;
    int64_t groups;
    double eps;
} tp_groupnorm_m;
TP_API void tp_groupnorm_init(tp_params *P, tp_groupnorm_m *m, const char *name, int64_t dim,
                              int64_t groups, double eps);
TP_API tp_tensor tp_groupnorm_forward(tp_tape *T, const tp_groupnorm_m *m, tp_tensor x);

/* Instance norm of x [B,...,dim]; affine: with "weight" and "bias" [dim], initially 1 and 0.
 * PyTorch has affine = false by default. */
typedef struct tp_instancenorm_m {
    const char *path;
    tp_tensor weight, bias; /* TP_NONE unless affine */
    double eps;
} tp_instancenorm_m;
TP_API void tp_instancenorm_init(tp_params *P, tp_instancenorm_m *m, const char *name, int64_t dim,
                                 bool affine, double eps);
TP_API tp_tensor tp_instancenorm_forward(tp_tape *T, const tp_instancenorm_m *m, tp_tensor x);

#ifndef TP_NO_SITE
#include <tapegrad/sites/nn/norm.h>
#endif

#ifdef __cplusplus
}
#endif
#endif
