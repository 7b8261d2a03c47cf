/* optim.c - an optimiser over a parameter set: its options, which may change between steps, the
 * states they require, and its steps. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "autograd/recorded.h"
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

tp_buf *tp__optim_block(const tp_optim *O, int k, tp_err *e)
{
    const char *from = O->kind->states[k].starts_at;
    const double first = from ? tp__optim_value(O, from) : 0.0;
    tp_buf *b = tp__block_new(O->P, O->bytes[k], O->kind->name, e);
    if (!b) return NULL;
    const int64_t n = (int64_t)(O->bytes[k] / tp_dtype_size(O->P->dtype));
    const tp_view all = tp__view(O->P->dtype, &TP_SHAPE(n), b->data);
    if (first != 0.0 && n > 0 && !O->P->dev->dry) tp__fill(O->P->dev, &all, first);
    return b;
}

bool tp__optim_states(tp_optim *O, tp_err *e)
{
    for (int k = 0; k < TP_OPTIM_STATES; k++) {
        if (!is_needed(O, k) || O->state[k]) continue;
        O->state[k] = tp__optim_block(O, k, e);
        if (!O->state[k]) return false;
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

bool tp__optim_usable_rate(double rate)
{
    return rate >= 0.0 && isfinite(rate);
}

/* Asks for one of the kind's two rules. */
static void take(tp_optim *O, tp_weight *w, const tp_optim_opts *o)
{
    const char *name = w->entry->name;
    const tp_shape s = tp__view_shape(&w->entry->node->view);
    w->taken = o->takes ? o->takes(name, s, o->env) : O->kind->takes(name, s);
    if (w->taken && s.ndim != 2)
        tp__err(&O->err, TP_E_VALUE,
                "%s: '%.200s' has %d axes; the rule tp_optim_opts.takes may take only matrices",
                O->kind->name, name, s.ndim);
}

static void take_weights(tp_optim *O, const tp_optim_opts *o)
{
    const tp_params *P = O->P;
    const tp_factor_rule rule = o->factors;
    for (int i = 0; i < P->n; i++) {
        const tp_entry *e = &P->entries[i];
        if (!tp__in_block(e)) continue;
        tp_weight *w = &O->weights[O->n++];
        *w = (tp_weight){ .entry = e, .factors = { 1.0, 1.0 } };
        if (rule) w->factors = rule(e->name, tp__view_shape(&e->node->view), o->env);
        if (O->kind->takes) take(O, w, o);
        if (!tp__optim_usable_rate(w->factors.lr) || !tp__optim_usable_rate(w->factors.decay))
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
    *O = (tp_optim){ .P = P, .kind = kind, .scale = 1.0, .rate = (double)NAN };
    O->dev = tp__params_some(P)->dev;
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
    take_weights(O, o);
    if (O->err.code == TP_OK && tp__optim_divide(O, &O->err) && tp__optim_lay_out(O, &O->err) &&
        tp__optim_states(O, &O->err) && P->dev->be->kind != TP_CPU)
        O->there = tp__block_new(P, tp__step_bytes(O->most), kind->name, &O->err);
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
    tp__buf_unref(O->there);
    tp__optim_swap_free(O);
    tp__optim_record_free(O);
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

bool tp_optim_records(const tp_optim *O)
{
    return O && O->err.code == TP_OK && O->kind->recordable && !O->P->exchange;
}

int64_t tp_optim_updates(const tp_optim *O)
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
    if (!O || O == &no_memory) return;
    O->scale = k;
    O->scaled_late = O->dev && tp__in_step(O->dev);
}

void tp_next_rate(tp_optim *O, double lr)
{
    if (!O || O == &no_memory) return;
    const bool late = O->dev && tp__in_step(O->dev); /* is_given says so */
    O->rate = late ? (double)NAN : lr;
    tp_err ignored = { 0 }; /* the step says it */
    if (!late && tp_optim_records(O) && tp__optim_usable(O, "tp_next_rate", &ignored))
        tp__optim_place(O, tp__optim_trains, NULL, &ignored);
}

/* ---- a step ---- */

static void set_shape(tp_segment *g, const tp_view *v)
{
    g->ndim = v->ndim;
    g->cols = v->ndim > 0 ? v->dim[v->ndim - 1] : 1;
    g->rows = v->ndim > 1 ? v->dim[v->ndim - 2] : 1;
}

void tp__optim_numbers(const tp_optim *O, const tp_weight *w, double lr, tp_segment *g)
{
    g->updates = w->updates + 1;
    g->lr = lr * w->factors.lr;
    g->decay = tp__optim_value(O, "weight_decay") * w->factors.decay;
    g->l2 = g->rate = g->root = g->before = g->after = 0.0;
    if (O->kind->numbers) O->kind->numbers(O->option, g);
}

static void add_segment(tp_optim *O, const tp_weight *w, const tp_part *p, double lr)
{
    tp_segment *g = tp__segments_add_grad(&O->s, O->P, w->entry, p->first, p->numel);
    if (!g) return;
    memcpy(g->own, p->at, sizeof g->own);
    set_shape(g, &w->entry->node->view);
    g->taken = w->taken;
    tp__optim_numbers(O, w, lr, g);
}

static bool is_stepped(const tp_optim *O, const tp_weight *w, const void *env)
{
    (void)O, (void)env;
    return tp__is_stepped(w->entry);
}

/* Do all that the step changes have their states? */
static bool is_placed(const tp_optim *O)
{
    bool all = true;
    for (int i = 0; i < O->n; i++)
        all = all && (O->weights[i].placed || !tp__is_stepped(O->weights[i].entry));
    return all;
}

/* False with step_err set: no memory for what was frozen until now. */
static bool plan(tp_optim *O, double lr)
{
    if (!tp__optim_place(O, is_stepped, NULL, &O->step_err)) return false;
    O->s.n = O->s.blocks = 0;
    for (int i = 0; i < O->n; i++) {
        tp_weight *w = &O->weights[i];
        w->planned = tp__is_stepped(w->entry);
        for (int k = 0; w->planned && k < w->parts; k++)
            add_segment(O, w, &O->parts[w->part + k], lr);
    }
    return true;
}

double tp_optim_grad(const tp_call *c, const tp_segment *s, int64_t i)
{
    const tp_view g = { .data = s->grad, .dtype = c->real, .ndim = 1, .numel = s->numel };
    return tp_ld(&g, i);
}

tp_optim_attr tp__optim_attr(const tp_optim *O)
{
    tp_optim_attr a = { .s = O->s, .scale = O->scale };
    memcpy(a.k, O->option, sizeof a.k);
    if (O->kind->constants) O->kind->constants(O->option, a.k);
    return a;
}

size_t tp__step_bytes(int64_t segments)
{
    return offsetof(tp_step_table, at) + (size_t)segments * sizeof(tp_segment);
}

void tp__step_upload(const tp_optim *O, tp_step_table *t, const tp_optim_attr *a)
{
    t->attr = *a;
    O->dev->be->upload(O->dev, O->there->data, t, tp__step_bytes(a->s.n));
}

bool tp__optim_run(tp_optim *O, const tp_block_kernel *kernel, tp_optim_attr *a)
{
    const tp_params *P = O->P;
    if (O->there) a->there = O->there->data;
    if (O->there && !O->dev->capturing) tp__step_upload(O, O->table, a);
    const size_t size = tp_dtype_size(P->dtype);
    tp_view y[1 + TP_OPTIM_STATES] = { tp__block_view(P, P->values) };
    for (int k = 0; k < TP_OPTIM_STATES; k++)
        y[1 + k] = tp__view(P->dtype, &TP_SHAPE((int64_t)(O->bytes[k] / size)),
                            O->state[k] ? O->state[k]->data : NULL);
    return tp__blocks_run(P, kernel, a, 0, NULL, 1 + TP_OPTIM_STATES, y, NULL, &O->step_err);
}

/* Runs the step; sum: the sums after it. */
static bool run(tp_optim *O, double lr, double *sum)
{
    tp_optim_attr a = tp__optim_attr(O);
    tp_block_kernel kernel = { .name = O->kind->name };
    memcpy(kernel.kernel, O->kind->step, sizeof kernel.kernel);
    memcpy(kernel.work, O->kind->work, sizeof kernel.work);
    if (O->kind->advance) O->kind->advance(O->option, lr, O->updates + 1, sum, a.k);
    if (O->dev->capturing) return tp__optim_record(O, &kernel, &a);
    return tp__optim_run(O, &kernel, &a);
}

/* Within a step of tp_capture, the rate must have been given before: a launch of the recording has
 * no call of tp_step to take it from. */
static bool is_given(tp_optim *O, double lr)
{
    tp_err *e = &O->step_err;
    if (isnan(O->rate))
        tp__err(e, TP_E_STATE,
                "tp_step: between tp_capture_begin and tp_capture_end it needs tp_next_rate with "
                "the same learning rate before tp_capture_begin");
    else if (lr != O->rate)
        tp__err(e, TP_E_VALUE,
                "tp_step: the learning rate is %.17g, and that of tp_next_rate before "
                "tp_capture_begin was %.17g; a recorded step takes it from there",
                lr, O->rate);
    else if (O->scaled_late)
        tp__err(e, TP_E_STATE,
                "tp_step: tp_grad_scale must be called before tp_capture_begin, since a recorded "
                "step takes the factor from there");
    else if (O->P->exchange)
        tp__err(e, TP_E_STATE,
                "tp_step: must be called after tp_capture_end where processes exchange gradients, "
                "which a recording does not contain");
    else if (O->dev->capturing && !O->kind->recordable)
        tp__err(e, TP_E_STATE,
                "tp_step: the optimiser '%s' cannot be recorded (tp_optim_kind.recordable); call "
                "it after tp_capture_end",
                O->kind->name);
    else if (O->dev->capturing && !is_placed(O))
        tp__err(
            e, TP_E_STATE,
            "tp_step: a parameter that was frozen has no moments yet, and a recorded step cannot "
            "make them; unfreeze it before tp_next_rate, which needs memory for them");
    else if (O->dev->capturing && !tp__records_set(O->dev, O->P))
        tp__err(e, TP_E_STATE,
                "tp_step: the step before did not read these parameters; call it after "
                "tp_capture_end");
    return e->code == TP_OK;
}

static bool may_step(tp_optim *O, double lr)
{
    const tp_params *P = O->P;
    tp_err *e = &O->step_err;
    *e = (tp_err){ .dev = O->dev };
    if (!tp__optim_usable(O, "tp_step", e)) return false;
    if (P->grad_err.code != TP_OK)
        tp__err(e, P->grad_err.code, "%s", P->grad_err.text);
    else if (P->backwards == 0 && !P->given)
        tp__err(e, TP_E_STATE, "tp_step: no tp_backward has completed since the last step");
    else if (!tp__optim_usable_rate(lr) || !isfinite(O->scale))
        tp__err(e, TP_E_VALUE,
                "tp_step: learning rate %g and gradient scale %g must be finite, the rate not "
                "negative",
                lr, O->scale);
    else
        tp__params_hold_values(P, "tp_step", e);
    return e->code == TP_OK && (!tp__in_step(O->dev) || is_given(O, lr));
}

/* Also after a failure, so that none waits for this process. */
bool tp__optim_tell(tp_optim *O, bool all)
{
    return !O->cuts.at ||
           tp__shards_values(tp__exchange_peers(O->P), &O->cuts, O->P, all, &O->step_err);
}

void tp__optim_count(tp_optim *O)
{
    for (int i = 0; i < O->n; i++) O->weights[i].updates += O->weights[i].planned;
    O->updates++;
    O->scale = 1.0;
    O->scaled_late = false;
    O->rate = (double)NAN;
    tp__params_touch(O->P);
}

bool tp_step(tp_optim *O, double lr)
{
    if (!O || O->err.code != TP_OK) return false;
    if (!may_step(O, lr)) {
        tp__record_once(O->dev);
        if (O->cuts.at && O->P->grad_err.code != TP_OK)
            tp__optim_tell(O, false); /* perhaps of this process only */
        return false;
    }
    double sum[TP_OPTIM_SUMS];
    memcpy(sum, O->sum, sizeof sum);
    const bool ran = plan(O, lr) && run(O, lr, sum), told = tp__optim_tell(O, false);
    if (!ran || !told) return false;
    memcpy(O->sum, sum, sizeof sum);
    tp__optim_count(O);
    tp_grad_clear(O->P);
    return true;
}
