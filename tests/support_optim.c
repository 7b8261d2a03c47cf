/* support_optim.c - every form of every optimiser, and its step as a plain loop in double. */
#include "support_optim.h"

#include <math.h>
#include <string.h>

static tp_factors some_factors(const char *name, tp_shape s, void *env)
{
    (void)env;
    if (s.ndim == 1 && strcmp(name, "block.bias") == 0) return (tp_factors){ 1.0, 0.0 };
    return strncmp(name, "wide.", 5) == 0 ? (tp_factors){ 0.25, 2.0 } : (tp_factors){ 1.0, 1.0 };
}

const optim_form optim_forms[] = {
    { .name = "sgd", .rule = SGD },
    { .name = "sgd decay", .rule = SGD, .sgd = { .weight_decay = 0.1 } },
    { .name = "sgd momentum", .rule = SGD, .sgd = { .momentum = 0.9, .weight_decay = 0.1 } },
    { .name = "sgd nesterov", .rule = SGD, .sgd = { .momentum = 0.8, .nesterov = true } },
    { .name = "sgd factors",
      .rule = SGD,
      .sgd = { .momentum = 0.9, .weight_decay = 0.2, .factors = some_factors } },
    { .name = "qhm", .rule = QHM, .qhm = { .momentum = 0.9, .nu = 0.7, .weight_decay = 0.1 } },
    { .name = "qhm damped", .rule = QHM, .qhm = { .momentum = 0.8, .nu = 1.0 } },
    { .name = "qhm without momentum",
      .rule = QHM,
      .qhm = { .nu = 0.5, .weight_decay = 0.2, .factors = some_factors } },
    { .name = "adam", .rule = ADAM },
    { .name = "adam decay",
      .rule = ADAM,
      .adam = { .weight_decay = 0.1, .factors = some_factors } },
    { .name = "adam raw eps", .rule = ADAM, .adam = { .raw_eps = true, .eps = 1e-2 } },
    { .name = "adamw", .rule = ADAMW, .adam = { .weight_decay = 0.1 } },
    { .name = "adamw betas", .rule = ADAMW, .adam = { .beta1 = 0.8, .beta2 = 0.9, .eps = 1e-2 } },
    { .name = "adamw raw eps", .rule = ADAMW, .adam = { .weight_decay = 0.1, .raw_eps = true } },
    { .name = "adamw decay after",
      .rule = ADAMW,
      .adam = { .weight_decay = 0.3, .raw_eps = true, .decay_after = true } },
    { .name = "adamw factors",
      .rule = ADAMW,
      .adam = { .weight_decay = 0.3, .factors = some_factors } },
    { .name = "rmsprop", .rule = RMSPROP, .rmsprop = { .eps = 1e-4 } },
    { .name = "rmsprop momentum",
      .rule = RMSPROP,
      .rmsprop = { .alpha = 0.9, .eps = 1e-3, .momentum = 0.8, .weight_decay = 0.1 } },
    { .name = "rmsprop centered",
      .rule = RMSPROP,
      .rmsprop = { .alpha = 0.7, .eps = 1e-2, .centered = true, .factors = some_factors } },
    { .name = "rmsprop all",
      .rule = RMSPROP,
      .rmsprop = { .eps = 1e-2, .momentum = 0.5, .weight_decay = 0.2, .centered = true } },
    { .name = "adagrad", .rule = ADAGRAD, .adagrad = { .eps = 1e-4 } },
    { .name = "adagrad all",
      .rule = ADAGRAD,
      .adagrad = { .lr_decay = 0.3,
                   .initial_accumulator = 0.2,
                   .weight_decay = 0.1,
                   .factors = some_factors } },
    { .name = "lion", .rule = LION },
    { .name = "lion decay",
      .rule = LION,
      .lion = { .beta1 = 0.83, .beta2 = 0.71, .weight_decay = 0.3, .factors = some_factors } },
    { .name = "lamb", .rule = LAMB },
    { .name = "lamb all",
      .rule = LAMB,
      .lamb = { .beta1 = 0.8,
                .beta2 = 0.95,
                .eps = 1e-3,
                .weight_decay = 0.3,
                .factors = some_factors } },
    { .name = "adafactor", .rule = ADAFACTOR, .adafactor = { .eps1 = 1e-7 } },
    { .name = "adafactor all",
      .rule = ADAFACTOR,
      .adafactor = { .beta2_decay = -0.5,
                     .eps1 = 0.3,
                     .eps2 = 0.4,
                     .d = 1.05,
                     .weight_decay = 0.3,
                     .factors = some_factors } },
    { .name = NULL },
};

const optim_form *optim_form_of(const char *name)
{
    const optim_form *f = optim_forms;
    while (f->name && strcmp(f->name, name) != 0) f++;
    return f;
}

tp_optim *optim_make(tp_params *P, const optim_form *f)
{
    switch (f->rule) {
    case SGD: return tp_sgd_new(P, &f->sgd);
    case QHM: return tp_qhm_new(P, &f->qhm);
    case ADAM: return tp_adam_new(P, &f->adam);
    case ADAMW: return tp_adamw_new(P, &f->adam);
    case RMSPROP: return tp_rmsprop_new(P, &f->rmsprop);
    case ADAGRAD: return tp_adagrad_new(P, &f->adagrad);
    case LION: return tp_lion_new(P, &f->lion);
    case LAMB: return tp_lamb_new(P, &f->lamb);
    case ADAFACTOR: return tp_adafactor_new(P, &f->adafactor);
    }
    return NULL;
}

/* ---- plain loops ---- */

static double given(double x, double usual)
{
    return x != 0.0 ? x : usual;
}

static void sgd(const tp_sgd_opts *o, optim_plain *s, const double *grad, double lr, double wd)
{
    for (int64_t k = 0; k < s->numel; k++) {
        const double g = grad[k] + wd * s->p[k];
        s->m[k] = o->momentum * s->m[k] + g;
        s->p[k] -= lr * (o->nesterov ? g + o->momentum * s->m[k] : s->m[k]);
    }
}

static void qhm(const tp_qhm_opts *o, optim_plain *s, const double *grad, double lr, double wd)
{
    for (int64_t k = 0; k < s->numel; k++) {
        const double g = grad[k] + wd * s->p[k];
        s->m[k] = o->momentum * s->m[k] + (1.0 - o->momentum) * g;
        s->p[k] -= lr * ((1.0 - o->nu) * g + o->nu * s->m[k]);
    }
}

static void adam(const tp_adam_opts *o, bool decoupled, optim_plain *s, const double *grad,
                 double lr, double wd)
{
    const double b1 = given(o->beta1, 0.9), b2 = given(o->beta2, 0.999), eps = given(o->eps, 1e-8);
    const double c1 = 1.0 - pow(b1, s->updates), c2 = 1.0 - pow(b2, s->updates);
    for (int64_t k = 0; k < s->numel; k++) {
        const double g = grad[k] + (decoupled ? 0.0 : wd * s->p[k]);
        s->m[k] = b1 * s->m[k] + (1.0 - b1) * g;
        s->v[k] = b2 * s->v[k] + (1.0 - b2) * g * g;
        if (decoupled && !o->decay_after) s->p[k] -= lr * wd * s->p[k];
        if (o->raw_eps)
            s->p[k] -= lr * sqrt(c2) / c1 * s->m[k] / (sqrt(s->v[k]) + eps);
        else
            s->p[k] -= lr * (s->m[k] / c1) / (sqrt(s->v[k] / c2) + eps);
        if (decoupled && o->decay_after) s->p[k] -= lr * wd * s->p[k];
    }
}

static void rmsprop(const tp_rmsprop_opts *o, optim_plain *s, const double *grad, double lr,
                    double wd)
{
    const double alpha = given(o->alpha, 0.99), eps = given(o->eps, 1e-8);
    for (int64_t k = 0; k < s->numel; k++) {
        const double g = grad[k] + wd * s->p[k];
        s->v[k] = alpha * s->v[k] + (1.0 - alpha) * g * g;
        s->m[k] = alpha * s->m[k] + (1.0 - alpha) * g;
        const double mean = o->centered ? s->m[k] : 0.0;
        s->u[k] = o->momentum * s->u[k] + g / (sqrt(s->v[k] - mean * mean) + eps);
        s->p[k] -= lr * s->u[k];
    }
}

static void adagrad(const tp_adagrad_opts *o, optim_plain *s, const double *grad, double lr,
                    double wd)
{
    const double rate = lr / (1.0 + (s->updates - 1) * o->lr_decay);
    for (int64_t k = 0; k < s->numel; k++) {
        const double g = grad[k] + wd * s->p[k];
        if (s->updates == 1) s->v[k] = o->initial_accumulator;
        s->v[k] += g * g;
        s->p[k] -= rate * g / (sqrt(s->v[k]) + given(o->eps, 1e-10));
    }
}

static void lion(const tp_lion_opts *o, optim_plain *s, const double *grad, double lr, double wd)
{
    const double b1 = given(o->beta1, 0.9), b2 = given(o->beta2, 0.99);
    for (int64_t k = 0; k < s->numel; k++) {
        const double to = b1 * s->m[k] + (1.0 - b1) * grad[k];
        s->p[k] = s->p[k] * (1.0 - lr * wd) - lr * ((to > 0.0) - (to < 0.0));
        s->m[k] = b2 * s->m[k] + (1.0 - b2) * grad[k];
    }
}

static void lamb(const tp_lamb_opts *o, optim_plain *s, const double *grad, double lr, double wd)
{
    const double b1 = given(o->beta1, 0.9), b2 = given(o->beta2, 0.999), eps = given(o->eps, 1e-6);
    const double c1 = 1.0 - pow(b1, s->updates), c2 = 1.0 - pow(b2, s->updates);
    double pp = 0.0, rr = 0.0;
    for (int64_t k = 0; k < s->numel; k++) {
        s->m[k] = b1 * s->m[k] + (1.0 - b1) * grad[k];
        s->v[k] = b2 * s->v[k] + (1.0 - b2) * grad[k] * grad[k];
        s->u[k] = s->m[k] / c1 / (sqrt(s->v[k] / c2) + eps) + wd * s->p[k];
        pp += s->p[k] * s->p[k];
        rr += s->u[k] * s->u[k];
    }
    const double trust = pp > 0.0 && rr > 0.0 ? sqrt(pp) / sqrt(rr) : 1.0;
    for (int64_t k = 0; k < s->numel; k++) s->p[k] -= lr * trust * s->u[k];
}

/* Moves m, the averages of rows, and v, those of columns, and leaves the mean squares in u. */
static void factored(optim_plain *s, const double *g, double weight, double eps1)
{
    const int64_t C = s->shape.dim[s->shape.ndim - 1], R = s->shape.dim[s->shape.ndim - 2];
    for (int64_t at = 0, r0 = 0, c0 = 0; at < s->numel; at += R * C, r0 += R, c0 += C) {
        double mean = 0.0;
        for (int64_t i = 0; i < R; i++) s->m[r0 + i] *= 1.0 - weight;
        for (int64_t j = 0; j < C; j++) s->v[c0 + j] *= 1.0 - weight;
        for (int64_t k = 0; k < R * C; k++) {
            const double square = weight * g[at + k] * g[at + k];
            s->m[r0 + k / C] += square / (double)C;
            s->v[c0 + k % C] += square / (double)R;
        }
        for (int64_t i = 0; i < R; i++) mean += s->m[r0 + i] / (double)R;
        for (int64_t k = 0; k < R * C; k++)
            s->u[at + k] = s->m[r0 + k / C] * s->v[c0 + k % C] / fmax(mean, eps1);
    }
}

static void adafactor(const tp_adafactor_opts *o, optim_plain *s, const double *grad, double lr,
                      double wd)
{
    const double n = s->updates, weight = pow(n, given(o->beta2_decay, -0.8));
    double pp = 0.0, uu = 0.0;
    for (int64_t k = 0; k < s->numel; k++) pp += s->p[k] * s->p[k];
    if (s->shape.ndim > 1) factored(s, grad, weight, o->eps1);
    for (int64_t k = 0; k < s->numel; k++) {
        if (s->shape.ndim < 2)
            s->u[k] = s->v[k] = (1.0 - weight) * s->v[k] + weight * grad[k] * grad[k];
        const double u = grad[k] / fmax(sqrt(s->u[k]), o->eps1);
        uu += u * u;
    }
    const double size = fmax(given(o->eps2, 1e-3), sqrt(pp / (double)s->numel));
    const double excess = fmax(1.0, sqrt(uu / (double)s->numel) / given(o->d, 1.0));
    const double rate = fmin(lr, 1.0 / sqrt(n)) * size / excess;
    for (int64_t k = 0; k < s->numel; k++) {
        const double u = grad[k] / fmax(sqrt(s->u[k]), o->eps1);
        s->p[k] = s->p[k] * (1.0 - lr * wd) - rate * u;
    }
}

/* What all options structs have. */
typedef struct common {
    double weight_decay;
    tp_factor_rule factors;
} common;

static common common_of(const optim_form *f)
{
    switch (f->rule) {
    case SGD: return (common){ f->sgd.weight_decay, f->sgd.factors };
    case QHM: return (common){ f->qhm.weight_decay, f->qhm.factors };
    case ADAM:
    case ADAMW: return (common){ f->adam.weight_decay, f->adam.factors };
    case RMSPROP: return (common){ f->rmsprop.weight_decay, f->rmsprop.factors };
    case ADAGRAD: return (common){ f->adagrad.weight_decay, f->adagrad.factors };
    case LION: return (common){ f->lion.weight_decay, f->lion.factors };
    case LAMB: return (common){ f->lamb.weight_decay, f->lamb.factors };
    case ADAFACTOR: return (common){ f->adafactor.weight_decay, f->adafactor.factors };
    }
    return (common){ 0 };
}

void optim_plain_step(const optim_form *f, optim_plain *s, const double *grad, double lr)
{
    const common c = common_of(f);
    const tp_factors own = c.factors ? c.factors(s->name, s->shape, NULL) : (tp_factors){ 1, 1 };
    const double wd = c.weight_decay * own.decay;
    lr *= own.lr;
    s->updates++;
    switch (f->rule) {
    case SGD: sgd(&f->sgd, s, grad, lr, wd); break;
    case QHM: qhm(&f->qhm, s, grad, lr, wd); break;
    case ADAM:
    case ADAMW: adam(&f->adam, f->rule == ADAMW, s, grad, lr, wd); break;
    case RMSPROP: rmsprop(&f->rmsprop, s, grad, lr, wd); break;
    case ADAGRAD: adagrad(&f->adagrad, s, grad, lr, wd); break;
    case LION: lion(&f->lion, s, grad, lr, wd); break;
    case LAMB: lamb(&f->lamb, s, grad, lr, wd); break;
    case ADAFACTOR: adafactor(&f->adafactor, s, grad, lr, wd); break;
    }
}
