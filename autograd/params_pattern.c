/* params_pattern.c - initial values selected by name patterns. */
#include "autograd/nodes.h"
#include "autograd/params.h"

bool tp__matches(const char *pattern, const char *name)
{
    const char *star = NULL, *from = name;
    while (*name) {
        if (*pattern == '*') {
            star = ++pattern;
            from = name;
        } else if (*pattern == '?' || *pattern == *name) {
            pattern++;
            name++;
        } else if (star) {
            pattern = star;
            name = ++from;
        } else {
            return false;
        }
    }
    while (*pattern == '*') pattern++;
    return *pattern == 0;
}

void tp_init_by_name(tp_params *P, const tp_init_row *rows)
{
    if (!tp_params_ok(P)) return;
    if (tp__is_complete(P))
        tp__err(&P->err, TP_E_STATE,
                "tp_init_by_name: the parameters are in use already; call it before the first op, "
                "load, save or optimiser");
    else
        P->rows = rows;
}

static bool is_drawn(const tp_entry *e)
{
    return !e->alias_of && !e->node->buffer && !tp_lora_is_name(e->name);
}

static bool matches_any(const tp_params *P, const char *pattern)
{
    for (int i = 0; i < P->n; i++)
        if (is_drawn(&P->entries[i]) && tp__matches(pattern, P->entries[i].name)) return true;
    return false;
}

bool tp__init_rows(tp_params *P)
{
    for (const tp_init_row *r = P->rows; r && r->pattern; r++) {
        if (matches_any(P, r->pattern)) continue;
        tp__err(&P->err, TP_E_VALUE,
                "tp_init_by_name: no parameter matches '%.200s'; * stands for any characters, "
                "and buffers and tied second names do not count",
                r->pattern);
        return false;
    }
    for (int i = 0; P->rows && i < P->n; i++) {
        tp_entry *e = &P->entries[i];
        const tp_init_row *r = P->rows;
        if (!is_drawn(e)) continue;
        while (r->pattern && !tp__matches(r->pattern, e->name)) r++;
        if (!r->pattern) continue;
        e->init = r->init;
        if (!tp__init_resolve(e->name, &e->node->view, &e->init, &P->err)) return false;
    }
    return true;
}
