/* mlp.c - a transformer layer's feed-forward part. fc1 fuses bias, activation and dropout; bias,
 * dropout and residual after fc2 are one pass. */
#include <tapegrad/nn.h>
#include <tapegrad/tape.h>

void tp_mlp_init(tp_params *P, tp_mlp_m *m, const char *fc1, const char *fc2, int64_t dim,
                 int64_t hidden, tp_act act, double dropout)
{
    if (!tp_params_want_module(P, m, "mlp")) return;
    m->path = tp_push(P, "");
    tp_linear_init(P, &m->fc1, fc1, dim, hidden, true);
    tp_linear_init(P, &m->fc2, fc2, hidden, dim, true);
    m->act = act;
    m->dropout = dropout;
    tp_pop(P);
}

static tp_tensor hidden(tp_tape *T, const tp_mlp_m *m, tp_tensor x)
{
    const tp_linear_m *fc1 = &m->fc1;
    if (fc1->lora) return tp_dropout(T, tp_linear_act(T, fc1, x, m->act), m->dropout);
    tp_enter(T, fc1->path);
    return tp_leave(T, tp_linear_dropout(T, x, fc1->weight, fc1->bias, m->act, m->dropout));
}

tp_tensor tp_mlp_forward(tp_tape *T, const tp_mlp_m *m, tp_tensor x, tp_tensor residual)
{
    if (!tp_want_module(T, m, "mlp")) return TP_NONE;
    tp_enter(T, m->path);
    const tp_tensor wide = hidden(T, m, x);

    if (!tp_given(residual))
        return tp_leave(T, tp_dropout(T, tp_linear_forward(T, &m->fc2, wide), m->dropout));

    const tp_tensor y = tp_linear_product(T, &m->fc2, wide);
    return tp_leave(T, tp_dropout_add(T, y, m->fc2.bias, residual, m->dropout));
}
