/* model_cost.c - what a forward pass of one sample takes, counted in a pass on a dry device: the ops report their
 * multiply-adds, and the tape shows what it keeps for backward. */
#include <tapegrad/observe.h>

#include "model_inner.h"

/* A model in training on a dry device, whose memory is counted to the byte. */
typedef struct trial {
    const tp_model_cfg *cfg;
    tp_device *D;
    tp_params *P;
    tp_tape *T;
    tp_net *N;
    void *state;
} trial;

static trial trial_open(const tp_model_cfg *c)
{
    trial t = { .cfg = c };
    t.D = tp_device_open("cpu", &(tp_device_opts){ .threads = 1, .dry = true, .exact = true });
    t.P = tp_params_new(t.D, &(tp_params_opts){ .blank = true });
    t.T = tp_tape_new(t.D, &(tp_tape_opts){ .train = true });
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

/* Runs the model on one sample and returns the bytes that it then keeps until a reset. */
static double run(trial *t, int64_t tokens)
{
    const tp_dtype dtype = t->cfg->model->input == TP_IMAGES ? TP_F32 : TP_I32;
    const tp_tensor x = tp_full(t->T, dtype, tp_model_shape(t->cfg, 1, tokens), 0.0);
    tp_net_forward(t->T, t->N, t->state, x);
    const double ids = dtype == TP_I32 ? 4.0 * (double)tp_numel(x) : 0.0, kept = live(t) - ids;
    tp_observe(t->T, NULL, NULL);
    tp_reset(t->T);
    return kept - live(t);
}

/* ---- counts ---- */

/* What windows that were whole at the edges would cost more. */
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
    if (strcmp(s->op->name, "batchnorm") == 0) cost->batchnorm += made;
}

/* A reset releases what a pass has saved, and the cache before it in place of the one after it, which is as large from
 * the third pass on: the second one also makes tables longer. */
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

tp_cost tp_model_cost(const tp_model_cfg *c, int64_t tokens, int64_t cache)
{
    char why[256];
    if (!c || !c->model || !tp_model_check(c, why, sizeof why)) return (tp_cost){ 0 };
    tp_model_cfg sized = *c;
    tp_common_cfg o = tp_model_get(c);
    if (cache) o.cache = cache;
    if (c->model->input == TP_TOKENS && !tokens) tokens = tp_model_get(c).cache;
    tp_model_set(&sized, &o);
    trial t = trial_open(&sized);
    tp_cost cost = measure(&t, tokens, o.cache);
    trial_close(&t);
    if (c->model->paper && cost.macs > 0.0) c->model->paper(&sized.at, tokens, &cost);
    return cost;
}
