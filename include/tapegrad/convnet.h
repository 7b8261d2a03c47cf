/* convnet.h - the convolutional baseline: five 3 x 3 convolutions with batch norm and ReLU, the
 * mean over the map, and a linear layer. Images are [B,H,W,3]. */
#ifndef TAPEGRAD_CONVNET_H
#define TAPEGRAD_CONVNET_H

#include <tapegrad/model.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TP_CONVNET_LAYERS = 5 };

typedef struct tp_convnet_cfg {
    int64_t image[2], classes; /* image: height and width, for costs only */
    int64_t width; /* channels of the first layer; they double per layer up to 8 width */
} tp_convnet_cfg;

/* Images may have any size. The first layer keeps it, the others halve it. */
typedef struct tp_convnet {
    const char *path;
    const tp_params *params;
    tp_convnet_cfg cfg;
    tp_conv2d_m conv[TP_CONVNET_LAYERS];
    tp_batchnorm_m norm[TP_CONVNET_LAYERS];
    tp_linear_m head;
} tp_convnet;

extern TP_API const tp_model tp_model_convnet;

#ifdef __cplusplus
}
#endif
#endif
