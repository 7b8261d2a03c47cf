/* members.c - configurations as checkpoint metadata, by tables of their members. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_inner.h"

enum { MOST = INT32_MAX }; /* of a number in a list */

static int values(const tp__member *m, const void *cfg)
{
    if (m->kind == MEMBER_SIDES) return 2;
    return m->length ? *(const int *)((const char *)cfg + m->length) : m->count;
}

/* ---- writing ---- */

static void write_list(const tp__member *m, const void *p, int n, tp_writer *W)
{
    char text[512] = "";
    size_t used = 0;
    for (int i = 0; i < n && used < sizeof text; i++) {
        const long long x =
            m->kind == MEMBER_INTS ? ((const int *)p)[i] : (long long)((const int64_t *)p)[i];
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%lld", i ? "," : "", x);
    }
    tp_writer_meta(W, m->key, text);
}

void tp__members_write(const tp__member *m, const void *cfg, tp_writer *W)
{
    for (; m->key; m++) {
        const void *p = (const char *)cfg + m->at;
        switch (m->kind) {
        case MEMBER_INT64: tp_writer_meta_int(W, m->key, *(const int64_t *)p); break;
        case MEMBER_INT: tp_writer_meta_int(W, m->key, *(const int *)p); break;
        case MEMBER_REAL: tp_writer_meta_num(W, m->key, *(const double *)p); break;
        case MEMBER_FLAG: tp_writer_meta_int(W, m->key, *(const bool *)p); break;
        case MEMBER_NOT: tp_writer_meta_int(W, m->key, !*(const bool *)p); break;
        case MEMBER_WORD: tp_writer_meta(W, m->key, m->words[*(const int *)p]); break;
        case MEMBER_CHOICE: tp_writer_meta(W, m->key, m->words[*(const bool *)p]); break;
        default: write_list(m, p, values(m, cfg), W);
        }
    }
}

/* ---- reading ---- */

/* A value being read: its member, key and text, and where a refusal goes. */
typedef struct reading {
    const tp__member *m;
    const char *key, *text;
    tp_file *F;
    char *why;
    size_t size;
} reading;

static bool read_int(const reading *r, int64_t lo, int64_t hi, int64_t *x)
{
    if (!tp_file_int(r->F, r->key, x)) {
        snprintf(r->why, r->size, "%s", tp_file_why(r->F));
        return false;
    }
    if (*x >= lo && *x <= hi) return true;
    snprintf(r->why, r->size, "%s = %lld is out of range", r->key, (long long)*x);
    return false;
}

/* Which of the words the text is, or -1. */
static int read_word(const reading *r)
{
    const char *const *w = r->m->words;
    int n = 0;
    for (; w[n]; n++)
        if (strcmp(r->text, w[n]) == 0) return n;
    int used = snprintf(r->why, r->size, "%s = '%.40s' is not known: it is ", r->key, r->text);
    for (int i = 0; i < n && used >= 0 && (size_t)used < r->size; i++)
        used += snprintf(r->why + used, r->size - (size_t)used, "%s'%s'", i ? " nor " : "neither ",
                         w[i]);
    return -1;
}

/* Numbers in [0, MOST], commas between: how many, or 0 if the text is no list of 1 to `most`. */
static int parse_list(const char *text, int most, int64_t *x)
{
    int n = 0;
    while (n < most) {
        char *end;
        errno = 0;
        x[n] = strtoll(text, &end, 10);
        if (end == text || errno || x[n] < 0 || x[n] > MOST) return 0;
        n++;
        if (*end != ',') return *end ? 0 : n;
        text = end + 1;
    }
    return 0;
}

enum { LIST_MAX = 64 };

static bool read_list(const reading *r, void *cfg)
{
    const tp__member *m = r->m;
    const bool sides = m->kind == MEMBER_SIDES;
    const int most = sides ? 2 : m->count;
    int *length = m->length ? (int *)(void *)((char *)cfg + m->length) : NULL;
    int64_t x[LIST_MAX];
    int n = most <= LIST_MAX ? parse_list(r->text, most, x) : 0;

    if (sides && n == 1 && r->key == m->older) x[n++] = x[0]; /* square images had one number */
    if (sides && n == 1)
        snprintf(r->why, r->size, "%s has one side", r->key);
    else if (n == 0 || (!length && n != most))
        snprintf(r->why, r->size, "%s = '%.60s' is no list of %s%d sizes, or one is out of range",
                 r->key, r->text, length || sides ? "at most " : "", most);
    else if (length && *length && *length != n)
        snprintf(r->why, r->size, "%d numbers of %s for %d stages", n, r->key, *length);
    else {
        if (length) *length = n;
        for (int i = 0; i < n; i++) {
            void *p = (char *)cfg + m->at;
            if (m->kind == MEMBER_INTS)
                ((int *)p)[i] = (int)x[i];
            else
                ((int64_t *)p)[i] = x[i];
        }
        return true;
    }
    return false;
}

static bool read_member(const reading *r, void *cfg)
{
    const tp__member *m = r->m;
    void *p = (char *)cfg + m->at;
    int64_t x = 0;

    switch (m->kind) {
    case MEMBER_INT64: return read_int(r, INT64_MIN, INT64_MAX, p);
    case MEMBER_INT:
        if (!read_int(r, INT32_MIN, INT32_MAX, &x)) return false;
        *(int *)p = (int)x;
        return true;
    case MEMBER_REAL:
        if (tp_file_num(r->F, r->key, p)) return true;
        snprintf(r->why, r->size, "%s", tp_file_why(r->F));
        return false;
    case MEMBER_FLAG:
    case MEMBER_NOT:
        if (!read_int(r, 0, 1, &x)) return false;
        *(bool *)p = (x != 0) != (m->kind == MEMBER_NOT);
        return true;
    case MEMBER_WORD:
    case MEMBER_CHOICE:
        x = read_word(r);
        if (x < 0) return false;
        if (m->kind == MEMBER_WORD)
            *(int *)p = (int)x;
        else
            *(bool *)p = x != 0;
        return true;
    default: return read_list(r, cfg);
    }
}

const char *tp__model_of(tp_file *F)
{
    const char *name = tp_file_meta(F, "model");
    return name ? name : tp_file_meta(F, "classifier");
}

bool tp__members_read(const tp__member *m, const char *model, void *cfg, tp_file *F, char *why,
                      size_t size)
{
    const char *found = tp__model_of(F);

    if (!tp_file_ok(F) || !found) {
        snprintf(why, size, "%s",
                 tp_file_ok(F) ? "the file holds no model configuration" : tp_file_why(F));
        return false;
    }
    if (strcmp(found, model) != 0) {
        snprintf(why, size, "the file holds another model: '%.60s', not '%s'", found, model);
        return false;
    }
    for (; m->key; m++) {
        reading r = { m, m->key, tp_file_meta(F, m->key), F, why, size };
        if (!r.text && m->older) {
            r.key = m->older;
            r.text = tp_file_meta(F, m->older);
        }
        if (!r.text && m->optional) continue;
        if (!r.text) {
            snprintf(why, size, "the configuration lacks '%s'", m->key);
            return false;
        }
        if (!read_member(&r, cfg)) return false;
    }
    return true;
}
