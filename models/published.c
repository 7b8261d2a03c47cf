/* published.c - finds a model's weights in checkpoints of other programs. */
#include <stdlib.h>
#include <string.h>

#include "model_inner.h"

enum { MOST_PREFIXES = 64, LONGEST = 256 };

typedef struct candidate {
    char prefix[LONGEST];
    int names; /* of P that F has under it */
} candidate;

typedef struct search {
    candidate at[MOST_PREFIXES];
    int n;
} search;

static void count(search *s, const char *prefix, size_t length)
{
    int i = 0;
    while (i < s->n &&
           (strlen(s->at[i].prefix) != length || memcmp(s->at[i].prefix, prefix, length) != 0))
        i++;
    if (i == MOST_PREFIXES || length >= LONGEST) return;
    if (i == s->n) {
        memcpy(s->at[i].prefix, prefix, length);
        s->n++;
    }
    s->at[i].names++;
}

/* Counts all prefixes under which F has the name. */
static void count_name(search *s, const tp_file *F, const char *name)
{
    const size_t length = strlen(name);
    for (int i = 0; i < tp_file_count(F); i++) {
        const char *full = tp_file_at(F, i)->name;
        const size_t all = strlen(full);
        if (all < length || strcmp(full + all - length, name) != 0) continue;
        if (all == length || full[all - length - 1] == '.') count(s, full, all - length);
    }
}

/* Training programs call averaged weights so: "model_ema.", "ema_model.". */
static bool is_average(const candidate *c)
{
    return strstr(c->prefix, "ema") != NULL;
}

static bool is_better(const candidate *a, const candidate *b)
{
    if (is_average(a) != is_average(b)) return is_average(b);
    if (a->names != b->names) return a->names > b->names;
    return strlen(a->prefix) < strlen(b->prefix);
}

static bool has_any(const tp_params *P, const tp_file *F)
{
    bool any = false;
    for (tp_param_info it = { 0 }; !any && tp_next_param(P, &it);)
        any = tp_file_find(F, it.name) != NULL;
    return any;
}

void tp__published_enter(const tp_params *P, tp_file *F)
{
    search *s = has_any(P, F) ? NULL : calloc(1, sizeof *s);
    const candidate *best = NULL;
    if (!s) return; /* without memory, loading reports the names that are missing */
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) count_name(s, F, it.name);
    for (int i = 0; i < s->n; i++)
        if (!best || is_better(&s->at[i], best)) best = &s->at[i];
    if (best) tp_file_enter(F, best->prefix);
    free(s);
}
