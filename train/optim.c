/* optim.c - SGD, QHM, Adam and AdamW over the flat blocks of a parameter set.
 *
 * A step is one kernel over the segments of all parameters that have a gradient. Each parameter
 * counts its own updates, so that one unfrozen late starts its bias correction at step 1 (as in
 * PyTorch). */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/optim.h>

#include "tensor/file/inner.h"
#include "train/blocks.h"

TP_KERNEL(sgd_step);
TP_KERNEL(adam_step);
static const tp_block_kernel sgd_kernel = { "sgd", TP_KERNELS(sgd_step) };
static const tp_block_kernel adam_kernel = { "adam", TP_KERNELS(adam_step) };

typedef enum kind { SGD, QHM, ADAM, ADAMW } kind;
static const char *const kinds[] = { "sgd", "qhm", "adam", "adamw" };

typedef struct weight { /* a parameter and its factors for rate and decay */
    const tp_entry *entry;
    tp_factors factors;
    int64_t updates;
} weight;

struct tp_optim {
    tp_err err;      /* of construction and reading: permanent    */
    tp_err step_err; /* of the last step: the next step clears it */
    tp_params *P;
    kind kind;
    double weight_decay, momentum, beta1, beta2, eps;
    double gain, of_g, of_u; /* SGD and QHM: see tp_sgd_attr */
    bool raw_eps, decay_after;
    weight *weights;
    int n;
    tp_segments s;          /* of the current step; capacity n */
    tp_buf *first, *second; /* SGD: u (if momentum); Adam: m, v */
    int64_t updates;
    double scale; /* factor on the gradients of the next step */
};

static tp_optim no_memory = {
    .err = { TP_E_MEMORY, "optimiser: out of memory for the object itself", NULL },
};

static tp_optim none = {
    .err = { TP_E_STATE, "optimiser: NULL was given in place of an optimiser", NULL },
};

/* ---- construction ---- */

static bool usable(double rate)
{
    return rate >= 0.0 && isfinite(rate);
}

static void take_weights(tp_optim *O, tp_factor_rule rule, void *env)
{
    const tp_params *P = O->P;
    for (int i = 0; i < P->n; i++) {
        const tp_entry *e = &P->entries[i];
        if (!tp__in_block(e)) continue;
        weight *w = &O->weights[O->n++];
        *w = (weight){ e, { 1.0, 1.0 }, 0 };
        if (rule) w->factors = rule(e->name, tp__view_shape(&e->node->view), env);
        if (!usable(w->factors.lr) || !usable(w->factors.decay))
            tp__err(&O->err, TP_E_VALUE,
                    "%s: the factors of '%.200s' are %g and %g; both must be finite and at least 0",
                    kinds[O->kind], e->name, w->factors.lr, w->factors.decay);
    }
}

/* Fails unless 0 <= x < high. */
static void check(tp_optim *O, const char *name, double x, double high)
{
    if (!(x >= 0.0 && x < high))
        tp__err(&O->err, TP_E_VALUE, "%s: %s must be in [0, %g), not %g", kinds[O->kind], name,
                high, x);
}

/* An optimiser with these options and `states` blocks of moments. */
static tp_optim *make(const tp_optim *options, tp_params *P, tp_factor_rule rule, void *env,
                      int states)
{
    tp_optim *O = malloc(sizeof *O);
    if (!O) return &no_memory;
    *O = *options;
    O->P = P;
    O->scale = 1.0;
    if (!P) {
        tp__err(&O->err, TP_E_STATE, "%s: NULL was given in place of a parameter set",
                kinds[O->kind]);
        return O;
    }
    O->err.dev = O->step_err.dev = P->dev;
    if (!tp__params_complete(P)) {
        tp__err(&O->err, P->err.code, "%s", P->err.text);
        return O;
    }
    check(O, "weight_decay", O->weight_decay, HUGE_VAL);
    check(O, "momentum", O->momentum, 1.0);
    check(O, "beta1", O->beta1, 1.0);
    check(O, "beta2", O->beta2, 1.0);
    check(O, "eps", O->eps, HUGE_VAL);
    O->weights = calloc((size_t)P->n + 1, sizeof *O->weights);
    O->s.at = calloc((size_t)P->n + 1, sizeof *O->s.at);
    if (!O->weights || !O->s.at) {
        tp__err(&O->err, TP_E_MEMORY, "%s: out of host memory", kinds[O->kind]);
        return O;
    }
    take_weights(O, rule, env);
    if (states > 0) O->first = tp__block_new(P, kinds[O->kind], &O->err);
    if (states > 1) O->second = tp__block_new(P, kinds[O->kind], &O->err);
    return O;
}

tp_optim *tp_sgd_new(tp_params *P, const tp_sgd_opts *o)
{
    static const tp_sgd_opts defaults = { 0 };
    if (!o) o = &defaults;
    const tp_optim options = { .kind = SGD,
                               .weight_decay = o->weight_decay,
                               .momentum = o->momentum,
                               .gain = 1.0,
                               .of_g = o->nesterov ? 1.0 : 0.0,
                               .of_u = o->nesterov ? o->momentum : 1.0 };
    tp_optim *O = make(&options, P, o->factors, o->env, o->momentum != 0.0);
    if (o->nesterov && o->momentum == 0.0 && O != &no_memory)
        tp__err(&O->err, TP_E_VALUE, "sgd: nesterov needs a momentum");
    return O;
}

tp_optim *tp_qhm_new(tp_params *P, const tp_qhm_opts *o)
{
    static const tp_qhm_opts defaults = { .momentum = 0.9, .nu = 1.0 };
    if (!o) o = &defaults;
    const tp_optim options = { .kind = QHM,
                               .weight_decay = o->weight_decay,
                               .momentum = o->momentum,
                               .gain = 1.0 - o->momentum,
                               .of_g = 1.0 - o->nu,
                               .of_u = o->nu };
    tp_optim *O = make(&options, P, o->factors, o->env, o->momentum != 0.0);
    if (!(o->nu >= 0.0 && o->nu <= 1.0) && O != &no_memory)
        tp__err(&O->err, TP_E_VALUE, "qhm: nu must be in [0,1], not %g", o->nu);
    return O;
}

static tp_optim *make_adam(tp_params *P, const tp_adam_opts *o, kind k)
{
    static const tp_adam_opts defaults = { 0 };
    if (!o) o = &defaults;
    const tp_optim options = { .kind = k,
                               .weight_decay = o->weight_decay,
                               .beta1 = o->beta1 != 0.0 ? o->beta1 : 0.9,
                               .beta2 = o->beta2 != 0.0 ? o->beta2 : 0.999,
                               .eps = o->eps != 0.0 ? o->eps : 1e-8,
                               .raw_eps = o->raw_eps,
                               .decay_after = o->decay_after };
    return make(&options, P, o->factors, o->env, 2);
}

tp_optim *tp_adam_new(tp_params *P, const tp_adam_opts *o)
{
    return make_adam(P, o, ADAM);
}
tp_optim *tp_adamw_new(tp_params *P, const tp_adamw_opts *o)
{
    return make_adam(P, o, ADAMW);
}

void tp_optim_free(tp_optim *O)
{
    if (!O || O == &no_memory) return;
    tp__buf_unref(O->first);
    tp__buf_unref(O->second);
    free(O->weights);
    free(O->s.at);
    free(O);
}

bool tp_optim_ok(const tp_optim *O)
{
    return tp_optim_code(O) == TP_OK;
}

const char *tp_optim_why(const tp_optim *O)
{
    if (!O) O = &none;
    return O->err.code != TP_OK ? O->err.text : O->step_err.text;
}

tp_code tp_optim_code(const tp_optim *O)
{
    if (!O) O = &none;
    return O->err.code != TP_OK ? O->err.code : O->step_err.code;
}

int64_t tp_updates(const tp_optim *O)
{
    return O ? O->updates : 0;
}

void tp_grad_scale(tp_optim *O, double k)
{
    if (O && O != &no_memory) O->scale = k;
}

/* ---- a step ---- */

/* Rate, decay and bias correction of one parameter; w->updates already counts this step. */
static void set_numbers(const tp_optim *O, const weight *w, double lr, tp_segment *g)
{
    const double rate = lr * w->factors.lr, decay = O->weight_decay * w->factors.decay;
    g->rate = rate;
    g->l2 = O->kind == ADAMW ? 0.0 : decay;
    if (O->kind == SGD || O->kind == QHM) return;
    const double n = (double)w->updates;
    const double c1 = 1.0 - pow(O->beta1, n), c2 = sqrt(1.0 - pow(O->beta2, n));
    g->rate = O->raw_eps ? rate * c2 / c1 : rate / c1;
    g->root = O->raw_eps ? 1.0 : 1.0 / c2;
    if (O->kind == ADAMW && O->decay_after) g->after = rate * decay;
    if (O->kind == ADAMW && !O->decay_after) g->before = rate * decay;
}

static void plan(tp_optim *O, double lr)
{
    O->s.n = O->s.blocks = 0;
    for (int i = 0; i < O->n; i++) {
        weight *w = &O->weights[i];
        if (!w->entry->node->has_grad || w->entry->node->frozen) continue;
        w->updates++;
        tp_segment *g = tp__segments_add(&O->s, O->P, w->entry);
        if (g) set_numbers(O, w, lr, g);
    }
}

static bool run(tp_optim *O)
{
    const tp_params *P = O->P;
    const tp_view g = tp__block_view(P, P->grads);
    tp_view y[3] = { tp__block_view(P, P->values), tp__block_view(P, O->first),
                     tp__block_view(P, O->second) };
    const tp_sgd_attr sgd = { O->s, O->scale, O->momentum, O->gain, O->of_g, O->of_u };
    const tp_adam_attr adam = { O->s, O->scale, O->beta1, O->beta2, O->eps };
    if (O->kind == SGD || O->kind == QHM)
        return tp__blocks_run(P, &sgd_kernel, &sgd, 1, &g, 2, y, NULL, &O->step_err);
    return tp__blocks_run(P, &adam_kernel, &adam, 1, &g, 3, y, NULL, &O->step_err);
}

static bool may_step(tp_optim *O, double lr)
{
    const tp_params *P = O->P;
    tp_err *e = &O->step_err;
    *e = (tp_err){ .dev = P->dev };
    if (P->err.code != TP_OK)
        tp__err(e, P->err.code, "%s", P->err.text);
    else if (P->grad_err.code != TP_OK)
        tp__err(e, P->grad_err.code, "%s", P->grad_err.text);
    else if (P->dev->capturing)
        tp__err(e, TP_E_STATE,
                "tp_step: must be called after tp_capture_end, not inside the captured step");
    else if (P->backwards == 0)
        tp__err(e, TP_E_STATE, "tp_step: no tp_backward has completed since the last step");
    else if (!usable(lr) || !isfinite(O->scale))
        tp__err(e, TP_E_VALUE,
                "tp_step: learning rate %g and gradient scale %g must be finite, the rate not "
                "negative",
                lr, O->scale);
    else
        tp__params_hold_values(P, "tp_step", e);
    return e->code == TP_OK;
}

bool tp_step(tp_optim *O, double lr)
{
    if (!O || O->err.code != TP_OK || !may_step(O, lr)) return false;
    plan(O, lr);
    if (!run(O)) return false;
    O->updates++;
    O->scale = 1.0;
    tp__params_touch(O->P);
    tp_grad_clear(O->P);
    return true;
}

/* ---- files ---- */

/* Everything the next step depends on: moments, and each parameter's count of updates. */
static tp_slots slots_of(tp_optim *O)
{
    const bool adam = O->kind == ADAM || O->kind == ADAMW;
    tp_slots S = { 0 };
    if (O->first) tp__block_slots(&S, O->P, adam ? "m." : "u.", O->first);
    if (O->second) tp__block_slots(&S, O->P, "v.", O->second);
    for (int i = 0; adam && i < O->n; i++) {
        weight *w = &O->weights[i];
        const tp_view v = tp__view(TP_I64, &TP_SCALAR, &w->updates);
        tp__slots_add(&S, NULL, "updates.", w->entry->name, &v, -1);
    }
    return S;
}

bool tp_optim_write(tp_optim *O, tp_writer *W)
{
    if (!O) O = &none;
    if (O->err.code != TP_OK) {
        tp__writer_fail(W, &O->err);
        return false;
    }
    tp_writer_meta(W, "optim.kind", kinds[O->kind]);
    tp_writer_meta_int(W, "optim.updates", O->updates);
    tp_slots S = slots_of(O);
    tp__slots_write(&S, W, "optim.");
    tp__slots_free(&S);
    return tp_writer_ok(W);
}

/* The bound keeps later increments within 64 bits. */
static bool is_count(int64_t n)
{
    return n >= 0 && n <= INT64_C(1) << 60;
}

static void check_counts(tp_optim *O, const tp_file *F)
{
    for (int i = 0; i < O->n && O->err.code == TP_OK; i++)
        if (!is_count(O->weights[i].updates))
            tp__err(&O->err, TP_E_IO, "%.200s: 'optim.updates.%.100s' is out of range: %lld",
                    tp_file_path(F), O->weights[i].entry->name, (long long)O->weights[i].updates);
}

bool tp_optim_read(tp_optim *O, tp_file *F)
{
    if (!O || O->err.code != TP_OK) return false;
    const char *k = tp_file_meta(F, "optim.kind");
    int64_t updates = -1;
    if (!tp_file_int(F, "optim.updates", &updates))
        tp__err(&O->err, TP_E_IO, "%s", tp_file_why(F));
    else if (!k || updates < 0)
        tp__err(&O->err, TP_E_IO,
                "%.200s holds no optimiser state (metadata optim.kind, optim.updates)",
                tp_file_path(F));
    else if (!is_count(updates))
        tp__err(&O->err, TP_E_IO, "%.200s: 'optim.updates' is out of range: %lld", tp_file_path(F),
                (long long)updates);
    else if (strcmp(k, kinds[O->kind]) != 0)
        tp__err(&O->err, TP_E_IO, "%.200s holds state of the optimiser '%.32s', this one is '%s'",
                tp_file_path(F), k, kinds[O->kind]);
    if (O->err.code != TP_OK) return false;
    tp_slots S = slots_of(O);
    const bool ok = tp__slots_read(&S, F, "optim.", NULL, "moments", &O->err);
    tp__slots_free(&S);
    if (!ok) return false;
    O->updates = updates;
    check_counts(O, F);
    return O->err.code == TP_OK;
}
