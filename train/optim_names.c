/* optim_names.c - the optimisers by name: the library's rows and those that programs register; SGD, Adam and
 * AdamW with typed options. */
#include <stdatomic.h>
#include <string.h>

#include "train/optim.h"

/* Filled from the front; a slot never changes again. */
static _Atomic(const tp_optim_kind *) registered[TP_OPTIM_KINDS];

const tp_optim_kind *tp_optim_kind_at(int i)
{
    if (i < 0) return NULL;
    for (const tp_optim_kind *const *k = tp__optim_kinds; *k; k++)
        if (i-- == 0) return *k;
    return i < TP_OPTIM_KINDS ? atomic_load(&registered[i]) : NULL;
}

int tp_optim_find(const char *name)
{
    const tp_optim_kind *k;
    for (int i = 0; name && (k = tp_optim_kind_at(i)); i++)
        if (strcmp(k->name, name) == 0) return i;
    return -1;
}

bool tp_optim_register(const tp_optim_kind *kind)
{
    if (!kind || !kind->name) return false;
    const tp_optim_kind *other = tp_optim_kind_at(tp_optim_find(kind->name));
    for (int i = 0; !other && i < TP_OPTIM_KINDS; i++) {
        const tp_optim_kind *present = NULL;
        if (atomic_compare_exchange_strong(&registered[i], &present, kind)) return true;
        if (strcmp(present->name, kind->name) == 0) other = present;
    }
    return other == kind;
}

/* ---- typed options ---- */

tp_optim *tp_sgd_new(tp_params *P, const tp_sgd_opts *o)
{
    static const tp_sgd_opts usual = { 0 };
    if (!o) o = &usual;
    const tp_optim_value values[] = { { "momentum", o->momentum },
                                      { "weight_decay", o->weight_decay },
                                      { "nesterov", o->nesterov },
                                      { NULL, 0.0 } };
    return tp_optim_new(P, "sgd", &(tp_optim_opts){ values, o->factors, o->env });
}

static tp_optim *by_adam(tp_params *P, const char *name, const tp_adam_opts *o)
{
    static const tp_adam_opts usual = { 0 };
    if (!o) o = &usual;
    tp_optim_value values[7] = { { "weight_decay", o->weight_decay },
                                 { "raw_eps", o->raw_eps },
                                 { "decay_after", o->decay_after } };
    int n = 3;
    if (o->beta1 != 0.0) values[n++] = (tp_optim_value){ "beta1", o->beta1 };
    if (o->beta2 != 0.0) values[n++] = (tp_optim_value){ "beta2", o->beta2 };
    if (o->eps != 0.0) values[n++] = (tp_optim_value){ "eps", o->eps };
    return tp_optim_new(P, name, &(tp_optim_opts){ values, o->factors, o->env });
}

tp_optim *tp_adam_new(tp_params *P, const tp_adam_opts *o)
{
    return by_adam(P, "adam", o);
}

tp_optim *tp_adamw_new(tp_params *P, const tp_adamw_opts *o)
{
    return by_adam(P, "adamw", o);
}
