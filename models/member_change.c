/* member_change.c - members of a configuration by their names, as "depths=1,2,8,1,mlp_ratio=4". */
#include <stdio.h>
#include <string.h>
#include <tapegrad/nearest.h>

#include "model_inner.h"

void tp_model_member_type(const tp_model_member *m, char *text, size_t size)
{
    if (!text || size == 0) return;
    text[0] = '\0';
    if (!m) return;
    switch (m->kind) {
    case TP_MEMBER_END:
    case TP_MEMBER_HIDDEN: break;
    case TP_MEMBER_INT64:
    case TP_MEMBER_INT: snprintf(text, size, "a whole number"); break;
    case TP_MEMBER_REAL: snprintf(text, size, "a number"); break;
    case TP_MEMBER_FLAG:
    case TP_MEMBER_NOT: snprintf(text, size, "0|1"); break;
    case TP_MEMBER_WORD:
    case TP_MEMBER_CHOICE:
        for (int i = 0, n = 0; m->words[i] && n >= 0 && (size_t)n < size; i++)
            n += snprintf(text + n, size - (size_t)n, "%s%s", i ? "|" : "", m->words[i]);
        break;
    case TP_MEMBER_INTS:
    case TP_MEMBER_INT64S:
        snprintf(text, size, "%s%d whole numbers", m->length ? "at most " : "", m->count);
        break;
    case TP_MEMBER_SIDES: snprintf(text, size, "height and width"); break;
    case TP_MEMBER_TEXT: snprintf(text, size, "a text"); break;
    }
}

/* ---- changes ---- */

/* A change to a copy of a configuration. */
typedef struct change {
    tp_model_cfg *to;
    const char *const *set_by;
    char *why;
    size_t size;
} change;

/* The end of the item at `text`: a comma before an item that has '=' itself, or the end of the text. */
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
    const tp_model *model = c->to->model;
    tp_nearest near = tp_nearest_to(key);
    for (const tp_model_member *m = model->members; m->kind != TP_MEMBER_END; m++) {
        if (m->kind == TP_MEMBER_HIDDEN) continue;
        if (strcmp(m->key, key) == 0) return m;
        tp_nearest_try(&near, m->key);
    }
    if (near.name[0])
        snprintf(c->why, c->size, "'%.60s' is no member of %s; did you mean '%s'?", key,
                 model->name, near.name);
    else
        snprintf(c->why, c->size, "'%.60s' is no member of %s; tp-models --members NAME lists them",
                 key, model->name);
    return NULL;
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
    const tp_common_cfg before = tp_model_get(c->to);
    const char *other = m && c->set_by ? c->set_by[m->common] : NULL;
    if (!m || (!other && !tp__member_read(m, item + n + 1, &c->to->at, c->why, c->size)))
        return false;
    const tp_common_cfg after =
        tp_model_get(c->to); /* some models have a member for each side of the image */
    if (!other && c->set_by && memcmp(before.image, after.image, sizeof after.image) != 0)
        other = c->set_by[TP_COMMON_IMAGE];
    if (other) snprintf(c->why, c->size, "%s is set by %s", key, other);
    return !other;
}

/* Does the text have an item with that key? */
static bool names(const char *text, const char *key)
{
    const size_t n = strlen(key);
    for (const char *at = text;; at++) {
        if (strncmp(at, key, n) == 0 && at[n] == '=') return true;
        at = end_of(at);
        if (!*at) return false;
    }
}

/* Lists that share a length may get another one if all of them are given. */
static void free_lengths(const change *c, const char *text)
{
    const tp_model_member *all = c->to->model->members;
    for (const tp_model_member *m = all; m->kind != TP_MEMBER_END; m++) {
        bool given = m->length > 0;
        for (const tp_model_member *o = all; o->kind != TP_MEMBER_END && given; o++)
            given = o->length != m->length || names(text, o->key);
        if (given) *(int *)(void *)(c->to->at.bytes + m->length) = 0;
    }
}

bool tp_model_change(tp_model_cfg *cfg, const char *text, const char *const set_by[TP_COMMON_KINDS],
                     char *why, size_t size)
{
    if (!cfg || !cfg->model || !text) {
        if (why) snprintf(why, size, "model_change: a configuration and a text are needed");
        return false;
    }
    tp_model_cfg copy = *cfg;
    const change c = { &copy, set_by, why, size };
    free_lengths(&c, text);
    for (const char *at = text;;) {
        char item[512];
        const char *end = end_of(at);
        if ((size_t)(end - at) >= sizeof item) {
            snprintf(why, size, "'%.60s...' is longer than %d letters", at, (int)sizeof item - 1);
            return false;
        }
        memcpy(item, at, (size_t)(end - at));
        item[end - at] = '\0';
        if (!apply(&c, item)) return false;
        if (!*end) break;
        at = end + 1;
    }
    if (!tp_model_check(&copy, why, size)) return false;
    *cfg = copy;
    return true;
}
