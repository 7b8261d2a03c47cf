/* optim_kinds.c - the library's optimisers: rows of options, states and kernels, and constructors with
 * typed options. The enums name the options by their place in the row. */
#include <float.h>
#include <math.h>

#include "autograd/ops/op_inner.h"
#include "tensor/geometry/factored.h"
#include "train/optim.h"

TP_KERNEL(sgd_step);
TP_KERNEL(adam_step);
TP_KERNEL(rmsprop_step);
TP_KERNEL(adagrad_step);
TP_KERNEL(lion_step);
TP_KERNEL(lamb_step);
TP_KERNEL(adafactor_step);

/* clang-format off */
#define DECAY            { "weight_decay", 0.0, 0.0, HUGE_VAL, false, false }
#define AVERAGE(NAME, X) { NAME, X, 0.0, 1.0, false, false }      /* in [0, 1) */
#define POSITIVE(NAME, X){ NAME, X, 0.0, HUGE_VAL, false, false }
#define FLAG(NAME)       { NAME, 0.0, 0.0, 1.0, true, false }
/* clang-format on */

/* Decay is added to the gradient. */
static void coupled(const double *option, tp_segment *s)
{
    (void)option;
    s->l2 = s->decay;
    s->rate = s->lr;
}

static double or_else(double x, double usual)
{
    return x != 0.0 ? x : usual;
}

/* ---- SGD and QHM ---- */

enum { SGD_MOMENTUM = 1, SGD_NESTEROV };
enum { QHM_MOMENTUM = 1, QHM_NU };

static const char *sgd_check(const double *option)
{
    return option[SGD_NESTEROV] != 0.0 && option[SGD_MOMENTUM] == 0.0 ? "nesterov needs a momentum"
                                                                      : NULL;
}

static void sgd_constants(const double *option, double *k)
{
    const bool nesterov = option[SGD_NESTEROV] != 0.0;
    const double momentum = option[SGD_MOMENTUM];
    k[TP_SGD_MOMENTUM] = momentum;
    k[TP_SGD_GAIN] = 1.0;
    k[TP_SGD_OF_G] = nesterov ? 1.0 : 0.0;
    k[TP_SGD_OF_U] = nesterov ? momentum : 1.0;
}

static void qhm_constants(const double *option, double *k)
{
    const double momentum = option[QHM_MOMENTUM], nu = option[QHM_NU];
    k[TP_SGD_MOMENTUM] = momentum;
    k[TP_SGD_GAIN] = 1.0 - momentum;
    k[TP_SGD_OF_G] = 1.0 - nu;
    k[TP_SGD_OF_U] = nu;
}

static const tp_optim_kind sgd = {
    .name = "sgd",
    .options = { DECAY, AVERAGE("momentum", 0.0), FLAG("nesterov") },
    .states = { { .name = "u", .only_with = "momentum" } },
    .check = sgd_check,
    .constants = sgd_constants,
    .numbers = coupled,
    .step = TP_KERNELS(sgd_step),
};

static const tp_optim_kind qhm = {
    .name = "qhm",
    .options = { DECAY, AVERAGE("momentum", 0.9), { "nu", 1.0, 0.0, 1.0, true, false } },
    .states = { { .name = "u", .only_with = "momentum" } },
    .constants = qhm_constants,
    .numbers = coupled,
    .step = TP_KERNELS(sgd_step),
};

tp_optim *tp_sgd_new(tp_params *P, const tp_sgd_opts *o)
{
    static const tp_sgd_opts defaults = { 0 };
    if (!o) o = &defaults;
    const double values[] = { o->weight_decay, o->momentum, o->nesterov };
    return tp__optim_make(P, &sgd, values, o->factors, o->env);
}

tp_optim *tp_qhm_new(tp_params *P, const tp_qhm_opts *o)
{
    static const tp_qhm_opts defaults = { .momentum = 0.9, .nu = 1.0 };
    if (!o) o = &defaults;
    const double values[] = { o->weight_decay, o->momentum, o->nu };
    return tp__optim_make(P, &qhm, values, o->factors, o->env);
}

/* ---- Adam and AdamW ---- */

enum { ADAM_BETA1 = 1, ADAM_BETA2, ADAM_EPS, ADAM_RAW_EPS, ADAM_DECAY_AFTER };

#define ADAM_OPTIONS                                                                               \
    {                                                                                              \
        DECAY, AVERAGE("beta1", 0.9), AVERAGE("beta2", 0.999), POSITIVE("eps", 1e-8),              \
            FLAG("raw_eps"), FLAG("decay_after")                                                   \
    }

static void adam_constants(const double *option, double *k)
{
    k[TP_ADAM_BETA1] = option[ADAM_BETA1];
    k[TP_ADAM_BETA2] = option[ADAM_BETA2];
    k[TP_ADAM_EPS] = option[ADAM_EPS];
}

/* Bias correction. */
static void adam_numbers(const double *option, tp_segment *s)
{
    const double n = (double)s->updates;
    const double c1 = 1.0 - pow(option[ADAM_BETA1], n);
    const double c2 = sqrt(1.0 - pow(option[ADAM_BETA2], n));
    const bool raw = option[ADAM_RAW_EPS] != 0.0;
    s->l2 = s->decay;
    s->rate = raw ? s->lr * c2 / c1 : s->lr / c1;
    s->root = raw ? 1.0 : 1.0 / c2;
}

static void adamw_numbers(const double *option, tp_segment *s)
{
    const double decay = s->lr * s->decay;
    adam_numbers(option, s);
    s->l2 = 0.0;
    *(option[ADAM_DECAY_AFTER] != 0.0 ? &s->after : &s->before) = decay;
}

static const tp_optim_kind adam = {
    .name = "adam",
    .options = ADAM_OPTIONS,
    .states = { { .name = "m" }, { .name = "v" } },
    .counts = true,
    .constants = adam_constants,
    .numbers = adam_numbers,
    .step = TP_KERNELS(adam_step),
};

static const tp_optim_kind adamw = {
    .name = "adamw",
    .options = ADAM_OPTIONS,
    .states = { { .name = "m" }, { .name = "v" } },
    .counts = true,
    .constants = adam_constants,
    .numbers = adamw_numbers,
    .step = TP_KERNELS(adam_step),
};

static tp_optim *make_adam(tp_params *P, const tp_adam_opts *o, const tp_optim_kind *kind)
{
    static const tp_adam_opts defaults = { 0 };
    if (!o) o = &defaults;
    const double values[] = {
        o->weight_decay, or_else(o->beta1, 0.9), or_else(o->beta2, 0.999), or_else(o->eps, 1e-8),
        o->raw_eps,      o->decay_after
    };
    return tp__optim_make(P, kind, values, o->factors, o->env);
}

tp_optim *tp_adam_new(tp_params *P, const tp_adam_opts *o)
{
    return make_adam(P, o, &adam);
}

tp_optim *tp_adamw_new(tp_params *P, const tp_adamw_opts *o)
{
    return make_adam(P, o, &adamw);
}

/* ---- RMSprop and Adagrad ---- */

enum { RMSPROP_ALPHA = 1, RMSPROP_EPS, RMSPROP_MOMENTUM };
enum { ADAGRAD_EPS = 1, ADAGRAD_LR_DECAY };

static void rmsprop_constants(const double *option, double *k)
{
    k[TP_RMSPROP_ALPHA] = option[RMSPROP_ALPHA];
    k[TP_RMSPROP_EPS] = option[RMSPROP_EPS];
    k[TP_RMSPROP_MOMENTUM] = option[RMSPROP_MOMENTUM];
}

static const tp_optim_kind rmsprop = {
    .name = "rmsprop",
    .options = { DECAY, AVERAGE("alpha", 0.99), POSITIVE("eps", 1e-8), AVERAGE("momentum", 0.0),
                 FLAG("centered") },
    .states = { { .name = "v" },
                { .name = "u", .only_with = "momentum" },
                { .name = "a", .only_with = "centered" } },
    .constants = rmsprop_constants,
    .numbers = coupled,
    .step = TP_KERNELS(rmsprop_step),
};

static void adagrad_constants(const double *option, double *k)
{
    k[TP_ADAGRAD_EPS] = option[ADAGRAD_EPS];
}

static void adagrad_numbers(const double *option, tp_segment *s)
{
    coupled(option, s);
    s->rate /= 1.0 + (double)(s->updates - 1) * option[ADAGRAD_LR_DECAY];
}

static const tp_optim_kind adagrad = {
    .name = "adagrad",
    .options = { DECAY,
                 POSITIVE("eps", 1e-10),
                 POSITIVE("lr_decay", 0.0),
                 { "initial_accumulator", 0.0, 0.0, HUGE_VAL, false, true } },
    .states = { { .name = "v", .starts_at = "initial_accumulator" } },
    .counts = true,
    .constants = adagrad_constants,
    .numbers = adagrad_numbers,
    .step = TP_KERNELS(adagrad_step),
};

tp_optim *tp_rmsprop_new(tp_params *P, const tp_rmsprop_opts *o)
{
    static const tp_rmsprop_opts defaults = { 0 };
    if (!o) o = &defaults;
    const double values[] = { o->weight_decay, or_else(o->alpha, 0.99), or_else(o->eps, 1e-8),
                              o->momentum, o->centered };
    return tp__optim_make(P, &rmsprop, values, o->factors, o->env);
}

tp_optim *tp_adagrad_new(tp_params *P, const tp_adagrad_opts *o)
{
    static const tp_adagrad_opts defaults = { 0 };
    if (!o) o = &defaults;
    const double values[] = { o->weight_decay, or_else(o->eps, 1e-10), o->lr_decay,
                              o->initial_accumulator };
    return tp__optim_make(P, &adagrad, values, o->factors, o->env);
}

/* ---- Lion ---- */

enum { LION_BETA1 = 1, LION_BETA2 };

static void lion_constants(const double *option, double *k)
{
    k[TP_LION_BETA1] = option[LION_BETA1];
    k[TP_LION_BETA2] = option[LION_BETA2];
}

static void lion_numbers(const double *option, tp_segment *s)
{
    (void)option;
    s->rate = s->lr;
    s->before = s->lr * s->decay;
}

static const tp_optim_kind lion = {
    .name = "lion",
    .options = { DECAY, AVERAGE("beta1", 0.9), AVERAGE("beta2", 0.99) },
    .states = { { .name = "m" } },
    .constants = lion_constants,
    .numbers = lion_numbers,
    .step = TP_KERNELS(lion_step),
};

tp_optim *tp_lion_new(tp_params *P, const tp_lion_opts *o)
{
    static const tp_lion_opts defaults = { 0 };
    if (!o) o = &defaults;
    const double values[] = { o->weight_decay, or_else(o->beta1, 0.9), or_else(o->beta2, 0.99) };
    return tp__optim_make(P, &lion, values, o->factors, o->env);
}

/* ---- LAMB ---- */

enum { LAMB_BETA1 = 1, LAMB_BETA2, LAMB_EPS };

static void lamb_constants(const double *option, double *k)
{
    k[TP_LAMB_BETA1] = option[LAMB_BETA1];
    k[TP_LAMB_BETA2] = option[LAMB_BETA2];
    k[TP_LAMB_EPS] = option[LAMB_EPS];
}

static void lamb_numbers(const double *option, tp_segment *s)
{
    const double n = (double)s->updates;
    s->rate = s->lr;
    s->before = 1.0 / (1.0 - pow(option[LAMB_BETA1], n));
    s->root = 1.0 / sqrt(1.0 - pow(option[LAMB_BETA2], n));
    s->after = s->decay;
}

static size_t lamb_work(const tp_call *c)
{
    const tp_segments *s = c->attr;
    return (size_t)(2 * s->blocks + s->n) * sizeof(double);
}

static const tp_optim_kind lamb = {
    .name = "lamb",
    .options = { DECAY, AVERAGE("beta1", 0.9), AVERAGE("beta2", 0.999), POSITIVE("eps", 1e-6) },
    .states = { { .name = "m" }, { .name = "v" } },
    .counts = true,
    .constants = lamb_constants,
    .numbers = lamb_numbers,
    .step = TP_KERNELS(lamb_step),
    .work = TP_SAME_WORK(lamb_work),
};

tp_optim *tp_lamb_new(tp_params *P, const tp_lamb_opts *o)
{
    static const tp_lamb_opts defaults = { 0 };
    if (!o) o = &defaults;
    const double values[] = { o->weight_decay, or_else(o->beta1, 0.9), or_else(o->beta2, 0.999),
                              or_else(o->eps, 1e-6) };
    return tp__optim_make(P, &lamb, values, o->factors, o->env);
}

/* ---- Adafactor ---- */

enum { ADAFACTOR_BETA2_DECAY = 1, ADAFACTOR_EPS1, ADAFACTOR_EPS2, ADAFACTOR_D };

static void adafactor_constants(const double *option, double *k)
{
    k[TP_ADAFACTOR_EPS1] = option[ADAFACTOR_EPS1];
    k[TP_ADAFACTOR_EPS2] = option[ADAFACTOR_EPS2];
    k[TP_ADAFACTOR_D] = option[ADAFACTOR_D];
}

static void adafactor_numbers(const double *option, tp_segment *s)
{
    const double n = (double)s->updates;
    s->rate = fmin(s->lr, 1.0 / sqrt(n));
    s->root = pow(n, option[ADAFACTOR_BETA2_DECAY]);
    s->before = s->lr * s->decay;
}

/* [..,R,C] has averages of rows [..,R] and of columns [..,C]. */
static tp_shape row_means(tp_shape of)
{
    of.ndim -= 1;
    return of.ndim > 0 ? of : (tp_shape){ .ndim = -1 };
}

static tp_shape column_means(tp_shape of)
{
    if (of.ndim < 2) return (tp_shape){ .ndim = -1 };
    of.dim[of.ndim - 2] = of.dim[of.ndim - 1];
    of.ndim -= 1;
    return of;
}

static tp_shape squares(tp_shape of)
{
    return of.ndim < 2 ? of : (tp_shape){ .ndim = -1 };
}

static size_t adafactor_work(const tp_call *c)
{
    const tp_optim_attr *a = c->attr;
    return (size_t)tp__factored_size(&a->s, c->y[1].numel, c->y[0].numel) * sizeof(double);
}

static const tp_optim_kind adafactor = {
    .name = "adafactor",
    .options = { DECAY,
                 { "beta2_decay", -0.8, -HUGE_VAL, 0.0, true, false },
                 POSITIVE("eps1", FLT_EPSILON),
                 POSITIVE("eps2", 1e-3),
                 { "d", 1.0, 1.0, HUGE_VAL, false, false } },
    .states = { { .name = "row", .shape = row_means },
                { .name = "col", .shape = column_means },
                { .name = "v", .shape = squares } },
    .counts = true,
    .constants = adafactor_constants,
    .numbers = adafactor_numbers,
    .step = TP_KERNELS(adafactor_step),
    .work = TP_SAME_WORK(adafactor_work),
};

tp_optim *tp_adafactor_new(tp_params *P, const tp_adafactor_opts *o)
{
    static const tp_adafactor_opts defaults = { 0 };
    const double least = P && P->dtype == TP_F64 ? DBL_EPSILON : (double)FLT_EPSILON;
    if (!o) o = &defaults;
    const double values[] = { o->weight_decay, or_else(o->beta2_decay, -0.8),
                              or_else(o->eps1, least), or_else(o->eps2, 1e-3), or_else(o->d, 1.0) };
    return tp__optim_make(P, &adafactor, values, o->factors, o->env);
}
