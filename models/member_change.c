/* member_change.c - changes configurations from text such as "depths=1,2,8,1,mlp_ratio=4". */
#include <stdio.h>
#include <string.h>
#include <tapegrad/nearest.h>

#include "model_inner.h"

void tp_model_member_type(const tp_model_member *m, char *text, size_t size)
{
    if (!text || size == 0) return;
    char range[64] = "";
    text[0] = '\0';
    if (!m) return;
    if (m->least || m->most)
        snprintf(range, sizeof range, ", %lld to %lld", (long long)m->least, (long long)m->most);
    switch (m->kind) {
    case TP_MEMBER_END:
    case TP_MEMBER_HIDDEN: break;
    case TP_MEMBER_INT64:
    case TP_MEMBER_INT: snprintf(text, size, "a whole number%s", range); break;
    case TP_MEMBER_REAL: snprintf(text, size, "a number"); break;
    case TP_MEMBER_RATE: snprintf(text, size, "a number from 0 to below 1"); break;
    case TP_MEMBER_FLAG:
    case TP_MEMBER_NOT: snprintf(text, size, "0|1"); break;
    case TP_MEMBER_WORD:
    case TP_MEMBER_CHOICE:
        for (int i = 0, n = 0; m->words[i] && n >= 0 && (size_t)n < size; i++)
            n += snprintf(text + n, size - (size_t)n, "%s%s", i ? "|" : "", m->words[i]);
        break;
    case TP_MEMBER_INTS:
    case TP_MEMBER_INT64S:
        snprintf(text, size, "%s%d whole numbers%s", m->length ? "at most " : "", m->count, range);
        break;
    case TP_MEMBER_REALS:
        snprintf(text, size, "%s%d numbers%s", m->length ? "at most " : "", m->count, range);
        break;
    case TP_MEMBER_SIDES: snprintf(text, size, "height and width%s", range); break;
    case TP_MEMBER_TEXT: snprintf(text, size, "a text"); break;
    }
}

/* ---- changes ---- */

/* A change to a configuration. */
typedef struct change {
    const tp_model_member *members;
    void *cfg;
    const char *whose;
    const tp_model_cfg *model; /* the owner of cfg; NULL: not a model */
    const char *const *set_by;
    char *why;
    size_t size;
} change;

/* Returns the end of the item at `text`: the comma before the next KEY=, or the end of text. */
static const char *end_of(const char *text)
{
    const char *comma = strchr(text, ',');
    while (comma) {
        const size_t n = strcspn(comma + 1, ",");
        if (memchr(comma + 1, '=', n)) return comma;
        comma = comma[1 + n] ? comma + 1 + n : NULL;
    }
    return text + strlen(text);
}

static const tp_model_member *find(const change *c, const char *key)
{
    tp_nearest near = tp_nearest_to(key);
    for (const tp_model_member *m = c->members; m->kind != TP_MEMBER_END; m++) {
        if (m->kind == TP_MEMBER_HIDDEN) continue;
        if (strcmp(m->key, key) == 0) return m;
        tp_nearest_try(&near, m->key);
    }
    if (near.name[0])
        snprintf(c->why, c->size, "'%.60s' is no member of %s; did you mean '%s'?", key, c->whose,
                 near.name);
    else
        snprintf(c->why, c->size, "'%.60s' is no member of %s; tp-models --members NAME lists them",
                 key, c->whose);
    return NULL;
}

/* Returns the option that sets a shared member, or NULL. */
static const char *setter_of(const change *c, const tp_model_member *m, const int64_t image[2])
{
    if (!c->set_by || c->set_by[m->common]) return c->set_by ? c->set_by[m->common] : NULL;
    /* some models have one member per image side */
    const tp_common_cfg now = tp_model_get(c->model);
    return memcmp(image, now.image, sizeof now.image) != 0 ? c->set_by[TP_COMMON_IMAGE] : NULL;
}

/* item: KEY=VALUE */
static bool apply(const change *c, const char *item)
{
    char key[64];
    const size_t n = strcspn(item, "=");
    if (!item[n] || n == 0 || n >= sizeof key) {
        snprintf(c->why, c->size, "'%.60s' is not KEY=VALUE", item);
        return false;
    }
    memcpy(key, item, n);
    key[n] = '\0';
    const tp_model_member *m = find(c, key);
    if (!m) return false;
    const tp_common_cfg before = tp_model_get(c->model);
    const char *other = setter_of(c, m, before.image);
    if (!other && !tp__member_read(m, item + n + 1, c->cfg, c->why, c->size)) return false;
    if (!other) other = setter_of(c, m, before.image);
    if (other) snprintf(c->why, c->size, "%s is set by %s", key, other);
    return !other;
}

/* Does the text set that key? */
static bool names(const char *text, const char *key)
{
    const size_t n = strlen(key);
    for (const char *at = text;; at++) {
        if (strncmp(at, key, n) == 0 && at[n] == '=') return true;
        at = end_of(at);
        if (!*at) return false;
    }
}

/* Lists that share a length can change it only if all of them are given. */
static void free_lengths(const change *c, const char *text)
{
    for (const tp_model_member *m = c->members; m->kind != TP_MEMBER_END; m++) {
        bool given = m->length > 0;
        for (const tp_model_member *o = c->members; o->kind != TP_MEMBER_END && given; o++)
            given = o->length != m->length || names(text, o->key);
        if (given) *(int *)(void *)((char *)c->cfg + m->length) = 0;
    }
}

static bool apply_all(const change *c, const char *text)
{
    free_lengths(c, text);
    for (const char *at = text;;) {
        char item[512];
        const char *end = end_of(at);
        if ((size_t)(end - at) >= sizeof item) {
            snprintf(c->why, c->size, "'%.60s...' is longer than %d letters", at,
                     (int)sizeof item - 1);
            return false;
        }
        memcpy(item, at, (size_t)(end - at));
        item[end - at] = '\0';
        if (!apply(c, item)) return false;
        if (!*end) return true;
        at = end + 1;
    }
}

bool tp_members_change(const tp_model_member *members, void *cfg, const char *whose,
                       const char *text, char *why, size_t size)
{
    if (!members || !cfg || !whose || !text) {
        if (why)
            snprintf(why, size, "members_change: members, a configuration and a text are needed");
        return false;
    }
    return apply_all(&(change){ members, cfg, whose, NULL, NULL, why, size }, text);
}

bool tp_model_change(tp_model_cfg *cfg, const char *text, const char *const set_by[TP_COMMON_KINDS],
                     char *why, size_t size)
{
    if (!cfg || !cfg->model || !text) {
        if (why) snprintf(why, size, "model_change: a configuration and a text are needed");
        return false;
    }
    tp_model_cfg copy = *cfg;
    const change c = { copy.model->members, &copy.at, copy.model->name, &copy, set_by, why, size };
    if (!apply_all(&c, text) || !tp_model_check(&copy, why, size)) return false;
    *cfg = copy;
    return true;
}
