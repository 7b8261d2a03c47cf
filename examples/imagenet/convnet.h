/* convnet.h - the baseline: five convolutions of 3 x 3 with batch norm and ReLU, the mean over the
 * map, a linear layer. */
#ifndef CONVNET_H
#define CONVNET_H

#include <tapegrad/tapegrad.h>

enum { CONVNET_LAYERS = 5 };

typedef struct convnet_cfg {
    int64_t classes, width; /* channels of the first layer; each of the next has twice, up to 8 */
} convnet_cfg;

typedef struct convnet {
    const char *path;
    tp_conv2d_m conv[CONVNET_LAYERS];
    tp_batchnorm_m norm[CONVNET_LAYERS];
    tp_linear_m head;
} convnet;

void convnet_init(tp_params *P, convnet *m, const char *name, convnet_cfg cfg);

/* [B,H,W,3] of any size -> [B,classes]. The first layer keeps the size, the others halve it. */
tp_tensor convnet_forward(tp_tape *T, const convnet *m, tp_tensor images);
double convnet_macs(convnet_cfg cfg, int64_t size); /* multiply-adds of a picture */

#endif
