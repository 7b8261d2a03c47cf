/* convnet.h - the convolutional baseline: five 3 x 3 convolutions with batch norm and ReLU, the mean over
 * the map, and a linear layer. Images are [B,H,W,3]. */
#ifndef TAPEGRAD_CONVNET_H
#define TAPEGRAD_CONVNET_H

#include <tapegrad/model.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TP_CONVNET_LAYERS = 5 };

typedef struct tp_convnet_cfg {
    int64_t image[2], classes; /* image: height and width, for costs only    */
    int64_t width; /* channels of the first layer; they double per layer up to 8 width */
} tp_convnet_cfg;

/* True if cfg describes a possible model; else why receives a sentence that says what is wrong. */
TP_API bool tp_convnet_cfg_check(const tp_convnet_cfg *cfg, char *why, size_t size);

typedef struct tp_convnet {
    const char *path;
    const tp_params *params;
    tp_convnet_cfg cfg;
    tp_conv2d_m conv[TP_CONVNET_LAYERS];
    tp_batchnorm_m norm[TP_CONVNET_LAYERS];
    tp_linear_m head;
} tp_convnet;

/* Declares the model with default initialisation. An impossible cfg fails P. */
TP_API void tp_convnet_init(tp_params *P, tp_convnet *m, const char *name, tp_convnet_cfg cfg);

/* images of any size -> logits [B,classes]. The first layer keeps the image's size, the others halve it. */
TP_API tp_tensor tp_convnet_forward(tp_tape *T, const tp_convnet *m, tp_tensor images);

extern TP_API const tp_model tp_model_convnet;

#ifndef TP_NO_SITE
#define tp_convnet_forward(T, ...) tp_convnet_forward(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#endif

#ifdef __cplusplus
}
#endif
#endif
