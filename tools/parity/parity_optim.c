/* parity_optim.c - kinds of optimisers and schedules of Vision Longformer and of detectors: updates
 * with given gradients, learning rates.
 *
 * Of Vision Longformer, tensors are numbered group.index, gradients and results step.group.index;
 * of clipped gradients, index and index_step. The file determines how many there are. */
#include <stdlib.h>
#include <string.h>
#include <tapegrad/vil.h>

#include "parity_case.h"

enum { ADAMW, QHM, CLIPPED }; /* par_kind.variant */

typedef struct trace {
    int64_t groups, tensors; /* of all groups together */
    const double *decay;     /* [groups]               */
    tp_tensor *w;            /* [tensors]              */
    const char **name;       /* [tensors], "0.1" or "1" */
} trace;

/* The optimiser's factors: the group is the number before the dot, env has its decay. */
static tp_factors decay_of_group(const char *name, tp_shape s, void *env)
{
    (void)s;
    return (tp_factors){ 1.0, ((const double *)env)[strtol(name, NULL, 10)] };
}

/* Declares the parameters STEM0, STEM1, ... */
static int64_t declare_group(parity *p, trace *t, const char *stem)
{
    const int64_t n = par_series(p, stem);
    for (int64_t i = 0; i < n; i++, t->tensors++) {
        const char *full = par_nth(p, stem, i), *name = full + strlen("input.p");
        t->name[t->tensors] = name;
        t->w[t->tensors] =
            tp_param(p->P, name, par_shape(p, full), (tp_init){ .kind = TP_INIT_ZERO }, 0);
    }
    return n;
}

static void declare(parity *p, trace *t)
{
    int64_t decays;
    t->name = par_alloc(p, tp_file_count(p->F), sizeof *t->name);
    t->w = par_alloc(p, tp_file_count(p->F), sizeof *t->w);
    if (!t->name || !t->w) return;
    if (p->kind->variant == CLIPPED) {
        declare_group(p, t, "input.p");
    } else {
        t->decay = par_list(p, "weight_decay_per_group", &decays);
        while (declare_group(p, t, par_name(p, "input.p%lld.", (long long)t->groups))) t->groups++;
        if (decays != t->groups || t->groups == 0)
            par_fail(p, "metadata weight_decay_per_group: %lld values for %lld groups of tensors",
                     (long long)decays, (long long)t->groups);
    }
    for (int64_t i = 0; i < t->tensors && par_ok(p); i++)
        par_set(p, t->w[i], par_values(p, par_name(p, "input.p%s", t->name[i]), NULL));
}

/* ---- options ---- */

static void betas(parity *p, json_t *options, tp_adamw_opts *o)
{
    double beta[2] = { 0.9, 0.999 };
    const json_t *list = json_object_get(options, "betas");

    for (size_t i = 0; list && i < 2; i++) {
        const json_t *x = json_array_get(list, i);
        beta[i] = json_number_value(x);
        if (json_array_size(list) != 2 || !json_is_number(x) || !(beta[i] >= 0 && beta[i] < 1))
            par_illegal(p, "metadata options: betas must be two numbers from 0 to 1");
    }
    if (list) json_object_del(options, "betas");
    o->beta1 = par_nonzero(beta[0]);
    o->beta2 = par_nonzero(beta[1]);
}

static tp_optim *adamw(parity *p, const trace *t)
{
    json_t *options = par_json(p, "options");
    const double eps = par_json_num(p, "options", options, "eps", 1e-8);
    tp_adamw_opts o = { .eps = par_nonzero(eps),
                        .weight_decay = 1.0,
                        .raw_eps = true,
                        .decay_after = true,
                        .factors = decay_of_group,
                        .env = (void *)t->decay };

    betas(p, options, &o);
    if (eps < 0.0) par_illegal(p, "metadata options: eps = %g is negative", eps);
    return p->failed ? NULL : tp_adamw_new(p->P, &o);
}

static tp_optim *qhm(parity *p, const trace *t)
{
    json_t *options = par_json(p, "options");
    const tp_optim_value values[] = { { "momentum",
                                        par_json_num(p, "options", options, "momentum", 0.9) },
                                      { "nu", par_json_num(p, "options", options, "qhm_nu", 1.0) },
                                      { "weight_decay", 1.0 },
                                      { NULL, 0.0 } };
    const tp_optim_opts o = { .values = values,
                              .factors = decay_of_group,
                              .env = (void *)t->decay };
    return p->failed ? NULL : tp_optim_new(p->P, "qhm", &o);
}

/* Of detectors. */
static tp_optim *adamw_plain(parity *p)
{
    const tp_adamw_opts o = { .beta1 = par_nonzero(par_num(p, "beta1", 0.9)),
                              .beta2 = par_nonzero(par_num(p, "beta2", 0.999)),
                              .eps = par_nonzero(par_num(p, "eps", 1e-8)),
                              .weight_decay = par_num(p, "weight_decay", PAR_NEEDED) };
    par_fixed(p, "clip_eps", 1e-6);
    return p->failed ? NULL : tp_adamw_new(p->P, &o);
}

/* ---- updates ---- */

/* The name of tensor i in step k as an input, the gradient, or as an output. */
static const char *name_of(parity *p, const trace *t, bool input, int64_t i, long long k)
{
    if (p->kind->variant == CLIPPED)
        return par_name(p, "%s%s_%lld", input ? "g" : "output.p", t->name[i], k);
    return par_name(p, "%s%lld.%s", input ? "grad" : "output.step", k, t->name[i]);
}

static bool has_gradient(parity *p, const trace *t, int64_t i, long long k)
{
    return par_has(p, par_name(p, "input.%s", name_of(p, t, true, i, k)));
}

/* One update with the gradients of the case: the loss is their scalar product with the values.
 * Tensors without a gradient in this step stay unchanged. */
static void update(parity *p, const trace *t, tp_optim *O, long long k, double lr)
{
    tp_reset(p->T);
    p->loss = TP_NONE;
    for (int64_t i = 0; i < t->tensors && !p->failed; i++) {
        if (!has_gradient(p, t, i, k)) continue;
        const tp_tensor g = par_tensor(p, name_of(p, t, true, i, k));
        par_loss(p, tp_sum(p->T, tp_mul(p->T, t->w[i], g), TP_ALL));
    }
    tp_backward(p->T, p->loss);
    if (p->kind->variant == CLIPPED) {
        const double norm = tp_item(p->T, tp_clip_grad_norm(p->P, par_num(p, "clip", PAR_NEEDED)));
        par_check_one(p, par_nth(p, "output.norm_", k), norm, par_limit(p, PAR_OUTPUT));
    }
    tp_step(O, lr);
    if (!tp_optim_ok(O)) par_fail(p, "%s", tp_optim_why(O));
    for (int64_t i = 0; i < t->tensors && par_ok(p); i++) {
        const double *x = par_get(p, t->w[i]);
        if (x)
            par_check(p, name_of(p, t, false, i, k), x, tp_numel(t->w[i]),
                      par_limit(p, PAR_OUTPUT));
    }
}

static bool has_step(parity *p, const trace *t, long long k)
{
    bool any = false;
    for (int64_t i = 0; i < t->tensors && !any; i++) any = has_gradient(p, t, i, k);
    return any;
}

static void run_trace(parity *p)
{
    const int which = p->kind->variant;
    const char *key = which == CLIPPED ? "lrs" : "lr_per_step";
    int64_t rates, steps = 0;
    const double *lr = par_list(p, key, &rates);
    trace t = { 0 };

    par_begin(p);
    declare(p, &t);
    while (has_step(p, &t, steps)) steps++;
    if (rates != steps || steps == 0)
        par_fail(p, "metadata %s: %lld rates for %lld steps", key, (long long)rates,
                 (long long)steps);
    if (p->failed) return;
    tp_optim *O = which == QHM ? qhm(p, &t) : which == ADAMW ? adamw(p, &t) : adamw_plain(p);
    for (int64_t k = 0; O && k < steps && !p->failed; k++) update(p, &t, O, k, lr[k]);
    tp_optim_free(O);
}

/* ---- schedules ---- */

static void run_schedule(parity *p)
{
    tp_shape s;
    const int64_t *at = par_integers(p, "input.iteration", &s);
    const int64_t n = par_numel(s), warmup = par_count(p, "warmup_iters", 0);
    const int64_t total = par_size(p, "max_iter", PAR_NEEDED);
    const double base = par_num(p, "base_lr", PAR_NEEDED), end = par_num(p, "min_lr", 1e-6);
    const double start = base * par_num(p, "warmup_factor", 0.002);
    double *rate = par_alloc(p, n, sizeof *rate);

    for (int64_t i = 0; at && rate && i < n; i++)
        rate[i] = tp_lr_cosine_whole(at[i], warmup, total, start, base, end);
    if (rate) par_check(p, "output.lr", rate, n, par_exact(p, "output.lr"));
}

static void run_milestones(parity *p)
{
    tp_shape s = { 0 };
    int64_t milestones;
    const int64_t *at = par_integers(p, "input.iteration", &s);
    const int64_t n = par_numel(s), warmup = par_count(p, "warmup_iters", PAR_NEEDED),
                  last = par_size(p, "max_iter", PAR_NEEDED),
                  *milestone = par_sizes(p, "steps", 1, &milestones);
    const double lr = par_num(p, "base_lr", PAR_NEEDED), factor = par_num(p, "gamma", PAR_NEEDED),
                 start = par_num(p, "warmup_factor", PAR_NEEDED);
    double *rate = par_alloc(p, n, sizeof *rate);
    for (int64_t i = 0; at && i < n; i++)
        if (at[i] < 0 || at[i] > last)
            par_illegal(p, "metadata max_iter: there is no iteration %lld", (long long)at[i]);
    for (int64_t i = 0; at && rate && i < n; i++)
        rate[i] = tp_lr_milestones(at[i], warmup, start, milestone, (int)milestones, factor, lr);
    if (rate) par_check(p, "output.lr", rate, n, par_exact(p, "output.lr"));
}

const par_kind par_optim_kinds[] = {
    { .kind = "vil.adamw_trace", .run = run_trace, .variant = ADAMW, .no_bf16 = true },
    { .kind = "vil.qhm_trace", .run = run_trace, .variant = QHM, .no_bf16 = true },
    { .kind = "vil.lr_schedule", .run = run_schedule, .no_bf16 = true },
    { .kind = "detection.lr_schedule", .run = run_milestones },
    { .kind = "detection.adamw_clip", .run = run_trace, .variant = CLIPPED, .no_bf16 = true },
    { .kind = NULL },
};
