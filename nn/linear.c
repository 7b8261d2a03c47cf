/* linear.c - the affine module: a weight [out,in], an optional bias, one fused op.
 *
 * Initialises as PyTorch: weight and bias uniform in +-1/sqrt(in). */
#include <math.h>
#include <tapegrad/nn.h>
#include <tapegrad/tape.h>

void tp_linear_init(tp_params *P, tp_linear_m *m, const char *name, int64_t in, int64_t out,
                    bool bias)
{
    if (!tp_params_want_module(P, m, "linear")) return;
    const tp_init uniform = { TP_INIT_UNIFORM, in > 0 ? 1.0 / sqrt((double)in) : 0.0, 0.0 };

    m->path = tp_push(P, name);
    m->weight = tp_param(P, "weight", TP_SHAPE(out, in), uniform, 0);
    m->bias = bias ? tp_param(P, "bias", TP_SHAPE(out), uniform, 0) : TP_NONE;
    tp_pop(P);
}

tp_tensor tp_linear_forward(tp_tape *T, const tp_linear_m *m, tp_tensor x)
{
    if (!tp_want_module(T, m, "linear")) return TP_NONE;
    return tp_linear_act(T, m, x, TP_ACT_NONE);
}

tp_tensor tp_linear_act(tp_tape *T, const tp_linear_m *m, tp_tensor x, tp_act act)
{
    if (!tp_want_module(T, m, "linear")) return TP_NONE;
    tp_enter(T, m->path);
    return tp_leave(T, tp_linear(T, x, m->weight, m->bias, act));
}
