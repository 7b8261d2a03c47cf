/* parity_lm_train.c - training traces of the language models: a few updates on a few hundred bytes,
 * loss by loss.
 *
 * Row b of the batch has the bytes from b * stream_bytes on; micro-batch k reads columns from k T
 * on and predicts the next byte. An update uses the mean gradient of update_freq micro-batches. */
#include <math.h>

#include "parity_lm.h"

typedef enum scheduler { COSINE, CONSTANT } scheduler;

typedef struct trace {
    lm_case *c;
    int64_t B, T, updates, freq, stream;
    bool all_targets;
    scheduler scheduler;
    double lr, clip, eta_min;
    int64_t warmup, total;
    const int64_t *byte; /* [n] */
    int64_t n;
    double *loss, *norm, *rate; /* [updates * freq], [updates], [updates] */
} trace;

/* ---- settings ---- */

static void read_trace(parity *p, trace *t, bool xl)
{
    static const char *const schedulers[] = { "cosine", "constant", NULL };
    tp_shape s;

    t->B = par_size(p, "B", 1);
    t->T = par_size(p, xl ? "tgt_len" : "T", PAR_NEEDED);
    t->updates = par_size(p, "updates", PAR_NEEDED);
    t->freq = par_size(p, "update_freq", 1);
    t->stream = par_size(p, "stream_bytes", PAR_NEEDED);
    t->all_targets = par_flag(p, "all_targets", xl);
    t->lr = par_num(p, "lr", PAR_NEEDED);
    t->clip = par_num(p, "clip_norm", 0.0);
    t->warmup = par_count(p, "warmup_updates", 0);
    t->scheduler = xl ? (scheduler)par_word(p, "scheduler", COSINE, schedulers) : CONSTANT;
    t->total = t->updates;
    if (t->scheduler == COSINE) {
        t->total = par_size(p, "max_step", t->updates);
        t->eta_min = par_num(p, "eta_min", 0.0);
    } else if (xl && t->warmup > 0) {
        par_illegal(p, "metadata warmup_updates: Transformer-XL warms up only before a cosine");
    }
    t->byte = par_integers(p, "input.bytes", &s);
    t->n = par_numel(s);
    if (t->clip < 0.0) par_illegal(p, "metadata clip_norm = %g is negative", t->clip);
    if ((double)t->updates * (double)t->freq * (double)t->T > (double)t->stream ||
        (double)t->B * (double)t->stream > (double)t->n)
        par_fail(p, "input.bytes: the rows are too short for %lld micro-batches of %lld tokens",
                 (long long)(t->updates * t->freq), (long long)t->T);
}

static tp_optim *adam(parity *p, bool xl)
{
    int64_t n;
    const double *beta = par_list(p, "betas", &n);
    const double eps = par_num(p, "eps", 1e-8), decay = par_num(p, "weight_decay", 0.0);

    par_fixed(p, "momentum", 0.0);
    if (n != 0 && (n != 2 || !(beta[0] >= 0 && beta[0] < 1 && beta[1] >= 0 && beta[1] < 1)))
        par_illegal(p, "metadata betas must be two numbers from 0 to 1");
    if (eps < 0.0) par_illegal(p, "metadata eps = %g is negative", eps);
    if (p->failed) return NULL;
    const tp_adam_opts o = { .beta1 = n ? par_nonzero(beta[0]) : 0.9,
                             .beta2 = n ? par_nonzero(beta[1]) : 0.999,
                             .eps = par_nonzero(eps),
                             .weight_decay = decay,
                             .raw_eps = !xl };
    return xl ? tp_adam_new(p->P, &o) : tp_adamw_new(p->P, &o);
}

/* NULL: failed. */
static tp_optim *optimiser(parity *p, bool xl)
{
    static const char *const optimisers[] = { "adam", "sgd", NULL };

    if (par_word(p, "optimizer", PAR_NEEDED, optimisers) == 0) return adam(p, xl);
    const tp_sgd_opts o = { .momentum = par_num(p, "momentum", 0.0),
                            .weight_decay = par_num(p, "weight_decay", 0.0) };
    return p->failed ? NULL : tp_sgd_new(p->P, &o);
}

/* The learning rate of the update after u. Transformer-XL's recipe sets the rate after each step,
 * so the first update has the full rate even with a warm-up. */
static double rate_of(const trace *t, int64_t u)
{
    if (t->scheduler == CONSTANT) return tp_lr_constant(u, t->warmup, t->lr);
    if (u == 0) return t->lr;
    if (u < t->warmup) return t->lr * (double)u / (double)t->warmup;
    return tp_lr_cosine(u, 0, t->total, t->lr, t->eta_min);
}

/* ---- updates ---- */

/* Tokens of micro-batch k, or the bytes after them; -1 in a last column without a target. */
static tp_tensor columns(parity *p, const trace *t, int64_t k, bool targets)
{
    int64_t *id = par_alloc(p, t->B * t->T, sizeof *id);

    if (!id) return tp_raise(p->T, TP_E_MEMORY, "out of memory");
    for (int64_t b = 0; b < t->B; b++)
        for (int64_t i = 0; i < t->T; i++) {
            const int64_t at = b * t->stream + k * t->T + i + (targets ? 1 : 0);
            const bool counted = at < t->n && (!targets || t->all_targets || i + 1 < t->T);
            id[b * t->T + i] = counted ? t->byte[at] : -1;
        }
    return tp_from(p->T, TP_I64, TP_SHAPE(t->B, t->T), id);
}

static void update(parity *p, const trace *t, int64_t u, tp_optim *O)
{
    tp_tape *T = p->T;
    for (int64_t i = 0; i < t->freq; i++) {
        const int64_t k = u * t->freq + i;
        tp_reset(T);
        const tp_tensor logits = lm_forward(p, t->c, columns(p, t, k, false));
        const tp_tensor loss = tp_cross_entropy(T, logits, columns(p, t, k, true), TP_MEAN_ALL);
        t->loss[k] = tp_item(T, loss);
        tp_backward(T, tp_scale(T, loss, 1.0 / (double)t->freq));
    }
    t->norm[u] = tp_item(T, tp_clip_grad_norm(p->P, t->clip));
    t->rate[u] = rate_of(t, u);
    tp_step(O, t->rate[u]);
    if (!tp_optim_ok(O)) par_fail(p, "%s", tp_optim_why(O));
    par_ok(p);
}

/* ---- comparing ---- */

/* Compares the weights after the last update. Adam turns a gradient of pure rounding noise into
 * full steps, so some weights are not comparable in f32: biases that cancel in the chunk softmax,
 * and the columns of Transformer-XL's r_net that read slowly varying cosines. */
static void check_final(parity *p, const trace *t)
{
    const bool f32 = p->real == TP_F32;
    for (tp_param_info it = { 0 }; !p->failed && tp_next_param(p->P, &it);) {
        const char *name = par_name(p, "final.%s", it.name);
        const int64_t n = par_numel(it.shape);
        double *x = par_has(p, name) ? par_alloc(p, n, sizeof *x) : NULL;
        if (!x || !tp_param_get(p->P, it.tensor, TP_F64, x, (size_t)n * sizeof *x)) continue;
        const bool cancels = !t->c->xl && tp_ends_in(it.name, "dconv_1.bias");
        if (f32 && (cancels || par_zero_in_theory(p, it.name)))
            par_check_abs(p, name, x, n, (double)t->updates * t->lr);
        else if (f32 && t->c->xl && tp_ends_in(it.name, "r_net.weight"))
            par_check_abs(p, name, x, n, 5e-3);
        else
            par_check(p, name, x, n, f32 ? 5e-5 : par_limit(p, PAR_OUTPUT));
    }
}

static void check(parity *p, const trace *t)
{
    const double limit = p->real == TP_F32 ? 1e-5 : par_limit(p, PAR_OUTPUT);
    par_check_abs(p, "output.loss", t->loss, t->updates * t->freq, limit);
    par_check(p, "output.gradnorm", t->norm, t->updates, limit);
    par_check(p, "output.lr", t->rate, t->updates, limit);
    for (int i = 0; i < t->c->ncache; i++)
        par_check_tensor(p, par_name(p, "output.%s.%d", t->c->xl ? "mems" : "cache", i),
                         t->c->cache[i]);
    check_final(p, t);
}

void lm_run_trace(parity *p)
{
    const bool xl = p->kind->variant == LM_XL;
    trace t = { .c = lm_open(p) };

    if (!t.c) return;
    read_trace(p, &t, xl);
    par_load(p);
    tp_optim *O = p->failed ? NULL : optimiser(p, xl);
    if (!O) return;
    t.loss = par_alloc(p, t.updates * t.freq, sizeof *t.loss);
    t.norm = par_alloc(p, t.updates, sizeof *t.norm);
    t.rate = par_alloc(p, t.updates, sizeof *t.rate);
    for (int64_t u = 0; u < t.updates && !p->failed; u++) update(p, &t, u, O);
    if (!p->failed) check(p, &t);
    tp_optim_free(O);
}
