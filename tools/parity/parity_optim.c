/* parity_optim.c - kinds of optimisers and schedules of Vision Longformer and of detectors: updates with given
 * gradients, learning rates.
 *
 * Of Vision Longformer, tensors are numbered group.index, gradients and results step.group.index; the file determines how
 * many there are. */
#include <stdlib.h>
#include <tapegrad/vil.h>

#include "parity_case.h"

enum { ADAMW, QHM }; /* par_kind.variant */

typedef struct trace {
    int64_t groups, tensors; /* of all groups together */
    const double *decay;     /* [groups]               */
    tp_tensor *w;            /* [tensors]              */
    const char **name;       /* [tensors], "0.1"       */
} trace;

/* The optimiser's factors: the group is the number before the dot, env has its decay. */
static tp_factors decay_of_group(const char *name, tp_shape s, void *env)
{
    (void)s;
    return (tp_factors){ 1.0, ((const double *)env)[strtol(name, NULL, 10)] };
}

/* Declares all parameters as "GROUP.INDEX". */
static void declare(parity *p, trace *t)
{
    int64_t decays;
    t->decay = par_list(p, "weight_decay_per_group", &decays);
    t->name = par_alloc(p, tp_file_count(p->F), sizeof *t->name);
    t->w = par_alloc(p, tp_file_count(p->F), sizeof *t->w);
    if (!t->name || !t->w) return;
    for (int64_t g = 0;; g++) {
        const char *stem = par_name(p, "input.p%lld.", (long long)g);
        const int64_t n = par_series(p, stem);
        if (n == 0) break;
        for (int64_t i = 0; i < n; i++, t->tensors++) {
            const char *name = par_name(p, "%lld.%lld", (long long)g, (long long)i);
            const tp_shape s = par_shape(p, par_name(p, "%s%lld", stem, (long long)i));
            t->name[t->tensors] = name;
            t->w[t->tensors] = tp_param(p->P, name, s, (tp_init){ .kind = TP_INIT_ZERO }, 0);
        }
        t->groups++;
    }
    if (decays != t->groups || t->groups == 0)
        par_fail(p, "metadata weight_decay_per_group: %lld values for %lld groups of tensors",
                 (long long)decays, (long long)t->groups);
}

static void set_values(parity *p, const trace *t)
{
    for (int64_t i = 0; i < t->tensors && par_ok(p); i++) {
        const double *x = par_values(p, par_name(p, "input.p%s", t->name[i]), NULL);
        par_set(p, t->w[i], x);
    }
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
    const tp_optim_opts o = { values, decay_of_group, (void *)t->decay };
    return p->failed ? NULL : tp_optim_new(p->P, "qhm", &o);
}

/* ---- updates ---- */

static void step(parity *p, tp_optim *O, double lr)
{
    tp_step(O, lr);
    if (!tp_optim_ok(O)) par_fail(p, "%s", tp_optim_why(O));
}

static void check_values(parity *p, tp_tensor w, const char *name)
{
    const double *x = par_get(p, w);
    if (x) par_check(p, name, x, tp_numel(w), par_limit(p, PAR_OUTPUT));
}

/* One update with the gradients of the case: the loss is their scalar product with the values.
 * Tensors without a gradient in this step stay unchanged. */
static void update(parity *p, const trace *t, tp_optim *O, long long k, double lr)
{

    tp_reset(p->T);
    p->loss = TP_NONE;
    for (int64_t i = 0; i < t->tensors && !p->failed; i++) {
        const char *name = par_name(p, "grad%lld.%s", k, t->name[i]);
        if (!par_has(p, par_name(p, "input.%s", name))) continue;
        const tp_tensor g = par_tensor(p, name);
        par_loss(p, tp_sum(p->T, tp_mul(p->T, t->w[i], g), TP_ALL));
    }
    tp_backward(p->T, p->loss);
    step(p, O, lr);
    for (int64_t i = 0; i < t->tensors && par_ok(p); i++)
        check_values(p, t->w[i], par_name(p, "output.step%lld.%s", k, t->name[i]));
}

static void run_trace(parity *p)
{
    int64_t rates, steps = 0;
    const double *lr = par_list(p, "lr_per_step", &rates);
    trace t = { 0 };

    par_begin(p);
    declare(p, &t);
    set_values(p, &t);
    while (par_has_any(p, par_name(p, "input.grad%lld.", (long long)steps))) steps++;
    if (rates != steps || steps == 0)
        par_fail(p, "metadata lr_per_step: %lld rates for %lld steps", (long long)rates,
                 (long long)steps);
    if (p->failed) return;
    tp_optim *O = p->kind->variant == QHM ? qhm(p, &t) : adamw(p, &t);
    for (int64_t k = 0; O && k < steps && !p->failed; k++) update(p, &t, O, k, lr[k]);
    tp_optim_free(O);
}

/* ---- updates of clipped gradients ---- */

/* Tensors pI, gradients gI_STEP, results pI_STEP and norm_STEP. */
static void clipped_update(parity *p, const tp_tensor *w, int64_t tensors, tp_optim *O, long long k,
                           double lr, double clip)
{
    for (int64_t i = 0; i < tensors && par_ok(p); i++) {
        const double *g = par_values(p, par_name(p, "input.g%lld_%lld", (long long)i, k), NULL);
        if (g)
            par_params(
                p, tp_param_set_grad(p->P, w[i], TP_F64, g, (size_t)tp_numel(w[i]) * sizeof *g));
    }
    const double norm = tp_item(p->T, tp_clip_grad_norm(p->P, clip));
    par_check_one(p, par_nth(p, "output.norm_", k), norm, par_limit(p, PAR_OUTPUT));
    step(p, O, lr);
    for (int64_t i = 0; i < tensors && par_ok(p); i++)
        check_values(p, w[i], par_name(p, "output.p%lld_%lld", (long long)i, k));
}

static void run_clipped(parity *p)
{
    int64_t steps;
    const double *lr = par_list(p, "lrs", &steps), clip = par_num(p, "clip", PAR_NEEDED);
    const tp_adamw_opts o = { .beta1 = par_nonzero(par_num(p, "beta1", 0.9)),
                              .beta2 = par_nonzero(par_num(p, "beta2", 0.999)),
                              .eps = par_nonzero(par_num(p, "eps", 1e-8)),
                              .weight_decay = par_num(p, "weight_decay", PAR_NEEDED) };
    const int64_t tensors = par_series(p, "input.p");
    par_fixed(p, "clip_eps", 1e-6);
    par_begin(p);
    tp_tensor *w = par_alloc(p, tensors, sizeof *w);
    if (steps < 1 || steps > 100) par_illegal(p, "metadata lrs: there is no update");
    for (int64_t i = 0; w && i < tensors; i++)
        w[i] = tp_param(p->P, par_nth(p, "p", i), par_shape(p, par_nth(p, "input.p", i)),
                        (tp_init){ .kind = TP_INIT_ZERO }, 0);
    for (int64_t i = 0; w && i < tensors && par_ok(p); i++) {
        const double *x = par_values(p, par_nth(p, "input.p", i), NULL);
        par_set(p, w[i], x);
    }
    if (p->failed || !w) return;
    tp_optim *O = tp_adamw_new(p->P, &o);
    for (int64_t k = 0; k < steps && !p->failed; k++)
        clipped_update(p, w, tensors, O, k, lr[k], clip);
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
    { .kind = "detection.adamw_clip", .run = run_clipped, .no_bf16 = true },
    { .kind = NULL },
};
