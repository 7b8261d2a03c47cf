/* linear.c - the affine module: a weight [out,in], an optional bias, one fused op; with an
 * adaptation (lora.h) three products.
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
    m->lora = tp_lora_declare(P, m->weight, false);
    tp_pop(P);
}

void tp_linear_tie(tp_params *P, tp_linear_m *m, const char *name, tp_tensor weight)
{
    if (!tp_params_want_module(P, m, "linear")) return;
    m->path = tp_push(P, name);
    m->weight = weight;
    m->bias = TP_NONE;
    tp_tie(P, "weight", weight);
    m->lora = tp_lora_declare(P, weight, true);
    tp_pop(P);
}

/* ---- the adaptation ---- */

/* (alpha / rank) dropout(x) A^T B^T, with a part of the rows of B. */
static tp_tensor low_rank(tp_tape *T, const tp_lora_m *l, tp_tensor x, tp_tensor b)
{
    const tp_tensor low = tp_linear(T, tp_dropout(T, x, l->dropout), l->a, TP_NONE, TP_ACT_NONE);
    return tp_linear(T, tp_scale(T, low, l->scale), b, TP_NONE, TP_ACT_NONE);
}

static tp_tensor activate(tp_tape *T, tp_tensor x, tp_act act)
{
    switch (act) {
    case TP_ACT_RELU: return tp_relu(T, x);
    case TP_ACT_GELU: return tp_gelu(T, x);
    case TP_ACT_QUICK_GELU: return tp_quick_gelu(T, x);
    case TP_ACT_SILU: return tp_silu(T, x);
    case TP_ACT_GELU_TANH: return tp_gelu_tanh(T, x);
    case TP_ACT_TANH: return tp_tanh(T, x);
    case TP_ACT_SIGMOID: return tp_sigmoid(T, x);
    default: return x;
    }
}

/* ---- forward ---- */

tp_tensor tp_linear_forward(tp_tape *T, const tp_linear_m *m, tp_tensor x)
{
    if (!tp_want_module(T, m, "linear")) return TP_NONE;
    return tp_linear_act(T, m, x, TP_ACT_NONE);
}

tp_tensor tp_linear_act(tp_tape *T, const tp_linear_m *m, tp_tensor x, tp_act act)
{
    if (!tp_want_module(T, m, "linear")) return TP_NONE;
    tp_enter(T, m->path);
    if (!m->lora) return tp_leave(T, tp_linear(T, x, m->weight, m->bias, act));
    const tp_tensor y = tp_linear(T, x, m->weight, m->bias, TP_ACT_NONE);
    return tp_leave(T, activate(T, tp_add(T, y, low_rank(T, m->lora, x, m->lora->b)), act));
}

tp_tensor tp_linear_product(tp_tape *T, const tp_linear_m *m, tp_tensor x)
{
    if (!tp_want_module(T, m, "linear")) return TP_NONE;
    tp_enter(T, m->path);
    const tp_tensor y = tp_linear(T, x, m->weight, TP_NONE, TP_ACT_NONE);
    return tp_leave(T, m->lora ? tp_add(T, y, low_rank(T, m->lora, x, m->lora->b)) : y);
}

tp_tensor tp_linear_part(tp_tape *T, const tp_linear_m *m, tp_tensor x, int part, int parts)
{
    if (!tp_want_module(T, m, "linear")) return TP_NONE;
    tp_enter(T, m->path);
    const int64_t rows = parts > 0 ? tp_dim(m->weight, 0) / parts : 0;
    const tp_tensor w = tp_slice(T, m->weight, 0, part * rows, rows);
    const tp_tensor b = tp_given(m->bias) ? tp_slice(T, m->bias, 0, part * rows, rows) : TP_NONE;
    const tp_tensor y = tp_linear(T, x, w, b, TP_ACT_NONE);
    if (!m->lora) return tp_leave(T, y);
    const tp_tensor own = tp_slice(T, m->lora->b, 0, part * rows, rows);
    return tp_leave(T, tp_add(T, y, low_rank(T, m->lora, x, own)));
}

tp_tensor tp_linear_transposed(tp_tape *T, const tp_linear_m *m, tp_tensor u)
{
    if (!tp_want_module(T, m, "linear")) return TP_NONE;
    tp_enter(T, m->path);
    const tp_tensor x = tp_matmul(T, u, m->weight);
    const tp_lora_m *l = m->lora;
    if (!l) return tp_leave(T, x);
    const tp_tensor low = tp_matmul(T, tp_scale(T, tp_matmul(T, u, l->b), l->scale), l->a);
    return tp_leave(T, tp_add(T, x, tp_dropout(T, low, l->dropout)));
}
