/* parity_vil_train.c - cases of Vision Longformer's recipe: updates, learning rates, and tables of
 * positions for another resolution. */
#include "parity_vil.h"

#include <stdlib.h>
#include <string.h>

enum { GROUPS = 2, TENSORS = 2 };

static void name_of(char *name, size_t size, const char *stem, int group, int step, int i)
{
    if (step < 0)
        snprintf(name, size, "%s%d.%d", stem, group, i);
    else
        snprintf(name, size, "%s%d.%d.%d", stem, step, group, i);
}

/* Weight decay of the second group of parameters, "1.*", is none of the recipe's. */
static tp_factors decay_factor(const char *name, tp_shape s, void *env)
{
    (void)s;
    return (tp_factors){ 1.0, ((const double *)env)[name[0] - '0'] };
}

/* One update with the gradients of the case: the loss is their scalar product with the values. */
static void update(parity *p, tp_tape *T, tp_params *P, tp_tensor w[GROUPS][TENSORS], tp_optim *O,
                   int step, double lr)
{
    tp_tensor loss = TP_NONE;
    char name[64];

    tp_reset(T);
    for (int g = 0; g < GROUPS; g++)
        for (int i = 0; i < TENSORS; i++) {
            name_of(name, sizeof name, "input.grad", g, step, i);
            const tp_tensor part = tp_sum(T, tp_mul(T, w[g][i], par_tensor(p, T, name)), TP_ALL);
            loss = tp_given(loss) ? tp_add(T, loss, part) : part;
        }
    tp_backward(T, loss);
    tp_step(O, lr);
    if (!tp_optim_ok(O)) par_fail(p, "%s", tp_optim_why(O));
    if (!par_ok(p, T, P)) return;
    for (int g = 0; g < GROUPS; g++)
        for (int i = 0; i < TENSORS; i++) {
            double value[64];
            const int64_t n = tp_numel(w[g][i]);
            name_of(name, sizeof name, "output.step", g, step, i);
            if (n <= 64 && tp_param_get(P, w[g][i], TP_F64, value, (size_t)n * sizeof *value))
                par_check(p, name, value, n, par_limit(p, PAR_OUTPUT));
        }
}

static void declare(parity *p, tp_params *P, tp_tensor w[GROUPS][TENSORS])
{
    for (int g = 0; g < GROUPS; g++)
        for (int i = 0; i < TENSORS; i++) {
            char name[64];
            tp_shape s = TP_SCALAR;
            name_of(name, sizeof name, "input.p", g, -1, i);
            free(par_values(p, name, &s));
            name_of(name, sizeof name, "", g, -1, i);
            w[g][i] = tp_param(P, name, s, (tp_init){ .kind = TP_INIT_ZERO }, 0);
        }
}

static void set_values(parity *p, tp_params *P, tp_tensor w[GROUPS][TENSORS])
{
    for (int g = 0; g < GROUPS; g++)
        for (int i = 0; i < TENSORS; i++) {
            char name[64];
            name_of(name, sizeof name, "input.p", g, -1, i);
            double *x = par_values(p, name, NULL);
            if (x) tp_param_set(P, w[g][i], TP_F64, x, (size_t)tp_numel(w[g][i]) * sizeof *x);
            free(x);
        }
}

static void run_trace(parity *p, bool qhm)
{
    double decay[GROUPS] = { 0 }, lr[64];
    tp_params *P = par_params_new(p);
    tp_tape *T = vil_tape(p);
    tp_tensor w[GROUPS][TENSORS];
    const int rates = par_list(p, "lr_per_step", 64, lr);

    if (par_list(p, "weight_decay_per_group", GROUPS, decay) != GROUPS || rates < 1)
        par_fail(p, "the case gives no rates");
    declare(p, P, w);
    set_values(p, P, w);
    const tp_adamw_opts adamw = { .weight_decay = 1.0,
                                  .raw_eps = true,
                                  .decay_after = true,
                                  .factors = decay_factor,
                                  .env = decay };
    const tp_qhm_opts damped = {
        .momentum = 0.9, .nu = 1.0, .weight_decay = 1.0, .factors = decay_factor, .env = decay
    };
    tp_optim *O = qhm ? tp_qhm_new(P, &damped) : tp_adamw_new(P, &adamw);
    for (int step = 0; !p->failed; step++) {
        char name[64];
        name_of(name, sizeof name, "input.grad", 0, step, 0);
        if (!par_has(p, name)) break;
        update(p, T, P, w, O, step, lr[step < rates ? step : rates - 1]);
    }
    tp_optim_free(O);
    tp_tape_free(T);
    tp_params_free(P);
}

static void run_adamw(parity *p)
{
    run_trace(p, false);
}
static void run_qhm(parity *p)
{
    run_trace(p, true);
}

static void run_schedule(parity *p)
{
    tp_shape s = TP_SHAPE(0);
    int64_t *at = par_integers(p, "input.iteration", &s);
    const double base = par_num(p, "base_lr", 0.0);
    double rate[256];
    if (at && s.dim[0] > 256) par_fail(p, "more than 256 rates");
    for (int64_t i = 0; at && !p->failed && i < s.dim[0]; i++)
        rate[i] = tp_lr_cosine_whole(
            at[i], par_int(p, "warmup_iters", 0), par_int(p, "max_iter", 0),
            base * par_num(p, "warmup_factor", 0.0), base, par_num(p, "min_lr", 0.0));
    if (!p->failed) par_check(p, "output.lr", rate, s.dim[0], 1e-12);
    free(at);
}

/* "input.N" to the size of "output.N": tables [side^2,channels], positions [1,n,channels]. */
static void run_interpolation(parity *p)
{
    for (int i = 0; !p->failed && par_has(p, par_name("input.", i)); i++) {
        tp_shape a, b;
        int64_t from[2], to[2];
        double *x = par_values(p, par_name("input.", i), &a);
        double *want = par_values(p, par_name("output.", i), &b);
        const bool table = a.ndim == 2;
        const int64_t rows[2] = { a.dim[table ? 0 : 1], b.dim[table ? 0 : 1] };
        const int64_t channels = a.dim[a.ndim - 1];
        for (int k = 0; k < 2; k++) {
            int64_t *size = k ? to : from;
            size[0] = rows[k];
            size[1] = 1;
            if (table)
                for (size[0] = size[1] = 1; size[0] * size[1] < rows[k];) size[1] = ++size[0];
        }
        if (x && want) {
            tp_vil_resize(x, from, want, to, channels);
            par_check(p, par_name("output.", i), want, rows[1] * channels,
                      par_limit(p, PAR_OUTPUT));
        }
        free(x);
        free(want);
    }
}

const parity_kind parity_vil_train_kinds[] = {
    { "vil.adamw_trace", run_adamw, false, true },
    { "vil.qhm_trace", run_qhm, false, true },
    { "vil.lr_schedule", run_schedule, false, true },
    { "vil.position_interpolation", run_interpolation, false, true },
    { NULL, NULL, false, false },
};
