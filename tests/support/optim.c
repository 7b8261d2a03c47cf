/* optim.c - every form of every optimiser, and its step as a plain loop in double. */
#include "support/optim.h"

#include <math.h>
#include <string.h>

static tp_factors some_factors(const char *name, tp_shape s, void *env)
{
    (void)env;
    if (s.ndim == 1 && strcmp(name, "block.bias") == 0) return (tp_factors){ 1.0, 0.0 };
    return strncmp(name, "wide.", 5) == 0 ? (tp_factors){ 0.25, 2.0 } : (tp_factors){ 1.0, 1.0 };
}

/* clang-format off */
const optim_form optim_forms[] = {
    { "sgd", "sgd", { { NULL, 0 } }, NULL },
    { "sgd decay", "sgd", { { "weight_decay", 0.1 } }, NULL },
    { "sgd momentum", "sgd", { { "momentum", 0.9 }, { "weight_decay", 0.1 } }, NULL },
    { "sgd nesterov", "sgd", { { "momentum", 0.8 }, { "nesterov", 1 } }, NULL },
    { "sgd factors", "sgd", { { "momentum", 0.9 }, { "weight_decay", 0.2 } }, some_factors },
    { "qhm", "qhm", { { "momentum", 0.9 }, { "nu", 0.7 }, { "weight_decay", 0.1 } }, NULL },
    { "qhm damped", "qhm", { { "momentum", 0.8 }, { "nu", 1.0 } }, NULL },
    { "qhm without momentum", "qhm", { { "momentum", 0 }, { "nu", 0.5 }, { "weight_decay", 0.2 } },
      some_factors },
    { "adam", "adam", { { NULL, 0 } }, NULL },
    { "adam decay", "adam", { { "weight_decay", 0.1 } }, some_factors },
    { "adam raw eps", "adam", { { "raw_eps", 1 }, { "eps", 1e-2 } }, NULL },
    { "adamw", "adamw", { { "weight_decay", 0.1 } }, NULL },
    { "adamw betas", "adamw", { { "beta1", 0.8 }, { "beta2", 0.9 }, { "eps", 1e-2 } }, NULL },
    { "adamw raw eps", "adamw", { { "weight_decay", 0.1 }, { "raw_eps", 1 } }, NULL },
    { "adamw decay after", "adamw",
      { { "weight_decay", 0.3 }, { "raw_eps", 1 }, { "decay_after", 1 } }, NULL },
    { "adamw factors", "adamw", { { "weight_decay", 0.3 } }, some_factors },
    { "adamw-vil", "adamw-vil", { { "weight_decay", 0.3 } }, NULL },
    { "rmsprop", "rmsprop", { { "eps", 1e-4 } }, NULL },
    { "rmsprop momentum", "rmsprop",
      { { "alpha", 0.9 }, { "eps", 1e-3 }, { "momentum", 0.8 }, { "weight_decay", 0.1 } }, NULL },
    { "rmsprop centered", "rmsprop", { { "alpha", 0.7 }, { "eps", 1e-2 }, { "centered", 1 } },
      some_factors },
    { "rmsprop all", "rmsprop",
      { { "eps", 1e-2 }, { "momentum", 0.5 }, { "weight_decay", 0.2 }, { "centered", 1 } }, NULL },
    { "adagrad", "adagrad", { { "eps", 1e-4 } }, NULL },
    { "adagrad all", "adagrad",
      { { "lr_decay", 0.3 }, { "initial_accumulator", 0.2 }, { "weight_decay", 0.1 } },
      some_factors },
    { "lion", "lion", { { NULL, 0 } }, NULL },
    { "lion decay", "lion", { { "beta1", 0.83 }, { "beta2", 0.71 }, { "weight_decay", 0.3 } },
      some_factors },
    { "lamb", "lamb", { { NULL, 0 } }, NULL },
    { "lamb all", "lamb",
      { { "beta1", 0.8 }, { "beta2", 0.95 }, { "eps", 1e-3 }, { "weight_decay", 0.3 } },
      some_factors },
    { "adafactor", "adafactor", { { "eps1", 1e-7 } }, NULL },
    { "adafactor all", "adafactor",
      { { "beta2_decay", -0.5 }, { "eps1", 0.3 }, { "eps2", 0.4 }, { "d", 1.05 },
        { "weight_decay", 0.3 } }, some_factors },
    { .name = NULL },
};
/* clang-format on */

const optim_form *optim_form_of(const char *name)
{
    const optim_form *f = optim_forms;
    while (f->name && strcmp(f->name, name) != 0) f++;
    return f;
}

tp_optim *optim_make(tp_params *P, const optim_form *f)
{
    return tp_optim_new(P, f->kind, &(tp_optim_opts){ f->options, f->factors, NULL });
}

/* ---- plain loops ---- */

/* The value of an option, by default the published `usual`. */
static double given(const optim_form *f, const char *name, double usual)
{
    for (const tp_optim_value *v = f->options; v->name; v++)
        if (strcmp(v->name, name) == 0) return v->value;
    return usual;
}

static void sgd(const optim_form *f, optim_plain *s, const double *grad, double lr, double wd)
{
    const double momentum = given(f, "momentum", 0.0);
    const bool nesterov = given(f, "nesterov", 0.0) != 0.0;
    for (int64_t k = 0; k < s->numel; k++) {
        const double g = grad[k] + wd * s->p[k];
        s->m[k] = momentum * s->m[k] + g;
        s->p[k] -= lr * (nesterov ? g + momentum * s->m[k] : s->m[k]);
    }
}

static void qhm(const optim_form *f, optim_plain *s, const double *grad, double lr, double wd)
{
    const double momentum = given(f, "momentum", 0.9), nu = given(f, "nu", 1.0);
    for (int64_t k = 0; k < s->numel; k++) {
        const double g = grad[k] + wd * s->p[k];
        s->m[k] = momentum * s->m[k] + (1.0 - momentum) * g;
        s->p[k] -= lr * ((1.0 - nu) * g + nu * s->m[k]);
    }
}

static void adam(const optim_form *f, optim_plain *s, const double *grad, double lr, double wd)
{
    const double b1 = given(f, "beta1", 0.9), b2 = given(f, "beta2", 0.999);
    const double eps = given(f, "eps", 1e-8);
    const bool decoupled = strcmp(f->kind, "adam") != 0, vil = strcmp(f->kind, "adamw-vil") == 0;
    const bool raw_eps = given(f, "raw_eps", vil) != 0.0;
    const bool decay_after = given(f, "decay_after", vil) != 0.0;
    const double c1 = 1.0 - pow(b1, s->updates), c2 = 1.0 - pow(b2, s->updates);
    for (int64_t k = 0; k < s->numel; k++) {
        const double g = grad[k] + (decoupled ? 0.0 : wd * s->p[k]);
        s->m[k] = b1 * s->m[k] + (1.0 - b1) * g;
        s->v[k] = b2 * s->v[k] + (1.0 - b2) * g * g;
        if (decoupled && !decay_after) s->p[k] -= lr * wd * s->p[k];
        if (raw_eps)
            s->p[k] -= lr * sqrt(c2) / c1 * s->m[k] / (sqrt(s->v[k]) + eps);
        else
            s->p[k] -= lr * (s->m[k] / c1) / (sqrt(s->v[k] / c2) + eps);
        if (decoupled && decay_after) s->p[k] -= lr * wd * s->p[k];
    }
}

static void rmsprop(const optim_form *f, optim_plain *s, const double *grad, double lr, double wd)
{
    const double alpha = given(f, "alpha", 0.99), eps = given(f, "eps", 1e-8);
    const double momentum = given(f, "momentum", 0.0);
    const bool centered = given(f, "centered", 0.0) != 0.0;
    for (int64_t k = 0; k < s->numel; k++) {
        const double g = grad[k] + wd * s->p[k];
        s->v[k] = alpha * s->v[k] + (1.0 - alpha) * g * g;
        s->m[k] = alpha * s->m[k] + (1.0 - alpha) * g;
        const double mean = centered ? s->m[k] : 0.0;
        s->u[k] = momentum * s->u[k] + g / (sqrt(s->v[k] - mean * mean) + eps);
        s->p[k] -= lr * s->u[k];
    }
}

static void adagrad(const optim_form *f, optim_plain *s, const double *grad, double lr, double wd)
{
    const double rate = lr / (1.0 + (s->updates - 1) * given(f, "lr_decay", 0.0));
    const double initial = given(f, "initial_accumulator", 0.0), eps = given(f, "eps", 1e-10);
    for (int64_t k = 0; k < s->numel; k++) {
        const double g = grad[k] + wd * s->p[k];
        if (s->updates == 1) s->v[k] = initial;
        s->v[k] += g * g;
        s->p[k] -= rate * g / (sqrt(s->v[k]) + eps);
    }
}

static void lion(const optim_form *f, optim_plain *s, const double *grad, double lr, double wd)
{
    const double b1 = given(f, "beta1", 0.9), b2 = given(f, "beta2", 0.99);
    for (int64_t k = 0; k < s->numel; k++) {
        const double to = b1 * s->m[k] + (1.0 - b1) * grad[k];
        s->p[k] = s->p[k] * (1.0 - lr * wd) - lr * ((to > 0.0) - (to < 0.0));
        s->m[k] = b2 * s->m[k] + (1.0 - b2) * grad[k];
    }
}

static void lamb(const optim_form *f, optim_plain *s, const double *grad, double lr, double wd)
{
    const double b1 = given(f, "beta1", 0.9), b2 = given(f, "beta2", 0.999);
    const double eps = given(f, "eps", 1e-6);
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

/* Updates m, the averages of rows, and v, those of columns; stores the mean squares in u. */
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

static void adafactor(const optim_form *f, optim_plain *s, const double *grad, double lr, double wd)
{
    const double n = s->updates, weight = pow(n, given(f, "beta2_decay", -0.8));
    const double eps1 = given(f, "eps1", 0.0);
    double pp = 0.0, uu = 0.0;
    for (int64_t k = 0; k < s->numel; k++) pp += s->p[k] * s->p[k];
    if (s->shape.ndim > 1) factored(s, grad, weight, eps1);
    for (int64_t k = 0; k < s->numel; k++) {
        if (s->shape.ndim < 2)
            s->u[k] = s->v[k] = (1.0 - weight) * s->v[k] + weight * grad[k] * grad[k];
        const double u = grad[k] / fmax(sqrt(s->u[k]), eps1);
        uu += u * u;
    }
    const double size = fmax(given(f, "eps2", 1e-3), sqrt(pp / (double)s->numel));
    const double excess = fmax(1.0, sqrt(uu / (double)s->numel) / given(f, "d", 1.0));
    const double rate = fmin(lr, 1.0 / sqrt(n)) * size / excess;
    for (int64_t k = 0; k < s->numel; k++) {
        const double u = grad[k] / fmax(sqrt(s->u[k]), eps1);
        s->p[k] = s->p[k] * (1.0 - lr * wd) - rate * u;
    }
}

static const struct plain {
    const char *kind;
    void (*step)(const optim_form *f, optim_plain *s, const double *grad, double lr, double wd);
} plain[] = { { "sgd", sgd },         { "qhm", qhm },
              { "adam", adam },       { "adamw", adam },
              { "adamw-vil", adam },  { "rmsprop", rmsprop },
              { "adagrad", adagrad }, { "lion", lion },
              { "lamb", lamb },       { "adafactor", adafactor } };

void optim_plain_step(const optim_form *f, optim_plain *s, const double *grad, double lr)
{
    const tp_factors own = f->factors ? f->factors(s->name, s->shape, NULL) : (tp_factors){ 1, 1 };
    const double wd = given(f, "weight_decay", 0.0) * own.decay;
    s->updates++;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (strcmp(plain[i].kind, f->kind) == 0) plain[i].step(f, s, grad, lr * own.lr, wd);
}
