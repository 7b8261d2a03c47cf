/* published.c - finds a model's weights in checkpoints of other programs.
 *
 * Tensors get our names in two steps. First, wrappers' components are removed, and the model's
 * spelling tables rewrite names and drop what the model computes itself. Then the prefix with most
 * of the model's names ("state_dict.net.") is removed; averaged weights serve only if there are no
 * others. A file with all weights under two prefixes is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_inner.h"

enum { MOST_PREFIXES = 64, LONGEST = 512 };

/* ---- spellings ---- */

/* Index tables and masks that PyTorch's modules store as buffers. */
static const tp_spelling computed[] = {
    { "relative_position_index", NULL },
    { "position_ids", NULL },
    { "attn_mask", NULL },
    { 0 },
};

typedef struct speller {
    const tp_params *P;
    bool (*may_lack)(const char *name); /* this and the tables may be NULL */
    const tp_spelling *dialect, *table;
    char name[LONGEST];
} speller;

static bool is_leaf(const char *name, const char *leaf)
{
    const size_t n = strlen(name), m = strlen(leaf);
    return n >= m && strcmp(name + n - m, leaf) == 0 && (n == m || name[n - m - 1] == '.');
}

/* Replaces the first match in the name. */
static void replace(char name[LONGEST], const tp_spelling *s)
{
    char rest[LONGEST];
    char *at = strstr(name, s->theirs);
    if (!at) return;
    snprintf(rest, sizeof rest, "%s", at + strlen(s->theirs));
    snprintf(at, (size_t)(name + LONGEST - at), "%s%s", s->ours, rest);
}

/* Rewrites the name; returns false if it is no weight. */
static bool apply(char name[LONGEST], const tp_spelling *table)
{
    for (const tp_spelling *s = table; s && s->theirs; s++) {
        if (s->ours)
            replace(name, s);
        else if (is_leaf(name, s->theirs))
            return false;
    }
    return true;
}

/* Is it, under any prefix, an optional tensor that P does not have? */
static bool is_spare(const speller *p)
{
    if (!p->may_lack || !p->may_lack(p->name)) return false;
    for (tp_param_info it = { 0 }; tp_next_param(p->P, &it);)
        if (is_leaf(p->name, it.name)) return false;
    return true;
}

static const char *unwrap(const tp_file_tensor *t, void *env)
{
    char *name = env;
    return tp_file_unwrapped(t->name, name, LONGEST) ? name : t->name;
}

/* Our name of a tensor, or NULL if it is no weight. Empty tensors are leftovers of switches. */
static const char *spell(const tp_file_tensor *t, void *env)
{
    speller *p = env;
    if (t->numel == 0 && t->code == TP_OK) return NULL;
    if (strlen(t->name) >= LONGEST) return t->name;
    strcpy(p->name, t->name);
    if (!apply(p->name, computed) || !apply(p->name, p->dialect) || !apply(p->name, p->table) ||
        is_spare(p))
        return NULL;
    return strcmp(p->name, t->name) == 0 ? t->name : p->name;
}

/* The dialect's spellings if F uses it, else NULL. */
static const tp_spelling *dialect_of(const tp_file *F, const tp_dialect *d)
{
    for (int i = 0; d->sign && i < tp_file_count(F); i++)
        if (is_leaf(tp_file_at(F, i)->name, d->sign)) return d->spellings;
    return NULL;
}

/* ---- prefixes ---- */

typedef struct candidate {
    char prefix[LONGEST];
    int names; /* of P that F has here */
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

/* Counts every prefix under which F has the name. lengths of the names in F make comparing a
 * million of them with each name of a model cheap. */
static void count_name(search *s, const tp_file *F, const size_t *lengths, const char *name)
{
    const size_t m = strlen(name);
    for (int i = 0; i < tp_file_count(F); i++) {
        const char *full = tp_file_at(F, i)->name;
        if (lengths[i] >= m && memcmp(full + lengths[i] - m, name, m) == 0 && is_leaf(full, name))
            count(s, full, lengths[i] - m);
    }
}

/* Training programs' averaged weights: "model_ema.", "ema_model.". */
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

/* Returns another prefix that also has all names of P. */
static const candidate *rival(const search *s, const candidate *best, int names)
{
    for (int i = 0; best->names == names && i < s->n; i++)
        if (&s->at[i] != best && s->at[i].names == names &&
            is_average(&s->at[i]) == is_average(best))
            return &s->at[i];
    return NULL;
}

/* Removes either prefix: both weights then share names, and the file fails. */
static const char *without_either(const tp_file_tensor *t, void *env)
{
    const candidate *const *pair = env;
    for (int i = 0; i < 2; i++) {
        const size_t n = strlen(pair[i]->prefix);
        if (strncmp(t->name, pair[i]->prefix, n) == 0 && t->name[n]) return t->name + n;
    }
    return NULL;
}

static void enter(const tp_params *P, tp_file *F, char *prefix, size_t size)
{
    search *s = has_any(P, F) ? NULL : calloc(1, sizeof *s);
    size_t *lengths = s ? calloc((size_t)tp_file_count(F) + 1, sizeof *lengths) : NULL;
    const candidate *best = NULL;
    int names = 0;
    if (!lengths) { /* if memory runs out, loading reports missing names */
        free(s);
        return;
    }
    for (int i = 0; i < tp_file_count(F); i++) lengths[i] = strlen(tp_file_at(F, i)->name);
    for (tp_param_info it = { 0 }; tp_next_param(P, &it); names++)
        count_name(s, F, lengths, it.name);
    free(lengths);
    for (int i = 0; i < s->n; i++)
        if (!best || is_better(&s->at[i], best)) best = &s->at[i];
    const candidate *pair[2] = { best, best ? rival(s, best, names) : NULL };
    if (pair[1]) {
        tp_file_rename(F, without_either, pair);
    } else if (best) {
        snprintf(prefix, size, "%s", best->prefix);
        tp_file_enter(F, best->prefix);
    }
    free(s);
}

/* ---- the two steps ---- */

void tp__published_enter(const tp_model *model, const tp_params *P, tp_file *F, char *prefix,
                         size_t size)
{
    speller p = { .P = P, .may_lack = model->may_lack, .table = model->spellings };
    if (size) prefix[0] = '\0';
    if (!tp_file_rename(F, unwrap, p.name)) return;
    if (model->adapt && !model->adapt(F)) return;
    p.dialect = dialect_of(F, &model->dialect);
    if (tp_file_rename(F, spell, &p)) enter(P, F, prefix, size);
}

bool tp_model_adopt(tp_model_cfg *c, tp_file *F, char *prefix, size_t size)
{
    if (!c) return false;
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .threads = 1, .dry = true });
    tp_params *P = tp_params_new(D, NULL);
    tp_net *N = tp_net_new(P, "", c); /* for its parameter names */
    if (c->model) tp__published_enter(c->model, P, F, prefix, size);
    const tp_file_tensor *head =
        c->model && c->model->head ? tp_file_find(F, c->model->head) : NULL;
    if (head && head->shape.ndim > 0) {
        tp_common_cfg o = tp_model_get(c);
        o.outputs = head->shape.dim[0];
        tp_model_set(c, &o);
    }
    tp_net_free(N);
    tp_params_free(P);
    tp_device_close(D);
    return tp_file_ok(F);
}
