/* optim.c - an optimiser over a parameter set: its options, which may change between steps, the
 * states they require, and its steps. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/optim.h"
#include "train/peers/exchange.h"
#include "train/peers/shards.h"

/* ---- options ---- */

int tp__optim_find(const tp_optim_kind *k, const char *name)
{
    for (int i = 0; i < TP_OPTIM_OPTIONS && k->options[i].name; i++)
        if (strcmp(k->options[i].name, name) == 0) return i;
    return -1;
}

double tp__optim_value(const tp_optim *O, const char *name)
{
    const int i = tp__optim_find(O->kind, name);
    return i < 0 ? 0.0 : O->option[i];
}

bool tp__optim_check(const tp_optim_kind *k, const double *option, tp_err *e)
{
    for (int i = 0; i < TP_OPTIM_OPTIONS && k->options[i].name; i++) {
        const tp_optim_option *o = &k->options[i];
        if (option[i] >= o->low && (option[i] < o->high || (o->closed && option[i] == o->high)))
            continue;
        tp__err(e, TP_E_VALUE, "%s: %s must be in [%g, %g%c, not %g", k->name, o->name, o->low,
                o->high, o->closed ? ']' : ')', option[i]);
        return false;
    }
    const char *wrong = k->check ? k->check(option) : NULL;
    if (wrong) tp__err(e, TP_E_VALUE, "%s: %s", k->name, wrong);
    return !wrong;
}

static bool is_needed(const tp_optim *O, int k)
{
    const tp_optim_state *s = &O->kind->states[k];
    return s->name && (!s->only_with || tp__optim_value(O, s->only_with) != 0.0);
}

bool tp__optim_states(tp_optim *O, tp_err *e)
{
    for (int k = 0; k < TP_OPTIM_STATES; k++) {
        if (!is_needed(O, k) || O->state[k]) continue;
        const char *from = O->kind->states[k].starts_at;
        const double first = from ? tp__optim_value(O, from) : 0.0;
        O->state[k] = tp__block_new(O->P, O->bytes[k], O->kind->name, e);
        if (!O->state[k]) return false;
        const int64_t n = (int64_t)(O->bytes[k] / tp_dtype_size(O->P->dtype));
        const tp_view all = tp__view(O->P->dtype, &TP_SHAPE(n), O->state[k]->data);
        if (first != 0.0 && n > 0 && !O->P->dev->dry) tp__fill(O->P->dev, &all, first);
    }
    for (int k = 0; k < TP_OPTIM_STATES; k++) {
        if (is_needed(O, k)) continue;
        tp__buf_unref(O->state[k]);
        O->state[k] = NULL;
    }
    return true;
}

static int known_option(tp_optim *O, const char *name)
{
    char text[400] = "";
    const int at = name ? tp__optim_find(O->kind, name) : -1;
    for (int i = 0; i < TP_OPTIM_OPTIONS && O->kind->options[i].name; i++)
        tp__append(text, sizeof text, "%s%s", i ? ", " : "", O->kind->options[i].name);
    if (at < 0)
        tp__err(&O->step_err, TP_E_VALUE, "tp_optim_set: %s has no option '%.100s'; it has %s",
                O->kind->name, name ? name : "(NULL)", text);
    return at;
}

bool tp_optim_set(tp_optim *O, const char *name, double value)
{
    if (!O || O->err.code != TP_OK) return false;
    O->step_err = (tp_err){ .dev = O->dev };
    if (!tp__optim_usable(O, "tp_optim_set", &O->step_err)) return false;
    const int i = known_option(O, name);
    if (i < 0) return false;
    const double before = O->option[i];
    if (O->kind->options[i].at_start) {
        tp__err(&O->step_err, TP_E_STATE,
                "tp_optim_set: %s is read only when the optimiser is created", name);
        return false;
    }
    O->option[i] = value;
    if (tp__optim_check(O->kind, O->option, &O->step_err) && tp__optim_states(O, &O->step_err))
        return true;
    O->option[i] = before;
    tp_err ignored = { 0 }; /* drops states of the refused value; needs no memory */
    tp__optim_states(O, &ignored);
    return false;
}

double tp_optim_get(const tp_optim *O, const char *name)
{
    const int i = O && name ? tp__optim_find(O->kind, name) : -1;
    return i < 0 ? (double)NAN : O->option[i];
}

/* ---- steps ---- */

static const tp_optim_kind no_kind = { .name = "optimiser" };

static tp_optim no_memory = {
    .err = { TP_E_MEMORY, "optimiser: out of memory for the object itself", NULL },
    .kind = &no_kind,
};

static tp_optim none = {
    .err = { TP_E_STATE, "optimiser: NULL was given in place of an optimiser", NULL },
    .kind = &no_kind,
};

tp_optim *tp__optim_some(const tp_optim *O)
{
    return O ? (tp_optim *)(uintptr_t)O : &none;
}

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
        tp_weight *w = &O->weights[O->n++];
        *w = (tp_weight){ .entry = e, .factors = { 1.0, 1.0 } };
        if (rule) w->factors = rule(e->name, tp__view_shape(&e->node->view), env);
        if (!usable(w->factors.lr) || !usable(w->factors.decay))
            tp__err(&O->err, TP_E_VALUE,
                    "%s: the factors of '%.200s' are %g and %g; both must be finite and at least 0",
                    O->kind->name, e->name, w->factors.lr, w->factors.decay);
    }
}

static tp_optim *make(tp_params *P, const tp_optim_kind *kind, const double *values,
                      const tp_optim_opts *o)
{
    tp_optim *O = malloc(sizeof *O);
    if (!O) return &no_memory;
    *O = (tp_optim){ .P = P, .kind = kind, .scale = 1.0, .dev = tp__params_some(P)->dev };
    tp__device_enter(O->dev);
    memcpy(O->option, values, sizeof O->option);
    if (!P) {
        tp__err(&O->err, TP_E_STATE, "%s: NULL was given in place of a parameter set", kind->name);
        return O;
    }
    O->id = P->id;
    O->err.dev = O->step_err.dev = O->refusal.dev = P->dev;
    if (!tp__params_complete(P)) {
        tp__err(&O->err, P->err.code, "%s", P->err.text);
        return O;
    }
    tp__optim_check(kind, O->option, &O->err);
    O->weights = calloc((size_t)P->n + 1, sizeof *O->weights);
    if (!O->weights) {
        tp__err(&O->err, TP_E_MEMORY, "%s: out of host memory", kind->name);
        return O;
    }
    take_weights(O, o->factors, o->env);
    if (O->err.code == TP_OK && tp__optim_divide(O, &O->err) && tp__optim_lay_out(O, &O->err))
        tp__optim_states(O, &O->err);
    return O;
}

/* Sets the options of a kind by name. Returns the first name that the kind lacks, or NULL. */
static const char *set_options(const tp_params *P, const tp_optim_kind *kind,
                               const tp_optim_value *v, double *option)
{
    const bool f64 = P && P->dtype == TP_F64;
    const char *unknown = NULL;
    for (int i = 0; i < TP_OPTIM_OPTIONS && kind->options[i].name; i++) {
        const tp_optim_option *o = &kind->options[i];
        option[i] = f64 && o->usual_f64 != 0.0 ? o->usual_f64 : o->usual;
    }
    for (; v && v->name; v++) {
        const int i = tp__optim_find(kind, v->name);
        if (i >= 0) option[i] = v->value;
        if (i < 0 && !unknown) unknown = v->name;
    }
    return unknown;
}

static void refuse_name(tp_optim *O, const char *name)
{
    char text[400] = "";
    const tp_optim_kind *k;
    for (int i = 0; (k = tp_optim_kind_at(i)); i++)
        tp__append(text, sizeof text, "%s%s", i ? ", " : "", k->name);
    if (name)
        tp__err(&O->err, TP_E_VALUE, "no optimiser is named '%.100s'; there are %s", name, text);
    else
        tp__err(&O->err, TP_E_STATE, "optimiser: NULL was given in place of a name");
}

tp_optim *tp_optim_new(tp_params *P, const char *name, const tp_optim_opts *o)
{
    static const tp_optim_opts defaults = { 0 };
    double option[TP_OPTIM_OPTIONS] = { 0 };
    const tp_optim_kind *kind = tp_optim_kind_at(tp_optim_find(name));
    const bool known = kind != NULL;
    if (!known) kind = &no_kind;
    if (!o) o = &defaults;
    const char *wrong = set_options(P, kind, known ? o->values : NULL, option);
    tp_optim *O = make(P, kind, option, o);
    if (O == &no_memory) return O;
    if (!known) refuse_name(O, name);
    if (wrong) tp__err(&O->err, TP_E_VALUE, "%s has no option '%.100s'", kind->name, wrong);
    return O;
}

void tp_optim_free(tp_optim *O)
{
    if (!O || O == &no_memory) return;
    for (int k = 0; k < TP_OPTIM_STATES; k++) tp__buf_unref(O->state[k]);
    free(O->weights);
    tp__optim_parts_free(O);
    tp__device_leave(O->dev);
    free(O);
}

bool tp__optim_usable(const tp_optim *O, const char *what, tp_err *e)
{
    if (!tp__params_live(O->P, O->id, what, e)) return false;
    if (O->P->err.code != TP_OK) tp__err(e, O->P->err.code, "%s", O->P->err.text);
    return e->code == TP_OK && tp__optim_fits(O, what, e);
}

bool tp_optim_ok(const tp_optim *O)
{
    return tp_optim_code(O) == TP_OK;
}

const char *tp_optim_why(const tp_optim *O)
{
    O = tp__optim_some(O);
    if (O->err.code != TP_OK) return O->err.text;
    return O->step_err.code != TP_OK ? O->step_err.text : O->refusal.text;
}

tp_code tp_optim_code(const tp_optim *O)
{
    O = tp__optim_some(O);
    return O->err.code != TP_OK ? O->err.code : O->step_err.code;
}

int64_t tp_updates(const tp_optim *O)
{
    return O ? O->updates : 0;
}

size_t tp_optim_bytes(const tp_optim *O)
{
    size_t sum = 0;
    for (int k = 0; O && k < TP_OPTIM_STATES; k++)
        if (O->state[k]) sum += O->bytes[k];
    return sum;
}

void tp_grad_scale(tp_optim *O, double k)
{
    if (O && O != &no_memory) O->scale = k;
}

/* ---- a step ---- */

static void set_shape(tp_segment *g, const tp_view *v)
{
    g->ndim = v->ndim;
    g->cols = v->ndim > 0 ? v->dim[v->ndim - 1] : 1;
    g->rows = v->ndim > 1 ? v->dim[v->ndim - 2] : 1;
}

static void add_segment(tp_optim *O, const tp_weight *w, const tp_part *p, double lr, double decay)
{
    tp_segment *g = tp__segments_add_grad(&O->s, O->P, w->entry, p->first, p->numel);
    if (!g) return;
    memcpy(g->own, p->at, sizeof g->own);
    set_shape(g, &w->entry->node->view);
    g->updates = w->updates + 1;
    g->lr = lr * w->factors.lr;
    g->decay = decay * w->factors.decay;
    if (O->kind->numbers) O->kind->numbers(O->option, g);
}

static void plan(tp_optim *O, double lr)
{
    const double decay = tp__optim_value(O, "weight_decay");
    O->s.n = O->s.blocks = 0;
    for (int i = 0; i < O->n; i++) {
        tp_weight *w = &O->weights[i];
        w->planned = tp__is_stepped(w->entry);
        for (int k = 0; w->planned && k < w->parts; k++)
            add_segment(O, w, &O->parts[w->part + k], lr, decay);
    }
}

double tp_segment_grad(const tp_call *c, const tp_segment *s, int64_t i)
{
    const tp_view g = { .data = s->grad, .dtype = c->real, .ndim = 1, .numel = s->numel };
    return tp_ld(&g, i);
}

static bool run(tp_optim *O)
{
    const tp_params *P = O->P;
    const size_t size = tp_dtype_size(P->dtype);
    tp_view y[1 + TP_OPTIM_STATES] = { tp__block_view(P, P->values) };
    tp_optim_attr a = { .s = O->s, .scale = O->scale };
    tp_block_kernel kernel = { .name = O->kind->name };
    memcpy(a.k, O->option, sizeof a.k);
    if (O->kind->constants) O->kind->constants(O->option, a.k);
    memcpy(kernel.kernel, O->kind->step, sizeof kernel.kernel);
    memcpy(kernel.work, O->kind->work, sizeof kernel.work);
    for (int k = 0; k < TP_OPTIM_STATES; k++)
        y[1 + k] = tp__view(P->dtype, &TP_SHAPE((int64_t)(O->bytes[k] / size)),
                            O->state[k] ? O->state[k]->data : NULL);
    return tp__blocks_run(P, &kernel, &a, 0, NULL, 1 + TP_OPTIM_STATES, y, NULL, &O->step_err);
}

static bool may_step(tp_optim *O, double lr)
{
    const tp_params *P = O->P;
    tp_err *e = &O->step_err;
    *e = (tp_err){ .dev = O->dev };
    if (!tp__optim_usable(O, "tp_step", e)) return false;
    if (P->grad_err.code != TP_OK)
        tp__err(e, P->grad_err.code, "%s", P->grad_err.text);
    else if (P->dev->capturing)
        tp__err(e, TP_E_STATE,
                "tp_step: must be called after tp_capture_end, not inside the captured step");
    else if (P->backwards == 0 && !P->given)
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

/* Gathers the values from the processes that have stepped them, also after a failure, so that none
 * waits for this one. */
static bool tell(tp_optim *O)
{
    return !O->cuts.at || tp__shards_values(tp__exchange_peers(O->P), &O->cuts, O->P, &O->step_err);
}

bool tp_step(tp_optim *O, double lr)
{
    if (!O || O->err.code != TP_OK) return false;
    if (!may_step(O, lr)) {
        if (O->cuts.at && O->P->grad_err.code != TP_OK) tell(O); /* perhaps of this process only */
        return false;
    }
    plan(O, lr);
    const bool ran = run(O), told = tell(O);
    if (!ran || !told) return false;
    for (int i = 0; i < O->n; i++) O->weights[i].updates += O->weights[i].planned;
    O->updates++;
    O->scale = 1.0;
    tp__params_touch(O->P);
    tp_grad_clear(O->P);
    return true;
}
