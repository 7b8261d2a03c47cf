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
    { "muon", "muon", { { NULL, 0 } }, NULL },
    { "muon all", "muon",
      { { "momentum", 0.8 }, { "nesterov", 0 }, { "newton_schulz", 3 }, { "match_rms", 0 },
        { "beta2", 0.9 }, { "eps", 1e-3 }, { "weight_decay", 0.3 } }, some_factors },
    { "schedulefree", "schedulefree", { { NULL, 0 } }, NULL },
    { "schedulefree all", "schedulefree",
      { { "beta1", 0.8 }, { "beta2", 0.95 }, { "eps", 1e-3 }, { "r", 0.5 }, { "lr_power", 1 },
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
    return tp_optim_new(P, f->kind,
                        &(tp_optim_opts){ .values = f->options, .factors = f->factors });
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

/* Jordan's iteration on u [R,C], or on its transpose if that has fewer rows. */
static void newton_schulz(double *u, int64_t R, int64_t C, int iterations)
{
    static double a[OPTIM_SIDE * OPTIM_SIDE], y[OPTIM_LARGEST];
    const bool tall = R > C;
    const int64_t n = tall ? C : R, long_side = tall ? R : C, row = tall ? 1 : C,
                  col = tall ? C : 1;
    double norm = 0.0;
    for (int64_t k = 0; k < R * C; k++) norm += u[k] * u[k];
    for (int64_t k = 0; k < R * C; k++) u[k] /= fmax(sqrt(norm), 1e-7);
    for (int step = 0; step < iterations; step++) {
        memset(a, 0, sizeof a);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++)
                for (int64_t k = 0; k < long_side; k++)
                    a[i * n + j] += u[i * row + k * col] * u[j * row + k * col];
        for (int64_t i = 0; i < n; i++) { /* column k of (3.4445 - 4.775 A + 2.0315 A A) X */
            for (int64_t k = 0; k < long_side; k++) y[i * row + k * col] = 0.0;
            for (int64_t j = 0; j < n; j++) {
                double b = -4.775 * a[i * n + j] + (i == j ? 3.4445 : 0.0);
                for (int64_t k = 0; k < n; k++) b += 2.0315 * a[i * n + k] * a[k * n + j];
                for (int64_t k = 0; k < long_side; k++)
                    y[i * row + k * col] += b * u[j * row + k * col];
            }
        }
        memcpy(u, y, (size_t)(R * C) * sizeof *u);
    }
}

static void muon(const optim_form *f, optim_plain *s, const double *grad, double lr, double wd)
{
    const double momentum = given(f, "momentum", 0.95), R = (double)s->shape.dim[0];
    const double C = (double)s->shape.dim[1];
    if (s->shape.ndim != 2 || s->numel == 0) {
        optim_form rest = { .kind = "adamw" };
        rest.options[0] = (tp_optim_value){ "beta2", given(f, "beta2", 0.95) };
        rest.options[1] = (tp_optim_value){ "eps", given(f, "eps", 1e-8) };
        adam(&rest, s, grad, lr, wd);
        return;
    }
    for (int64_t k = 0; k < s->numel; k++) {
        s->m[k] += (1.0 - momentum) * (grad[k] - s->m[k]);
        s->u[k] = s->m[k];
        if (given(f, "nesterov", 1.0) != 0.0)
            s->u[k] = (1.0 - momentum) * grad[k] + momentum * s->m[k];
    }
    newton_schulz(s->u, s->shape.dim[0], s->shape.dim[1], (int)given(f, "newton_schulz", 5.0));
    const bool match = given(f, "match_rms", 1.0) != 0.0;
    const double size = match ? 0.2 * sqrt(fmax(R, C)) : sqrt(fmax(1.0, R / C));
    for (int64_t k = 0; k < s->numel; k++)
        s->p[k] = s->p[k] * (1.0 - lr * wd) - lr * size * s->u[k];
}

/* As published: y in p, z in u. The weights of steps count all updates, also of others. */
static void schedulefree(const optim_form *f, optim_plain *s, const double *grad, double lr,
                         double wd)
{
    const double b1 = given(f, "beta1", 0.9), b2 = given(f, "beta2", 0.999);
    const double eps = given(f, "eps", 1e-8);
    if (s->updates == 1) memcpy(s->u, s->p, sizeof s->u);
    const double c2 = 1.0 - pow(b2, s->updates);
    for (int64_t k = 0; k < s->numel; k++) {
        s->v[k] = b2 * s->v[k] + (1.0 - b2) * grad[k] * grad[k];
        const double q = grad[k] / (sqrt(s->v[k] / c2) + eps) + wd * s->p[k];
        s->p[k] = (1.0 - s->c) * s->p[k] + s->c * s->u[k];
        s->p[k] += lr * (b1 * (1.0 - s->c) - 1.0) * q;
        s->u[k] -= lr * q;
    }
}

/* The weight of this update in the average, from the rates of all. */
static void weigh_update(const optim_form *f, optim_plain *s, int n, double lr)
{
    s->largest = fmax(s->largest, lr);
    const double w = pow(n, given(f, "r", 0.0)) * pow(s->largest, given(f, "lr_power", 2.0));
    s->weights += w;
    s->c = w / s->weights;
}

static const struct plain {
    const char *kind;
    void (*step)(const optim_form *f, optim_plain *s, const double *grad, double lr, double wd);
} plain[] = { { "sgd", sgd },         { "qhm", qhm },
              { "adam", adam },       { "adamw", adam },
              { "adamw-vil", adam },  { "rmsprop", rmsprop },
              { "adagrad", adagrad }, { "lion", lion },
              { "lamb", lamb },       { "adafactor", adafactor },
              { "muon", muon },       { "schedulefree", schedulefree } };

void optim_plain_skip(const optim_form *f, optim_plain *s, double lr)
{
    weigh_update(f, s, ++s->steps, lr);
}

void optim_plain_step(const optim_form *f, optim_plain *s, const double *grad, double lr)
{
    const tp_factors own = f->factors ? f->factors(s->name, s->shape, NULL) : (tp_factors){ 1, 1 };
    const double wd = given(f, "weight_decay", 0.0) * own.decay;
    s->updates++;
    weigh_update(f, s, ++s->steps, lr);
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (strcmp(plain[i].kind, f->kind) == 0) plain[i].step(f, s, grad, lr * own.lr, wd);
}
