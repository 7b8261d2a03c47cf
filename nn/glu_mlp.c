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

tp_tensor tp_glu_mlp_forward(tp_tape *T, const tp_glu_mlp_m *m, tp_tensor x, tp_tensor residual)
{
    if (!tp_want_module(T, m, "glu_mlp")) return TP_NONE;
    tp_enter(T, m->path);
    const tp_tensor wide = tp_dropout(
        T, tp_glu_linear(T, x, m->gate.weight, m->gate.bias, m->up.weight, m->up.bias, m->kind),
        m->dropout);
    if (!tp_given(residual))
        return tp_leave(T, tp_dropout(T, tp_linear_forward(T, &m->down, wide), m->dropout));
    const tp_tensor y = tp_linear(T, wide, m->down.weight, TP_NONE, TP_ACT_NONE);
    return tp_leave(T, tp_dropout_add(T, y, m->down.bias, residual, m->dropout));
}
