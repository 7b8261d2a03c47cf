/* conv2d.c - the convolution module: a weight [out,in/groups,kh,kw], an optional bias, one op.
 *
 * Default initialisation is PyTorch's: weight and bias uniform in +-1/sqrt(in/groups kh kw). */
#include <math.h>
#include <tapegrad/nn.h>
#include <tapegrad/tape.h>

void tp_conv2d_init(tp_params *P, tp_conv2d_m *m, const char *name, int64_t in, int64_t out,
                    int64_t kernel, bool bias, tp_conv_cfg cfg)
{
    if (!tp_params_want_module(P, m, "conv2d")) return;
    const int64_t inputs = cfg.groups > 1 ? in / cfg.groups : in;
    const double taps = (double)inputs * (double)kernel * (double)kernel;
    const tp_init uniform = { TP_INIT_UNIFORM, taps > 0.0 ? 1.0 / sqrt(taps) : 0.0, 0.0 };

    m->path = tp_push(P, name);
    m->cfg = cfg;
    m->weight = tp_param(P, "weight", TP_SHAPE(out, inputs, kernel, kernel), uniform, 0);
    m->bias = bias ? tp_param(P, "bias", TP_SHAPE(out), uniform, 0) : TP_NONE;
    tp_pop(P);
}

tp_tensor tp_conv2d_forward(tp_tape *T, const tp_conv2d_m *m, tp_tensor x)
{
    if (!tp_want_module(T, m, "conv2d")) return TP_NONE;
    tp_enter(T, m->path);
    return tp_leave(T, tp_conv2d(T, x, m->weight, m->bias, m->cfg));
}
