/* parity_lm_train.c - training traces: a few updates on a few hundred bytes, loss by loss.
 *
 * Row b of the batch is the bytes from b * stream_bytes on; micro-batch k reads columns k T .. and
 * predicts the next byte. An update is the mean over update_freq micro-batches. */
#include "parity_lm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct trace {
    parity *p;
    lm_case *c;
    int64_t B, T, updates, freq, stream;
    bool all_targets;
    double lr, clip;
    int64_t warmup, total;
    int64_t *byte; /* [n] */
    int64_t n;
    double *loss, *norm, *rate; /* [updates * freq], [updates], [updates] */
} trace;

/* The rate of the update after u completed ones. Transformer-XL's recipe sets it after each step:
 * the first update has the full rate even with a warm-up. */
static double rate_of(const trace *t, int64_t u)
{
    if (!t->c->xl) return tp_lr_constant(u, t->warmup, t->lr);
    if (u > 0 && u < t->warmup) return t->lr * (double)u / (double)t->warmup;
    if (u == 0 || par_is(t->p, "scheduler", "constant")) return t->lr;
    return tp_lr_cosine(u, 0, t->total, t->lr, par_num(t->p, "eta_min", 0.0));
}

static tp_optim *optimiser(const trace *t)
{
    parity *p = t->p;
    double betas[2] = { 0.9, 0.999 };
    par_list(p, "betas", 2, betas);
    if (par_is(p, "optimizer", "sgd"))
        return tp_sgd_new(t->c->P,
                          &(tp_sgd_opts){ .momentum = par_num(p, "momentum", 0.0),
                                          .weight_decay = par_num(p, "weight_decay", 0.0) });
    const tp_adam_opts o = { .beta1 = betas[0],
                             .beta2 = betas[1],
                             .eps = par_num(p, "eps", 1e-8),
                             .weight_decay = par_num(p, "weight_decay", 0.0),
                             .raw_eps = !t->c->xl };
    return t->c->xl ? tp_adam_new(t->c->P, &o) : tp_adamw_new(t->c->P, &o);
}

/* Tokens of micro-batch k, or the bytes after them; a last column that has no target is -1. */
static tp_tensor columns(const trace *t, int64_t k, bool targets)
{
    int64_t *id = malloc((size_t)(t->B * t->T + 1) * sizeof *id);
    if (!id) return tp_raise(t->c->T, TP_E_MEMORY, "out of memory");
    for (int64_t b = 0; b < t->B; b++)
        for (int64_t i = 0; i < t->T; i++) {
            const int64_t at = b * t->stream + k * t->T + i + (targets ? 1 : 0);
            const bool counted = at < t->n && (!targets || t->all_targets || i + 1 < t->T);
            id[b * t->T + i] = counted ? t->byte[at] : -1;
        }
    const tp_tensor x = tp_from(t->c->T, TP_I64, TP_SHAPE(t->B, t->T), id);
    free(id);
    return x;
}

static void update(const trace *t, int64_t u, tp_optim *O)
{
    tp_tape *T = t->c->T;
    for (int64_t i = 0; i < t->freq; i++) {
        const int64_t k = u * t->freq + i;
        tp_reset(T);
        const tp_tensor logits = lm_forward(t->c, columns(t, k, false));
        const tp_tensor loss = tp_cross_entropy(T, logits, columns(t, k, true), TP_MEAN_ALL);
        t->loss[k] = tp_item(T, loss);
        tp_backward(T, tp_scale(T, loss, 1.0 / (double)t->freq));
    }
    t->norm[u] = tp_item(T, tp_clip_grad_norm(t->c->P, t->clip));
    t->rate[u] = rate_of(t, u);
    tp_step(O, t->rate[u]);
    if (!tp_optim_ok(O)) par_fail(t->p, "%s", tp_optim_why(O));
    par_ok(t->p, T, t->c->P);
}

static bool ends_in(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

/* Weights after the last update. Adam turns a gradient of pure rounding noise into full steps, so
 * in f32 some cannot be followed: the biases that cancel in the chunk softmax, and the columns of
 * Transformer-XL's r_net that slow cosines feed. */
static void check_final(const trace *t)
{
    parity *p = t->p;
    const bool f32 = p->real == TP_F32;
    for (tp_param_info it = { 0 }; !p->failed && tp_next_param(t->c->P, &it);) {
        char name[256];
        const int64_t n = tp_numel(it.tensor);
        const size_t bytes = (size_t)n * sizeof(double);
        double *x = it.buffer || it.alias_of ? NULL : malloc(bytes + 1);
        snprintf(name, sizeof name, "final.%s", it.name);
        if (!x || !tp_param_get(t->c->P, it.tensor, TP_F64, x, bytes)) {
            free(x);
            continue;
        }
        if (f32 && par_zero_in_theory(p, it.name))
            par_check_abs(p, name, x, n, (double)t->updates * t->lr);
        else if (f32 && t->c->xl && ends_in(it.name, "r_net.weight"))
            par_check_abs(p, name, x, n, 5e-3);
        else
            par_check(p, name, x, n, f32 ? 5e-5 : par_limit(p, PAR_OUTPUT));
        free(x);
    }
}

static void check(const trace *t)
{
    parity *p = t->p;
    const double limit = p->real == TP_F32 ? 1e-5 : par_limit(p, PAR_OUTPUT);
    par_check_abs(p, "output.loss", t->loss, t->updates * t->freq, limit);
    par_check(p, "output.gradnorm", t->norm, t->updates, limit);
    par_check(p, "output.lr", t->rate, t->updates, limit);
    for (int i = 0; i < t->c->ncache; i++)
        if (par_has(p, par_name("output.cache.", i)))
            par_check_tensor(p, t->c->T, par_name("output.cache.", i), t->c->cache[i]);
    check_final(t);
}

static void run_trace(parity *p, bool xl)
{
    tp_shape s = TP_SHAPE(0);
    trace t = { .p = p,
                .c = lm_open(p, xl),
                .B = par_int(p, "B", 1),
                .T = par_int(p, xl ? "tgt_len" : "T", 1),
                .updates = par_int(p, "updates", 0),
                .freq = par_int(p, "update_freq", 1),
                .stream = par_int(p, "stream_bytes", 0),
                .all_targets = xl || par_int(p, "all_targets", 0) != 0,
                .lr = par_num(p, "lr", 0.0),
                .clip = par_num(p, "clip_norm", 0.0),
                .warmup = par_int(p, "warmup_updates", 0),
                .total = par_int(p, "max_step", par_int(p, "updates", 0)) };
    t.byte = par_integers(p, "input.bytes", &s);
    t.n = s.dim[0];
    const int64_t sizes[] = { t.B, t.T, t.freq, t.updates, t.stream };
    for (int i = 0; i < 5; i++)
        if (sizes[i] < 1 || sizes[i] > t.n) par_fail(p, "B, T, updates or stream_bytes cannot be");

    double *room = p->failed ? NULL : malloc((size_t)(t.updates * (t.freq + 2)) * sizeof *room);
    if (!room) {
        par_fail(p, "out of memory");
    } else {
        t.loss = room;
        t.norm = room + t.updates * t.freq;
        t.rate = t.norm + t.updates;
        tp_optim *O = optimiser(&t);
        for (int64_t u = 0; u < t.updates && !p->failed; u++) update(&t, u, O);
        if (!p->failed) check(&t);
        tp_optim_free(O);
    }
    free(room);
    free(t.byte);
    lm_close(t.c);
}

void lm_run_trace(parity *p)
{
    run_trace(p, false);
}

void lm_run_txl_trace(parity *p)
{
    run_trace(p, true);
}
