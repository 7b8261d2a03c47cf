/* conv.c - (transposed) convolution modules: a weight, an optional bias, one op.
 *
 * Initialises as PyTorch: weight and bias uniform in +-1/sqrt(n), n the product of the weight's
 * sizes without its first axis. */
#include <math.h>
#include <tapegrad/nn.h>
#include <tapegrad/tape.h>

typedef struct parts {
    const char *path;
    tp_tensor weight, bias;
} parts;

/* Declares a weight of shape s and, if out > 0, `out` biases. */
static parts declare(tp_params *P, const char *name, tp_shape s, int64_t out)
{
    double n = 1.0;
    parts m = { .bias = TP_NONE };
    for (int i = 1; i < s.ndim; i++) n *= (double)s.dim[i];
    const tp_init uniform = { TP_INIT_UNIFORM, n > 0.0 ? 1.0 / sqrt(n) : 0.0, 0.0 };
    m.path = tp_push(P, name);
    m.weight = tp_param(P, "weight", s, uniform, 0);
    if (out > 0) m.bias = tp_param(P, "bias", TP_SHAPE(out), uniform, 0);
    tp_pop(P);
    return m;
}

/* Channels per group. */
static int64_t per_group(int64_t channels, int64_t groups)
{
    return groups > 1 ? channels / groups : channels;
}

void tp_conv2d_init(tp_params *P, tp_conv2d_m *m, const char *name, int64_t in, int64_t out,
                    int64_t kernel, bool bias, tp_conv_cfg cfg)
{
    tp_conv2d_rect_init(P, m, name, in, out, (const int64_t[2]){ kernel, kernel }, bias, cfg);
}

void tp_conv2d_rect_init(tp_params *P, tp_conv2d_m *m, const char *name, int64_t in, int64_t out,
                         const int64_t kernel[2], bool bias, tp_conv_cfg cfg)
{
    if (!tp_params_want_module(P, m, "conv2d")) return;
    const tp_shape s = TP_SHAPE(out, per_group(in, cfg.groups), kernel[0], kernel[1]);
    const parts p = declare(P, name, s, bias ? out : 0);
    *m = (tp_conv2d_m){ p.path, p.weight, p.bias, cfg };
}

tp_tensor tp_conv2d_forward(tp_tape *T, const tp_conv2d_m *m, tp_tensor x)
{
    if (!tp_want_module(T, m, "conv2d")) return TP_NONE;
    tp_enter(T, m->path);
    return tp_leave(T, tp_conv2d(T, x, m->weight, m->bias, m->cfg));
}

tp_tensor tp_conv2d_forward_relu(tp_tape *T, const tp_conv2d_m *m, tp_tensor x, tp_tensor residual)
{
    if (!tp_want_module(T, m, "conv2d")) return TP_NONE;
    tp_enter(T, m->path);
    return tp_leave(T, tp_conv2d_relu(T, x, m->weight, m->bias, residual, m->cfg));
}

void tp_conv1d_init(tp_params *P, tp_conv1d_m *m, const char *name, int64_t in, int64_t out,
                    int64_t kernel, bool bias, tp_conv_cfg cfg)
{
    if (!tp_params_want_module(P, m, "conv1d")) return;
    const parts p =
        declare(P, name, TP_SHAPE(out, per_group(in, cfg.groups), kernel), bias ? out : 0);
    *m = (tp_conv1d_m){ p.path, p.weight, p.bias, cfg };
}

tp_tensor tp_conv1d_forward(tp_tape *T, const tp_conv1d_m *m, tp_tensor x)
{
    if (!tp_want_module(T, m, "conv1d")) return TP_NONE;
    tp_enter(T, m->path);
    return tp_leave(T, tp_conv1d(T, x, m->weight, m->bias, m->cfg));
}

void tp_conv_transpose2d_init(tp_params *P, tp_conv_transpose2d_m *m, const char *name, int64_t in,
                              int64_t out, int64_t kernel, bool bias, tp_conv_transpose_cfg cfg)
{
    if (!tp_params_want_module(P, m, "conv_transpose2d")) return;
    const tp_shape s = TP_SHAPE(in, per_group(out, cfg.groups), kernel, kernel);
    const parts p = declare(P, name, s, bias ? out : 0);
    *m = (tp_conv_transpose2d_m){ p.path, p.weight, p.bias, cfg };
}

tp_tensor tp_conv_transpose2d_forward(tp_tape *T, const tp_conv_transpose2d_m *m, tp_tensor x)
{
    if (!tp_want_module(T, m, "conv_transpose2d")) return TP_NONE;
    tp_enter(T, m->path);
    return tp_leave(T, tp_conv_transpose2d(T, x, m->weight, m->bias, m->cfg));
}

void tp_conv_transpose1d_init(tp_params *P, tp_conv_transpose1d_m *m, const char *name, int64_t in,
                              int64_t out, int64_t kernel, bool bias, tp_conv_transpose_cfg cfg)
{
    if (!tp_params_want_module(P, m, "conv_transpose1d")) return;
    const parts p =
        declare(P, name, TP_SHAPE(in, per_group(out, cfg.groups), kernel), bias ? out : 0);
    *m = (tp_conv_transpose1d_m){ p.path, p.weight, p.bias, cfg };
}

tp_tensor tp_conv_transpose1d_forward(tp_tape *T, const tp_conv_transpose1d_m *m, tp_tensor x)
{
    if (!tp_want_module(T, m, "conv_transpose1d")) return TP_NONE;
    tp_enter(T, m->path);
    return tp_leave(T, tp_conv_transpose1d(T, x, m->weight, m->bias, m->cfg));
}
