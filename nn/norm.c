/* norm.c - norms with scale and shift: layer, RMS, batch, group and instance norm, and the two
 * layer norms of Transformer-LS for local and compressed keys and values. */
#include <tapegrad/nn.h>
#include <tapegrad/tape.h>

static tp_tensor ones(tp_params *P, const char *name, int64_t n)
{
    return tp_param(P, name, TP_SHAPE(n), (tp_init){ TP_INIT_CONST, 1.0, 0.0 }, 0);
}

static tp_tensor zeros(tp_params *P, const char *name, int64_t n)
{
    return tp_param(P, name, TP_SHAPE(n), (tp_init){ .kind = TP_INIT_ZERO }, 0);
}

void tp_layernorm_init(tp_params *P, tp_layernorm_m *m, const char *name, int64_t dim, double eps)
{
    if (!tp_params_want_module(P, m, "layernorm")) return;
    m->path = tp_push(P, name);
    m->weight = ones(P, "weight", dim);
    m->bias = zeros(P, "bias", dim);
    m->eps = eps;
    tp_pop(P);
}

tp_tensor tp_layernorm_forward(tp_tape *T, const tp_layernorm_m *m, tp_tensor x)
{
    if (!tp_want_module(T, m, "layernorm")) return TP_NONE;
    tp_enter(T, m->path);
    return tp_leave(T, tp_layernorm(T, x, m->weight, m->bias, m->eps));
}

tp_kv tp_layernorm_forward_kv(tp_tape *T, const tp_layernorm_m *m, tp_kv x)
{
    if (!tp_want_module(T, m, "layernorm")) return (tp_kv){ TP_NONE, TP_NONE };
    tp_enter(T, m->path);
    const tp_kv y = tp_layernorm_kv(T, x.k, x.v, m->weight, m->bias, m->eps);
    tp_leave_n(T, 2, (tp_tensor[]){ y.k, y.v });
    return y;
}

void tp_dualln_init(tp_params *P, tp_dualln_m *m, const char *local, const char *global,
                    int64_t dim, double eps)
{
    if (!tp_params_want_module(P, m, "dualln")) return;
    tp_layernorm_init(P, &m->local, local, dim, eps);
    tp_layernorm_init(P, &m->global, global, dim, eps);
}

void tp_rmsnorm_init(tp_params *P, tp_rmsnorm_m *m, const char *name, int64_t dim, double eps)
{
    if (!tp_params_want_module(P, m, "rmsnorm")) return;
    m->path = tp_push(P, name);
    m->weight = ones(P, "weight", dim);
    m->eps = eps;
    tp_pop(P);
}

tp_tensor tp_rmsnorm_forward(tp_tape *T, const tp_rmsnorm_m *m, tp_tensor x)
{
    if (!tp_want_module(T, m, "rmsnorm")) return TP_NONE;
    tp_enter(T, m->path);
    return tp_leave(T, tp_rmsnorm(T, x, m->weight, m->eps));
}

void tp_groupnorm_init(tp_params *P, tp_groupnorm_m *m, const char *name, int64_t dim,
                       int64_t groups, double eps)
{
    if (!tp_params_want_module(P, m, "groupnorm")) return;
    m->path = tp_push(P, name);
    m->weight = ones(P, "weight", dim);
    m->bias = zeros(P, "bias", dim);
    m->groups = groups;
    m->eps = eps;
    tp_pop(P);
}

tp_tensor tp_groupnorm_forward(tp_tape *T, const tp_groupnorm_m *m, tp_tensor x)
{
    if (!tp_want_module(T, m, "groupnorm")) return TP_NONE;
    tp_enter(T, m->path);
    return tp_leave(T, tp_groupnorm(T, x, m->groups, m->weight, m->bias, m->eps));
}

void tp_instancenorm_init(tp_params *P, tp_instancenorm_m *m, const char *name, int64_t dim,
                          bool affine, double eps)
{
    if (!tp_params_want_module(P, m, "instancenorm")) return;
    m->path = tp_push(P, name);
    m->weight = affine ? ones(P, "weight", dim) : TP_NONE;
    m->bias = affine ? zeros(P, "bias", dim) : TP_NONE;
    m->eps = eps;
    tp_pop(P);
}

tp_tensor tp_instancenorm_forward(tp_tape *T, const tp_instancenorm_m *m, tp_tensor x)
{
    if (!tp_want_module(T, m, "instancenorm")) return TP_NONE;
    tp_enter(T, m->path);
    return tp_leave(T, tp_instancenorm(T, x, m->weight, m->bias, m->eps));
}

void tp_batchnorm_init(tp_params *P, tp_batchnorm_m *m, const char *name, int64_t dim, double eps)
{
    if (!tp_params_want_module(P, m, "batchnorm")) return;
    const tp_init zero = { .kind = TP_INIT_ZERO }, one = { TP_INIT_CONST, 1.0, 0.0 };

    m->path = tp_push(P, name);
    m->weight = ones(P, "weight", dim);
    m->bias = zeros(P, "bias", dim);
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
