/* parity_lra_train.c - training traces of the LRA encoders: losses, accuracies, rates, gradients of the first update,
 * weights after the last. Update s takes batch s mod num_batches. */
#include <math.h>

#include "parity_lra.h"

enum { CONSTANT, ONECYCLE };

typedef struct trace {
    tp_lra *m;
    int schedule;
    int64_t steps, batches, B, n, pad;
    double lr, pct, div, final_div, beta1, beta1_max, beta1_min, clip;
    const int64_t *ids, *labels;               /* [batches,B,n], [batches,B] */
    double *loss, *accuracy, *rate, *momentum; /* [steps]                    */
} trace;

/* ---- settings ---- */

static void read_tensors(parity *p, trace *t)
{
    tp_shape ids = { 0 }, labels = { 0 };

    t->ids = par_integers(p, "input.ids", &ids);
    t->labels = par_integers(p, "input.labels", &labels);
    if (!t->ids || !t->labels) return;
    if (ids.ndim != 3 || ids.dim[0] < 1 || labels.ndim != 2 || ids.dim[0] != labels.dim[0] ||
        ids.dim[1] != labels.dim[1]) {
        par_fail(p, "input.ids must be [batches,batch,tokens], input.labels [batches,batch]");
        return;
    }
    t->batches = ids.dim[0];
    t->B = ids.dim[1];
    t->n = ids.dim[2];
    par_same(p, "num_batches", t->batches);
    par_same(p, "seq_len", t->n);
    par_fixed(p, "retrieval", 0.0);
}

static void read_trace(parity *p, trace *t)
{
    static const char *const schedules[] = { "constant", "onecycle", NULL };

    t->steps = par_int(p, "steps", PAR_NEEDED, 1, 100000);
    t->pad = par_count(p, "pad_token_id", 0);
    t->schedule = par_word(p, "schedule", PAR_NEEDED, schedules);
    t->lr = par_num(p, "lr", PAR_NEEDED);
    t->pct = par_num(p, "pct_start", 0.3);
    t->div = par_num(p, "div_factor", 25.0);
    t->final_div = par_num(p, "final_div_factor", 1e4);
    t->beta1 = par_num(p, "beta1", 0.9);
    t->beta1_max = par_num(p, "beta1_max", t->beta1);
    t->beta1_min = par_num(p, "beta1_min", t->beta1);
    t->clip = par_num(p, "clip_norm", 0.0);
    if (t->lr < 0.0 || t->div <= 0.0 || t->final_div <= 0.0 || t->pct < 0.0 || t->pct > 1.0)
        par_illegal(p, "metadata lr, pct_start, div_factor, final_div_factor: no such cycle");
    if (t->clip < 0.0) par_illegal(p, "metadata clip_norm = %g is negative", t->clip);
    const bool starts = t->schedule == ONECYCLE && t->pct * (double)t->steps > 1.0;
    if (t->beta1 != (starts ? t->beta1_max : t->beta1_min))
        par_fail(p, "metadata beta1 = %g is not that of the first update", t->beta1);
    read_tensors(p, t);
    t->loss = par_alloc(p, t->steps, sizeof *t->loss);
    t->accuracy = par_alloc(p, t->steps, sizeof *t->accuracy);
    t->rate = par_alloc(p, t->steps, sizeof *t->rate);
    t->momentum = par_alloc(p, t->steps, sizeof *t->momentum);
}

/* NULL: failed. */
static tp_optim *optimiser(parity *p, const trace *t)
{
    static const char *const kinds[] = { "adamw", NULL };
    const double eps = par_num(p, "eps", 1e-8), beta2 = par_num(p, "beta2", 0.999);
    const double decay = par_num(p, "weight_decay", 0.0);

    par_word(p, "optimizer_type", 0, kinds);
    if (!(beta2 >= 0.0 && beta2 < 1.0) || eps < 0.0 || decay < 0.0)
        par_illegal(p, "metadata eps, beta2, weight_decay: impossible for Adam");
    if (p->failed) return NULL;
    return tp_adamw_new(p->P, &(tp_adam_opts){ .beta1 = par_nonzero(t->beta1),
                                               .beta2 = par_nonzero(beta2),
                                               .eps = par_nonzero(eps),
                                               .weight_decay = decay });
}

/* ---- updates ---- */

static tp_tensor forward(parity *p, const trace *t, int64_t batch)
{
    const tp_shape s = TP_SHAPE(t->B, t->n);
    const int64_t n = t->B * t->n, *ids = t->ids + batch * n;
    uint8_t *mask = par_alloc(p, n, sizeof *mask);
    for (int64_t i = 0; mask && i < n; i++) mask[i] = ids[i] != t->pad;
    if (!mask) return TP_NONE;
    const tp_tensor x =
        tp_lra_encode(p->T, t->m, tp_from(p->T, TP_I64, s, ids), tp_from(p->T, TP_U8, s, mask));
    return tp_lra_classify(p->T, t->m, tp_lra_pool(p->T, t->m, x), TP_NONE);
}

/* The share of rows whose largest logit is the label's. */
static double accuracy(parity *p, const trace *t, tp_tensor logits, const int64_t *label)
{
    const double *z = par_read(p, logits);
    const int64_t classes = t->m->cfg.classes;
    double right = 0.0;
    for (int64_t b = 0; z && b < t->B; b++) {
        int64_t best = 0;
        for (int64_t c = 1; c < classes; c++)
            if (z[b * classes + c] > z[b * classes + best]) best = c;
        right += best == label[b];
    }
    return right / (double)t->B;
}

/* Compares the norms of the gradients before the first update. */
static void check_gradients(parity *p)
{
    for (tp_param_info it = { 0 }; par_ok(p) && tp_next_param(p->P, &it);) {
        const char *name = par_name(p, "output.gradnorm0.%s", it.name);
        const int64_t n = par_numel(it.shape);
        double *g = par_has(p, name) && !it.buffer ? par_alloc(p, n, sizeof *g) : NULL,
               squares = 0.0;
        if (!g) continue;
        if (it.has_grad)
            par_params(p, tp_param_get_grad(p->P, it.tensor, TP_F64, g, (size_t)n * sizeof *g));
        for (int64_t i = 0; i < n; i++) squares += g[i] * g[i];
        const double norm = sqrt(squares);
        if (par_names(p, "zero_grads", it.name))
            par_check_abs(p, name, &norm, 1, p->real == TP_F64 ? 1e-12 : 1e-6);
        else
            par_check_one(p, name, norm, par_limit(p, PAR_GRADIENT));
    }
}

static void update(parity *p, trace *t, int64_t s, tp_optim *O)
{
    const int64_t batch = s % t->batches, *label = t->labels + batch * t->B;
    const double start = t->lr / t->div;
    const bool cycle = t->schedule == ONECYCLE;

    tp_reset(p->T);
    const tp_tensor logits = forward(p, t, batch);
    const tp_tensor y = tp_from(p->T, TP_I64, TP_SHAPE(t->B), label);
    const tp_tensor loss = tp_cross_entropy(p->T, logits, y, TP_MEAN);
    t->loss[s] = tp_item(p->T, loss);
    t->accuracy[s] = accuracy(p, t, logits, label);
    tp_backward(p->T, loss);
    if (s == 0) check_gradients(p);
    if (t->clip > 0.0) tp_clip_grad_norm(p->P, t->clip);
    t->rate[s] =
        cycle ? tp_cycle_linear(s, t->steps, t->pct, start, t->lr, start / t->final_div) : t->lr;
    t->momentum[s] =
        cycle ? tp_cycle_linear(s, t->steps, t->pct, t->beta1_max, t->beta1_min, t->beta1_max)
              : t->beta1;
    tp_optim_set(O, "beta1", t->momentum[s]);
    tp_step(O, t->rate[s]);
    if (!tp_optim_ok(O)) par_fail(p, "%s", tp_optim_why(O));
    par_ok(p);
}

/* ---- comparing ---- */

static void check_weights(parity *p)
{
    for (tp_param_info it = { 0 }; par_ok(p) && tp_next_param(p->P, &it);) {
        const int64_t n = par_numel(it.shape);
        double *x = it.buffer ? NULL : par_alloc(p, n, sizeof *x), squares = 0.0;
        if (!x || !tp_param_get(p->P, it.tensor, TP_F64, x, (size_t)n * sizeof *x)) continue;
        for (int64_t i = 0; i < n; i++) squares += x[i] * x[i];
        par_check_one(p, par_name(p, "output.paramnorm.%s", it.name), sqrt(squares),
                      par_limit(p, PAR_OUTPUT));
        par_check(p, par_name(p, "output.param.%s", it.name), x, n, par_limit(p, PAR_GRADIENT));
    }
}

void lra_run_trace(parity *p)
{
    trace t = { .m = par_alloc(p, 1, sizeof *t.m), .batches = 1 };

    par_begin(p);
    if (!t.m) return;
    lra_declare(p, t.m);
    read_trace(p, &t);
    par_load(p);
    tp_optim *O = p->failed ? NULL : optimiser(p, &t);
    if (!O) return;
    for (int64_t s = 0; s < t.steps && !p->failed; s++) update(p, &t, s, O);
    if (!p->failed) {
        const double limit = par_limit(p, PAR_OUTPUT);
        par_check(p, "output.loss", t.loss, t.steps, limit);
        par_check(p, "output.accuracy", t.accuracy, t.steps, limit);
        par_check(p, "output.lr", t.rate, t.steps, par_exact(p, "output.lr"));
        par_check(p, "output.beta1", t.momentum, t.steps, par_exact(p, "output.beta1"));
        check_weights(p);
    }
    tp_optim_free(O);
}
