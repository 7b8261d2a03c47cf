/* nn/conv.h - modules of convolutions, channels last. See nn.h, which includes this. */
#ifndef TAPEGRAD_NN_CONV_H
#define TAPEGRAD_NN_CONV_H

#include <tapegrad/base.h>
#include <tapegrad/ops/layers.h>
#include <tapegrad/params.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Convolution of x [B,H,W,in]: "weight" [out,in/groups,kernel,kernel], "bias" [out]. groups = in =
 * out is a depthwise convolution. */
typedef struct tp_conv2d_m {
    const char *path;
    tp_tensor weight, bias; /* bias TP_NONE: none */
    tp_conv_cfg cfg;
} tp_conv2d_m;
TP_API void tp_conv2d_init(tp_params *P, tp_conv2d_m *m, const char *name, int64_t in, int64_t out,
                           int64_t kernel, bool bias, tp_conv_cfg cfg);
/* With a kernel of kernel[0] rows and kernel[1] columns. */
TP_API void tp_conv2d_rect_init(tp_params *P, tp_conv2d_m *m, const char *name, int64_t in,
                                int64_t out, const int64_t kernel[2], bool bias, tp_conv_cfg cfg);
TP_API tp_tensor tp_conv2d_forward(tp_tape *T, const tp_conv2d_m *m, tp_tensor x);
/* tp_conv2d_relu */
TP_API tp_tensor tp_conv2d_forward_relu(tp_tape *T, const tp_conv2d_m *m, tp_tensor x,
                                        tp_tensor residual);

/* Convolution of x [B,N,in]: "weight" [out,in/groups,kernel], "bias" [out]; see tp_conv1d. */
typedef struct tp_conv1d_m {
    const char *path;
    tp_tensor weight, bias; /* bias TP_NONE: none */
    tp_conv_cfg cfg;
} tp_conv1d_m;
TP_API void tp_conv1d_init(tp_params *P, tp_conv1d_m *m, const char *name, int64_t in, int64_t out,
                           int64_t kernel, bool bias, tp_conv_cfg cfg);
TP_API tp_tensor tp_conv1d_forward(tp_tape *T, const tp_conv1d_m *m, tp_tensor x);

/* Transposed convolutions, of x [B,H,W,in]: "weight" [in,out/groups,kernel,kernel], and of x
 * [B,N,in]: "weight" [in,out/groups,kernel]; "bias" [out]. */
typedef struct tp_conv_transpose2d_m {
    const char *path;
    tp_tensor weight, bias; /* bias TP_NONE: none */
    tp_conv_transpose_cfg cfg;
} tp_conv_transpose2d_m;
TP_API void tp_conv_transpose2d_init(tp_params *P, tp_conv_transpose2d_m *m, const char *name,
                                     int64_t in, int64_t out, int64_t kernel, bool bias,
                                     tp_conv_transpose_cfg cfg);
TP_API tp_tensor tp_conv_transpose2d_forward(tp_tape *T, const tp_conv_transpose2d_m *m,
                                             tp_tensor x);
typedef struct tp_conv_transpose1d_m {
    const char *path;
    tp_tensor weight, bias; /* bias TP_NONE: none */
    tp_conv_transpose_cfg cfg;
} tp_conv_transpose1d_m;
TP_API void tp_conv_transpose1d_init(tp_params *P, tp_conv_transpose1d_m *m, const char *name,
                                     int64_t in, int64_t out, int64_t kernel, bool bias,
                                     tp_conv_transpose_cfg cfg);
TP_API tp_tensor tp_conv_transpose1d_forward(tp_tape *T, const tp_conv_transpose1d_m *m,
                                             tp_tensor x);

#ifndef TP_NO_SITE
#include <tapegrad/sites/nn/conv.h>
#endif

#ifdef __cplusplus
}
#endif
#endif
