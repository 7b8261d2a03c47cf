/* optim_options.c - the options of an optimiser, which may change between steps, and the states that
 * exist because of them. */
#include <math.h>
#include <string.h>

#include "train/optim.h"

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
    tp_err ignored = { 0 }; /* drops what the refused value called for; needs no memory */
    tp__optim_states(O, &ignored);
    return false;
}

double tp_optim_get(const tp_optim *O, const char *name)
{
    const int i = O && name ? tp__optim_find(O->kind, name) : -1;
    return i < 0 ? (double)NAN : O->option[i];
}
