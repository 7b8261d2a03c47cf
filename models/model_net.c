/* model_net.c - any model of the table with its parameters, ready to run. */
#include <stdlib.h>
#include <string.h>

#include "model_inner.h"

struct tp_net {
    tp_model_cfg cfg;
    const tp_params *params;
    void *module;
};

static tp_net no_memory; /* returned for a net that could not be allocated */

/* N, or no_memory if N is NULL. */
static const tp_net *some(const tp_net *N)
{
    return N ? N : &no_memory;
}

tp_net *tp_net_new(tp_params *P, const char *name, const tp_model_cfg *c)
{
    tp_net *N = calloc(1, sizeof *N);
    const tp_model *model = c ? c->model : NULL;
    void *module = model ? calloc(1, model->size) : NULL;

    if (!model)
        tp_params_raise(P, TP_E_VALUE, "no model has been chosen");
    else if (!N || !module)
        tp_params_raise(P, TP_E_MEMORY, "%s: out of host memory", model->name);
    if (!N || !module) {
        free(N);
        free(module);
        return &no_memory;
    }
    *N = (tp_net){ *c, P, module };
    model->init(P, module, name, &c->at);
    return N;
}

void tp_net_free(tp_net *N)
{
    if (!N || N == &no_memory) return;
    free(N->module);
    free(N);
}

const tp_model_cfg *tp_net_cfg(const tp_net *N)
{
    return &some(N)->cfg;
}

void *tp_net_module(const tp_net *N)
{
    return some(N)->module;
}

tp_tensor tp_net_forward(tp_tape *T, const tp_net *N, void *state, tp_tensor x)
{
    if (!tp_want_module(T, N, "net")) return TP_NONE;
    if (!N->module)
        return tp_raise(T, TP_E_STATE, "the model could not be created: see its tp_params");
    if (!tp_params_ok(N->params)) return tp_raise(T, TP_E_STATE, "%s", tp_params_why(N->params));
    if (N->cfg.model->state_size && !state)
        return tp_raise(T, TP_E_VALUE, "%s carries a state from call to call: see tp_net_state_new",
                        N->cfg.model->name);
    return N->cfg.model->forward(T, N->module, state, x);
}

tp_tensor tp_net_heads(tp_tape *T, const tp_net *N, tp_tensor x, tp_tensor *dist)
{
    if (!dist) {
        tp_want(T, dist, "net", "the logits of the second head");
        return TP_NONE;
    }
    *dist = TP_NONE;
    if (!tp_want_module(T, N, "net")) return TP_NONE;
    const bool two = N->module && tp_params_ok(N->params) && N->cfg.model->heads;
    if (two) return N->cfg.model->heads(T, N->module, x, dist);
    return *dist = tp_net_forward(T, N, NULL, x);
}

void *tp_net_state_new(const tp_net *N)
{
    N = some(N);
    return N->module && N->cfg.model->state_size ? calloc(1, N->cfg.model->state_size) : NULL;
}

void tp_net_state_free(const tp_net *N, tp_tape *T, void *state)
{
    if (state && N && N->cfg.model->state_clear) N->cfg.model->state_clear(T, state);
    free(state);
}

bool tp_net_load(tp_params *P, const tp_net *N, tp_file *F, bool resized)
{
    if (!tp_params_want_module(P, N, "net") || !N->module) return false; /* P has the reason */
    tp__published_enter(N->cfg.model, P, F, NULL, 0);
    const tp_model *m = N->cfg.model;
    if (resized && m->load) return m->load(P, N->module, F);
    return tp_params_read(P, F, "", &(tp_load_opts){ .convert = true, .may_lack = m->may_lack }) &&
           (!m->fill || m->fill(P, N->module, F));
}
