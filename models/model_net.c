/* model_net.c - builds, runs and loads any model of the table, and measures its cost. */
#include <stdlib.h>
#include <string.h>
#include <tapegrad/observe.h>

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
    if (!tp_params_want_module(P, N, "net") || !N->module) return false; /* P has the error */
    tp__published_enter(N->cfg.model, P, F, NULL, 0);
    const tp_model *m = N->cfg.model;
    if (resized && m->load) return m->load(P, N->module, F);
    return tp_params_read(P, F, "", &(tp_load_opts){ .convert = true, .may_lack = m->may_lack }) &&
           (!m->fill || m->fill(P, N->module, F));
}

/* ---- costs ----
 *
 * A pass on a dry device measures a sample: ops report their multiply-adds, and the tape reports
 * what it keeps for backward. */

/* A model training on a dry device, which counts memory to the byte. */
typedef struct trial {
    const tp_model_cfg *cfg;
    int64_t samples;
    tp_device *D;
    tp_params *P;
    tp_tape *T;
    tp_net *N;
    void *state;
} trial;

static trial trial_open(const tp_model_cfg *c, int64_t samples, tp_dtype compute)
{
    trial t = { .cfg = c, .samples = samples };
    t.D = tp_device_open("cpu", &(tp_device_opts){ .threads = 1, .dry = true, .exact = true });
    t.P = tp_params_new(t.D, &(tp_params_opts){ .blank = true });
    t.T = tp_tape_new(t.D, &(tp_tape_opts){ .compute = compute, .train = true });
    t.N = tp_net_new(t.P, "", c);
    t.state = tp_net_state_new(t.N);
    return t;
}

static void trial_close(trial *t)
{
    tp_net_state_free(t->N, t->T, t->state);
    tp_tape_free(t->T);
    tp_net_free(t->N);
    tp_params_free(t->P);
    tp_device_close(t->D);
}

static double live(const trial *t)
{
    return (double)tp_device_stats(t->D).live_bytes;
}

/* Runs the model once; returns the bytes kept until a reset. */
static double run(trial *t, int64_t tokens)
{
    const tp_dtype dtype = t->cfg->model->input == TP_IMAGES ? TP_F32 : TP_I32;
    const tp_tensor x = tp_full(t->T, dtype, tp_model_input_shape(t->cfg, t->samples, tokens), 0.0);
    tp_net_forward(t->T, t->N, t->state, x);
    const double ids = dtype == TP_I32 ? 4.0 * (double)tp_numel(x) : 0.0, kept = live(t) - ids;
    tp_observe(t->T, NULL, NULL);
    tp_reset(t->T);
    return kept - live(t);
}

/* ---- counts ---- */

/* Extra multiply-adds if edge windows were complete. */
static double beyond_edges(const tp_seen *s, double macs)
{
    const tp_window_attn_cfg *a = s->attr;
    if (a->edge != TP_EDGE_MASK || a->block != TP_BLOCK_ALL || a->window[0] == 0) return 0.0;
    const double width = (double)tp_dim(s->x[0], -1), all = (double)tp_numel(s->y[0]) / width;
    const double low = tp_given(s->x[3]) ? (double)tp_dim(s->x[3], 1) : 0.0;
    const double keys = (double)a->global + low;
    double whole = 1.0;
    for (int i = 0; i < 2; i++) whole *= (double)(a->window[i] + 2 * a->halo[i]);
    return 2.0 * width * all * (keys + whole) - macs;
}

static void count(void *env, tp_tape *T, const tp_seen *s)
{
    tp_cost *cost = env;
    const double macs = tp_seen_macs(s), made = (double)tp_numel(s->y[0]);
    (void)T;
    cost->macs += macs;
    if (strcmp(s->op->name, "window_attention_2d") == 0) cost->beyond += beyond_edges(s, macs);
    if (strcmp(s->op->name, "layernorm") == 0) cost->norm += made;
    if (strcmp(s->op->name, "layernorm_kv") == 0) cost->norm += made + (double)tp_numel(s->y[1]);
    if (strcmp(s->op->name, "batchnorm") == 0) cost->batchnorm += made;
}

/* A reset releases what a pass saved and the previous cache, which is as large as the new one from
 * the third pass on; the second pass still extends tables. */
static tp_cost measure(trial *t, int64_t tokens, int64_t cache)
{
    tp_cost cost = { 0 };
    if (t->state) {
        run(t, cache);
        run(t, tokens);
    }
    tp_observe(t->T, count, &cost);
    cost.saved = run(t, tokens);
    cost.paper = cost.macs;
    return tp_ok(t->T) ? cost : (tp_cost){ 0 };
}

static tp_cost cost_of(const tp_model_cfg *c, int64_t samples, int64_t tokens, int64_t cache,
                       tp_dtype compute)
{
    char why[256];
    if (!c || !c->model || !tp_model_check(c, why, sizeof why)) return (tp_cost){ 0 };
    tp_model_cfg sized = *c;
    tp_common_cfg o = tp_model_get(c);
    if (cache) o.cache = cache;
    if (c->model->input == TP_TOKENS && !tokens) tokens = tp_model_input_shape(c, 1, 0).dim[1];
    tp_model_set(&sized, &o);
    trial t = trial_open(&sized, samples, compute);
    tp_cost cost = measure(&t, tokens, o.cache);
    trial_close(&t);
    if (c->model->paper && cost.macs > 0.0) c->model->paper(&sized.at, tokens, &cost);
    return cost;
}

tp_cost tp_model_cost(const tp_model_cfg *c, int64_t tokens, int64_t cache)
{
    return cost_of(c, 1, tokens, cache, TP_F32);
}

double tp_model_saved_bytes(const tp_model_cfg *c, int64_t tokens, int64_t cache, tp_dtype compute)
{
    const double one = cost_of(c, 1, tokens, cache, compute).saved;
    const double two = one > 0.0 ? cost_of(c, 2, tokens, cache, compute).saved : 0.0;
    return two > one ? two - one : 0.0;
}
