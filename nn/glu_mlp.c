/* glu_mlp.c - a transformer layer's gated feed-forward part. Gate, up and product are one op; bias,
 * dropout and residual after down are one pass. */
#include <tapegrad/nn.h>
#include <tapegrad/tape.h>

void tp_glu_mlp_init(tp_params *P, tp_glu_mlp_m *m, const char *const *names, int64_t dim,
                     int64_t hidden, bool bias, tp_glu_kind kind, double dropout)
{
    static const char *const llama[3] = { "gate_proj", "up_proj", "down_proj" };
    if (!tp_params_want_module(P, m, "glu_mlp")) return;
    if (!names) names = llama;
    *m = (tp_glu_mlp_m){ .kind = kind, .dropout = dropout };
    m->path = tp_push(P, "");
    tp_linear_init(P, &m->gate, names[0], dim, names[1] ? hidden : 2 * hidden, bias);
    if (names[1]) tp_linear_init(P, &m->up, names[1], dim, hidden, bias);
    tp_linear_init(P, &m->down, names[2], hidden, dim, bias);
    tp_pop(P);
}

static tp_tensor activate(tp_tape *T, tp_tensor gate, tp_glu_kind kind)
{
    switch (kind) {
    case TP_GLU_SIGMOID: return tp_sigmoid(T, gate);
    case TP_GLU_SILU: return tp_silu(T, gate);
    case TP_GLU_GELU: return tp_gelu(T, gate);
    default: return tp_relu(T, gate);
    }
}

static tp_tensor hidden(tp_tape *T, const tp_glu_mlp_m *m, tp_tensor x)
{
    const bool both = !tp_given(m->up.weight); /* in one weight */
    if (!m->gate.lora && (both || !m->up.lora))
        return tp_glu_linear(T, x, m->gate.weight, m->gate.bias, m->up.weight, m->up.bias, m->kind);
    const tp_tensor gate =
        both ? tp_linear_part(T, &m->gate, x, 0, 2) : tp_linear_forward(T, &m->gate, x);
    const tp_tensor up =
        both ? tp_linear_part(T, &m->gate, x, 1, 2) : tp_linear_forward(T, &m->up, x);
    return tp_mul(T, activate(T, gate, m->kind), up);
}

tp_tensor tp_glu_mlp_forward(tp_tape *T, const tp_glu_mlp_m *m, tp_tensor x, tp_tensor residual)
{
    if (!tp_want_module(T, m, "glu_mlp")) return TP_NONE;
    tp_enter(T, m->path);
    const tp_tensor wide = tp_dropout(T, hidden(T, m, x), m->dropout);
    if (!tp_given(residual))
        return tp_leave(T, tp_dropout(T, tp_linear_forward(T, &m->down, wide), m->dropout));
    const tp_tensor y = tp_linear_product(T, &m->down, wide);
    return tp_leave(T, tp_dropout_add(T, y, m->down.bias, residual, m->dropout));
}
