/* norm.c - layer and batch normalisation with scale and shift, and the pair of layer norms that
 * Transformer-LS applies to local and to compressed keys and values. */
#include <tapegrad/nn.h>
#include <tapegrad/tape.h>

void tp_layernorm_init(tp_params *P, tp_layernorm_m *m, const char *name, int64_t dim, double eps)
{
    if (!tp_params_want_module(P, m, "layernorm")) return;
    m->path = tp_push(P, name);
    m->weight = tp_param(P, "weight", TP_SHAPE(dim), (tp_init){ TP_INIT_CONST, 1.0, 0.0 }, 0);
    m->bias = tp_param(P, "bias", TP_SHAPE(dim), (tp_init){ .kind = TP_INIT_ZERO }, 0);
    m->eps = eps;
    tp_pop(P);
}

tp_tensor tp_layernorm_forward(tp_tape *T, const tp_layernorm_m *m, tp_tensor x)
{
    if (!tp_want_module(T, m, "layernorm")) return TP_NONE;
    tp_enter(T, m->path);
    return tp_leave(T, tp_layernorm(T, x, m->weight, m->bias, m->eps));
}

void tp_dualln_init(tp_params *P, tp_dualln_m *m, const char *local, const char *global,
                    int64_t dim, double eps)
{
    if (!tp_params_want_module(P, m, "dualln")) return;
    tp_layernorm_init(P, &m->local, local, dim, eps);
    tp_layernorm_init(P, &m->global, global, dim, eps);
}

void tp_batchnorm_init(tp_params *P, tp_batchnorm_m *m, const char *name, int64_t dim, double eps)
{
    if (!tp_params_want_module(P, m, "batchnorm")) return;
    const tp_init zero = { .kind = TP_INIT_ZERO }, one = { TP_INIT_CONST, 1.0, 0.0 };

    m->path = tp_push(P, name);
    m->weight = tp_param(P, "weight", TP_SHAPE(dim), one, 0);
    m->bias = tp_param(P, "bias", TP_SHAPE(dim), zero, 0);
    m->mean = tp_param(P, "running_mean", TP_SHAPE(dim), zero, TP_BUFFER);
    m->var = tp_param(P, "running_var", TP_SHAPE(dim), one, TP_BUFFER);
    m->batches = tp_buffer(P, "num_batches_tracked", TP_I64, TP_SCALAR, NULL);
    m->momentum = 0.1;
    m->eps = eps;
    tp_pop(P);
}

tp_tensor tp_batchnorm_forward(tp_tape *T, const tp_batchnorm_m *m, tp_tensor x)
{
    if (!tp_want_module(T, m, "batchnorm")) return TP_NONE;
    tp_enter(T, m->path);
    return tp_leave(T, tp_batchnorm(T, x, m->weight, m->bias, m->mean, m->var, m->batches,
                                    m->momentum, m->eps));
}
