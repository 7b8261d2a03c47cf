/* conv_norm.c - a convolution with bias and a layer norm over the channels. */
#include <tapegrad/conv_norm.h>

void tp_conv_norm_init(tp_params *P, tp_conv_norm *m, const char *name, tp_conv_norm_cfg c)
{
    if (!tp_params_want_module(P, m, "conv_norm")) return;
    const tp_conv_cfg conv = { .stride = { c.stride, c.stride }, .pad = { c.pad, c.pad } };
    m->path = tp_push(P, name);
    tp_conv2d_init(P, &m->conv, c.conv ? c.conv : "proj", c.in, c.out, c.kernel, true, conv);
    tp_layernorm_init(P, &m->norm, c.norm ? c.norm : "norm", c.out, c.eps > 0.0 ? c.eps : 1e-5);
    tp_pop(P);
}

tp_tensor tp_conv_norm_forward(tp_tape *T, const tp_conv_norm *m, tp_tensor x)
{
    if (!tp_want_module(T, m, "conv_norm")) return TP_NONE;
    tp_enter(T, m->path);
    return tp_leave(T, tp_layernorm_forward(T, &m->norm, tp_conv2d_forward(T, &m->conv, x)));
}
