/* conv_norm.h - a convolution and a layer norm, with which image models embed patches and reduce
 * maps. */
#ifndef TAPEGRAD_CONV_NORM_H
#define TAPEGRAD_CONV_NORM_H

#include <tapegrad/tapegrad.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tp_conv_norm {
    const char *path;
    tp_conv2d_m conv;
    tp_layernorm_m norm;
} tp_conv_norm;

typedef struct tp_conv_norm_cfg {
    const char *conv, *norm; /* names of the parts below the module's; NULL: "proj" and "norm" */
    int64_t in, out, kernel, stride, pad;
    double eps; /* of the norm; 0: 1e-5 */
} tp_conv_norm_cfg;
TP_API void tp_conv_norm_init(tp_params *P, tp_conv_norm *m, const char *name,
                              tp_conv_norm_cfg cfg);
/* [B,H,W,in] -> [B,H',W',out], H' = floor((H + 2 pad - kernel) / stride) + 1 */
TP_API tp_tensor tp_conv_norm_forward(tp_tape *T, const tp_conv_norm *m, tp_tensor x);

#ifndef TP_NO_SITE
#define tp_conv_norm_forward(T, ...) tp_conv_norm_forward(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#endif

#ifdef __cplusplus
}
#endif
#endif
