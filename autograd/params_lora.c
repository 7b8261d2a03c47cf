/* params_lora.c - low-rank adaptations of a parameter set: which modules have them, and what they
 * freeze. nn/linear.c computes with them, nn/lora.c saves, loads and merges them. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tapegrad/lora.h>

#include "autograd/nodes.h"
#include "autograd/params.h"

/* A copy that lives as long as P; NULL stays NULL. */
static const char *kept(tp_params *P, const char *text)
{
    char *copy = text ? tp_params_alloc(P, strlen(text) + 1) : NULL;
    if (copy) memcpy(copy, text, strlen(text) + 1);
    return copy;
}

void tp_lora(tp_params *P, const tp_lora_opts *o)
{
    P = tp__params_some(P);
    if (!tp_params_ok(P)) return;
    if (!o)
        tp__err(&P->err, TP_E_VALUE, "tp_lora: NULL was given in place of the options");
    else if (P->lora)
        tp__err(&P->err, TP_E_STATE, "tp_lora: these parameters have adaptations already");
    else if (tp__is_complete(P))
        tp__err(&P->err, TP_E_STATE,
                "tp_lora: the parameters are in use already; call it before the modules are "
                "declared");
    else if (o->rank < 1 || o->rank > INT32_MAX)
        tp__err(&P->err, TP_E_VALUE, "tp_lora: a rank of %lld; give at least 1",
                (long long)o->rank);
    else if (!(o->alpha >= 0) || !isfinite(o->alpha))
        tp__err(&P->err, TP_E_VALUE, "tp_lora: alpha is %g; give a positive number", o->alpha);
    else if (!(o->dropout >= 0 && o->dropout < 1))
        tp__err(&P->err, TP_E_VALUE, "tp_lora: a dropout of %g is not from 0 to below 1",
                o->dropout);
    else if ((P->lora = tp_params_alloc(P, sizeof *P->lora))) {
        P->lora->o = *o;
        if (o->alpha == 0) P->lora->o.alpha = (double)o->rank;
        P->lora->o.modules = kept(P, o->modules);
        P->lora->o.train = kept(P, o->train);
    }
}

int tp_lora_count(const tp_params *P)
{
    P = tp__params_some(P);
    return P->lora ? P->lora->count : 0;
}

/* ---- patterns ---- */

/* Does one of the patterns match the name, or its last components? */
static bool listed(const char *patterns, const char *name)
{
    char pattern[512];
    for (const char *at = patterns; at && *at;) {
        const size_t n = strcspn(at, ",");
        const char *whole = pattern + 2;
        if (n > 0 && n < sizeof pattern - 3) {
            memcpy(pattern, "*.", 2);
            memcpy(pattern + 2, at, n);
            pattern[n + 2] = '\0';
            if (tp__matches(whole, name) || tp__matches(pattern, name)) return true;
        }
        at += n + (at[n] == ',');
    }
    return false;
}

bool tp__lora_freezes(const tp_params *P, const char *name)
{
    return P->lora && !P->lora->declaring && !listed(P->lora->o.train, name);
}

/* ---- declaration ---- */

const tp_lora_m *tp_lora_declare(tp_params *P, tp_tensor weight, bool tied)
{
    P = tp__params_some(P);
    tp__lora *L = P->lora;
    if (!L || !tp_params_ok(P)) return NULL;
    const tp_entry *of = tp__entry(P, weight, "tp_lora", &P->err);
    if (!of || listed(L->o.train, of->name)) return NULL;
    if (L->o.modules ? !listed(L->o.modules, P->path) : tied) return NULL;
    const tp_view *v = &of->node->view;
    if (v->ndim != 2) {
        tp__err(&P->err, TP_E_SHAPE, "tp_lora: the weight of '%.200s' is no matrix", P->path);
        return NULL;
    }
    const int64_t out = v->dim[0], in = v->dim[1];
    tp_lora_node *n = tp_params_alloc(P, sizeof *n);
    if (!n) return NULL;
    const double bound = in > 0 ? 1.0 / sqrt((double)in) : 0.0;
    const tp_init_rule rule = P->rule; /* of the model, for its own parameters */
    P->rule = NULL;
    L->declaring = true;
    n->m.path = tp__left_text(P->dev, P->path);
    n->m.a = tp_param(P, TP_LORA_A, TP_SHAPE(L->o.rank, in),
                      (tp_init){ TP_INIT_UNIFORM, bound, 0.0 }, 0);
    n->m.b = tp_param(P, TP_LORA_B, TP_SHAPE(out, L->o.rank), (tp_init){ .kind = TP_INIT_ZERO }, 0);
    n->m.scale = L->o.alpha / (double)L->o.rank;
    n->m.dropout = L->o.dropout;
    n->weight = weight;
    n->next = L->nodes;
    L->nodes = n;
    L->count++;
    L->declaring = false;
    P->rule = rule;
    if (!n->m.path) tp__params_no_memory(P);
    return tp_params_ok(P) ? &n->m : NULL;
}

bool tp__lora_complete(tp_params *P)
{
    if (!P->lora || P->lora->count > 0) return true;
    tp__err(&P->err, TP_E_VALUE,
            "tp_lora: no linear module matches '%.200s'; * stands for any characters, and the last "
            "components of a path are enough",
            P->lora->o.modules ? P->lora->o.modules : "*");
    return false;
}
