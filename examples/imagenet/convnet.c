/* convnet.c - see the header. */
#include "convnet.h"

#include <stdio.h>

void convnet_init(tp_params *P, convnet *m, const char *name, convnet_cfg cfg)
{
    int64_t in = 3, out = cfg.width;
    m->path = tp_push(P, name);
    for (int i = 0; i < CONVNET_LAYERS; i++) {
        char layer[16];
        const int64_t stride = i > 0 ? 2 : 1;
        snprintf(layer, sizeof layer, "conv.%d", i);
        tp_conv2d_init(P, &m->conv[i], layer, in, out, 3, false,
                       &(tp_conv2d_opts){ .stride = { stride, stride }, .pad = { 1, 1 } });
        snprintf(layer, sizeof layer, "norm.%d", i);
        tp_batchnorm_init(P, &m->norm[i], layer, out, 1e-5);
        in = out;
        if (out < 8 * cfg.width) out *= 2;
    }
    tp_linear_init(P, &m->head, "head", in, cfg.classes, true);
    tp_pop(P);
}

tp_tensor convnet_forward(tp_tape *T, const convnet *m, tp_tensor images)
{
    tp_enter(T, m->path);
    tp_tensor x = images;
    for (int i = 0; i < CONVNET_LAYERS; i++)
        x = tp_relu(T, tp_batchnorm_forward(T, &m->norm[i], tp_conv2d_forward(T, &m->conv[i], x)));
    x = tp_mean(T, tp_mean(T, x, 1), 1);
    return tp_leave(T, tp_linear_forward(T, &m->head, x));
}

double convnet_macs(convnet_cfg cfg, int64_t size)
{
    int64_t in = 3, out = cfg.width, side = size, macs = 0;
    for (int i = 0; i < CONVNET_LAYERS; i++) {
        if (i > 0) side = (side + 1) / 2;
        macs += side * side * 9 * in * out;
        in = out;
        if (out < 8 * cfg.width) out *= 2;
    }
    return (double)(macs + in * cfg.classes);
}
