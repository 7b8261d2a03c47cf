/* norm.c - layer normalisation with scale and shift, and the pair of them that Transformer-LS
 * applies to local and to compressed keys and values. */
#include <tapegrad/nn.h>
#include <tapegrad/tape.h>

void tp_layernorm_init(tp_params *P, tp_layernorm_m *m, const char *name, int64_t dim, double eps)
{
    m->path = tp_push(P, name);
    m->weight = tp_param(P, "weight", TP_SHAPE(dim), (tp_init){ TP_INIT_CONST, 1.0, 0.0 }, 0);
    m->bias = tp_param(P, "bias", TP_SHAPE(dim), (tp_init){ .kind = TP_INIT_ZERO }, 0);
    m->eps = eps;
    tp_pop(P);
}

tp_tensor tp_layernorm_forward(tp_tape *T, const tp_layernorm_m *m, tp_tensor x)
{
    tp_enter(T, m->path);
    return tp_leave(T, tp_layernorm(T, x, m->weight, m->bias, m->eps));
}

void tp_dualln_init(tp_params *P, tp_dualln_m *m, const char *local, const char *global,
                    int64_t dim, double eps)
{
    tp_layernorm_init(P, &m->local, local, dim, eps);
    tp_layernorm_init(P, &m->global, global, dim, eps);
}
