/* members.c - reads, writes and checks configurations through their tables of members. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_inner.h"

enum { LIST_MAX = 64, NUMBER_MAX = INT32_MAX }; /* longest list, largest number in one */

/* Number of list entries in use. */
static int entries(const tp_model_member *m, const void *cfg)
{
    if (m->kind == TP_MEMBER_SIDES) return 2;
    return m->length ? *(const int *)((const char *)cfg + m->length) : m->count;
}

/* Size of a scalar or word; else 0. */
static size_t bytes_of(const tp_model_member *m)
{
    switch (m->kind) {
    case TP_MEMBER_INT64: return sizeof(int64_t);
    case TP_MEMBER_REAL:
    case TP_MEMBER_RATE: return sizeof(double);
    case TP_MEMBER_INT:
    case TP_MEMBER_WORD: return sizeof(int);
    case TP_MEMBER_FLAG:
    case TP_MEMBER_NOT:
    case TP_MEMBER_CHOICE: return sizeof(bool);
    default: return 0;
    }
}

static bool is_zero(const tp_model_member *m, const void *cfg)
{
    static const char zeros[sizeof(int64_t) + sizeof(double)];
    const size_t n = bytes_of(m);
    return n > 0 && memcmp((const char *)cfg + m->at, zeros, n) == 0;
}

/* ---- writing ---- */

static void print_list(const tp_model_member *m, const void *p, int n, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < n && used < size; i++) {
        char number[40];
        if (m->kind == TP_MEMBER_REALS)
            tp_number_write(number, sizeof number, ((const double *)p)[i], 1);
        else
            snprintf(number, sizeof number, "%lld",
                     m->kind == TP_MEMBER_INTS ? ((const int *)p)[i]
                                               : (long long)((const int64_t *)p)[i]);
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? "," : "", number);
    }
}

void tp_model_member_get(const tp_model_member *m, const void *cfg, char *text, size_t size)
{
    if (!text || size == 0) return;
    text[0] = '\0';
    if (!m || !cfg) return;
    const void *p = (const char *)cfg + m->at;
    switch (m->kind) {
    case TP_MEMBER_END:
    case TP_MEMBER_HIDDEN: break;
    case TP_MEMBER_TEXT: m->print(cfg, text, size); break;
    case TP_MEMBER_INT64: snprintf(text, size, "%lld", (long long)*(const int64_t *)p); break;
    case TP_MEMBER_INT: snprintf(text, size, "%d", *(const int *)p); break;
    case TP_MEMBER_REAL:
    case TP_MEMBER_RATE: tp_number_write(text, size, *(const double *)p, 1); break;
    case TP_MEMBER_FLAG: snprintf(text, size, "%d", *(const bool *)p); break;
    case TP_MEMBER_NOT: snprintf(text, size, "%d", !*(const bool *)p); break;
    case TP_MEMBER_WORD: snprintf(text, size, "%s", m->words[*(const int *)p]); break;
    case TP_MEMBER_CHOICE: snprintf(text, size, "%s", m->words[*(const bool *)p]); break;
    case TP_MEMBER_INTS:
    case TP_MEMBER_INT64S:
    case TP_MEMBER_REALS:
    case TP_MEMBER_SIDES: print_list(m, p, entries(m, cfg), text, size); break;
    }
}

void tp_model_write_cfg(const tp_model *model, const void *cfg, tp_writer *W)
{
    if (!model) return;
    tp_writer_meta(W, "model", model->name);
    for (const tp_model_member *m = model->members; m->kind != TP_MEMBER_END; m++) {
        char text[512];
        if (m->kind == TP_MEMBER_HIDDEN || (m->optional && is_zero(m, cfg))) continue;
        tp_model_member_get(m, cfg, text, sizeof text);
        if (m->kind == TP_MEMBER_REAL || m->kind == TP_MEMBER_RATE)
            tp_writer_meta_num(W, m->key,
                               *(const double *)(const void *)((const char *)cfg + m->at));
        else
            tp_writer_meta(W, m->key, text);
    }
}

/* ---- reading ---- */

/* A value being read: its member, the key found, its text, the file (NULL: text only), and the
 * buffer for error messages. */
typedef struct reading {
    const tp_model_member *m;
    const char *key, *text;
    tp_file *F;
    char *why;
    size_t size;
} reading;

static bool whole_of(const reading *r, int64_t *x)
{
    char *end;
    if (r->F) {
        if (tp_file_int(r->F, r->key, x)) return true;
        snprintf(r->why, r->size, "%s", tp_file_why(r->F));
        return false;
    }
    errno = 0;
    *x = strtoll(r->text, &end, 10);
    if (end != r->text && !*end && !errno) return true;
    snprintf(r->why, r->size, "%s = '%.60s' is not a whole number", r->key, r->text);
    return false;
}

static bool real_of(const reading *r, double *x)
{
    char *end;
    if (r->F) {
        if (tp_file_num(r->F, r->key, x)) return true;
        snprintf(r->why, r->size, "%s", tp_file_why(r->F));
        return false;
    }
    *x = tp_number_read(r->text, &end);
    if (end != r->text && !*end && isfinite(*x)) return true;
    snprintf(r->why, r->size, "%s = '%.60s' is not a finite number", r->key, r->text);
    return false;
}

static bool read_int(const reading *r, int64_t lo, int64_t hi, int64_t *x)
{
    if (!whole_of(r, x)) return false;
    if (*x >= lo && *x <= hi) return true;
    snprintf(r->why, r->size, "%s = %lld is out of range", r->key, (long long)*x);
    return false;
}

/* Index of the text among words, or -1. */
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

/* Parses comma-separated numbers from 0 to NUMBER_MAX. Returns their count, or 0 unless the text is
 * a list of 1 to `most` numbers. */
static int parse_list(const char *text, int most, int64_t *x)
{
    int n = 0;
    while (n < most) {
        char *end;
        errno = 0;
        x[n] = strtoll(text, &end, 10);
        if (end == text || errno || x[n] < 0 || x[n] > NUMBER_MAX) return 0;
        n++;
        if (*end != ',') return *end ? 0 : n;
        text = end + 1;
    }
    return 0;
}

static bool read_list(const reading *r, void *cfg)
{
    const tp_model_member *m = r->m;
    const bool sides = m->kind == TP_MEMBER_SIDES;
    const int most = sides ? 2 : m->count;
    int *length = m->length ? (int *)(void *)((char *)cfg + m->length) : NULL;
    int64_t x[LIST_MAX];
    int n = most <= LIST_MAX ? parse_list(r->text, most, x) : 0;

    if (sides && n == 1 && r->key == m->older) x[n++] = x[0]; /* squares used one number */
    if (sides && n == 1)
        snprintf(r->why, r->size, "%s has one side", r->key);
    else if (n == 0 || (!length && n != most))
        snprintf(r->why, r->size,
                 "%s = '%.60s' is not a list of %s%d sizes, or one is out of range", r->key,
                 r->text, length || sides ? "at most " : "", most);
    else if (length && *length && *length != n)
        snprintf(r->why, r->size, "%s has %d numbers for %d stages", r->key, n, *length);
    else {
        if (length) *length = n;
        for (int i = 0; i < most;
             i++) { /* unused entries are 0, so that equal models compare equal */
            void *p = (char *)cfg + m->at;
            const int64_t v = i < n ? x[i] : 0;
            if (m->kind == TP_MEMBER_INTS)
                ((int *)p)[i] = (int)v;
            else
                ((int64_t *)p)[i] = v;
        }
        return true;
    }
    return false;
}

static bool read_reals(const reading *r, void *cfg)
{
    const tp_model_member *m = r->m;
    int *length = m->length ? (int *)(void *)((char *)cfg + m->length) : NULL, n = 0;
    double x[LIST_MAX] = { 0 }, *p = (void *)((char *)cfg + m->at);
    bool more = true;
    for (const char *at = r->text; more && n < m->count && n < LIST_MAX; n++) {
        char *end;
        x[n] = tp_number_read(at, &end);
        if (end == at || !isfinite(x[n]) || (*end && *end != ',')) break;
        more = *end == ',';
        at = end + 1;
    }
    if (more || (!length && n != m->count)) {
        snprintf(r->why, r->size, "%s = '%.60s' is not a list of %s%d finite numbers", r->key,
                 r->text, length ? "at most " : "", m->count);
        return false;
    }
    if (length) *length = n;
    memcpy(p, x, (size_t)m->count * sizeof *p); /* unused entries are 0, as above */
    return true;
}

static bool read_member(const reading *r, void *cfg)
{
    const tp_model_member *m = r->m;
    void *p = (char *)cfg + m->at;
    int64_t x = 0;

    switch (m->kind) {
    case TP_MEMBER_INT64: return read_int(r, INT64_MIN, INT64_MAX, p);
    case TP_MEMBER_INT:
        if (!read_int(r, INT32_MIN, INT32_MAX, &x)) return false;
        *(int *)p = (int)x;
        return true;
    case TP_MEMBER_REAL:
    case TP_MEMBER_RATE: return real_of(r, p);
    case TP_MEMBER_FLAG:
    case TP_MEMBER_NOT:
        if (!read_int(r, 0, 1, &x)) return false;
        *(bool *)p = (x != 0) != (m->kind == TP_MEMBER_NOT);
        return true;
    case TP_MEMBER_WORD:
    case TP_MEMBER_CHOICE:
        x = read_word(r);
        if (x < 0) return false;
        if (m->kind == TP_MEMBER_WORD)
            *(int *)p = (int)x;
        else
            *(bool *)p = x != 0;
        return true;
    case TP_MEMBER_TEXT: return m->parse(cfg, r->text, r->why, r->size);
    case TP_MEMBER_INTS:
    case TP_MEMBER_INT64S:
    case TP_MEMBER_SIDES: return read_list(r, cfg);
    case TP_MEMBER_REALS: return read_reals(r, cfg);
    case TP_MEMBER_END:
    case TP_MEMBER_HIDDEN: break;
    }
    return true;
}

bool tp__member_read(const tp_model_member *m, const char *text, void *cfg, char *why, size_t size)
{
    const reading r = { m, m->key, text, NULL, why, size };
    return read_member(&r, cfg);
}

const char *tp__model_of(tp_file *F)
{
    const char *name = tp_file_meta(F, "model");
    return name ? name : tp_file_meta(F, "classifier");
}

/* Sets a missing member to its default; cfg is zeroed. Returns false if the key is required. */
static bool take_default(const tp_model_member *m, void *cfg)
{
    if (m->optional) return true;
    int64_t *x = (void *)((char *)cfg + m->at);
    if (!m->otherwise) return false;
    for (int i = 0; i < (m->kind == TP_MEMBER_SIDES ? 2 : 1); i++) x[i] = m->otherwise;
    return true;
}

static bool read_members(const tp_model_member *m, void *cfg, tp_file *F, char *why, size_t size)
{
    for (; m->kind != TP_MEMBER_END; m++) {
        if (m->kind == TP_MEMBER_HIDDEN) continue;
        reading r = { m, m->key, tp_file_meta(F, m->key), F, why, size };
        if (!r.text && m->older) {
            r.key = m->older;
            r.text = tp_file_meta(F, m->older);
        }
        if (!r.text && !take_default(m, cfg)) {
            snprintf(why, size, "the configuration lacks '%s'", m->key);
            return false;
        }
        if (r.text && !read_member(&r, cfg)) return false;
    }
    return true;
}

bool tp_model_read_cfg(const tp_model *model, void *cfg, tp_file *F, char *why, size_t size)
{
    if (!model) {
        if (why) snprintf(why, size, "model_read_cfg: NULL was given in place of a model");
        return false;
    }
    const char *found = tp__model_of(F);

    memset(cfg, 0, model->cfg_size);
    if (!tp_file_ok(F))
        snprintf(why, size, "%s", tp_file_why(F));
    else if (!found)
        snprintf(why, size, "the file contains no model configuration");
    else if (strcmp(found, model->name) != 0)
        snprintf(why, size, "the file contains another model: '%.60s', not '%s'", found,
                 model->name);
    else
        return read_members(model->members, cfg, F, why, size) && model->check(cfg, why, size);
    return false;
}

/* ---- ranges ---- */

/* Returns an integer member, or entry i of a list. */
static int64_t number_of(const tp_model_member *m, const void *cfg, int i)
{
    const void *p = (const char *)cfg + m->at;
    const bool small = m->kind == TP_MEMBER_INT || m->kind == TP_MEMBER_INTS;
    return small ? ((const int *)p)[i] : ((const int64_t *)p)[i];
}

static void check_numbers(const tp_model_member *m, const void *cfg, int n, char *why, size_t size)
{
    const bool list = m->kind != TP_MEMBER_INT && m->kind != TP_MEMBER_INT64;
    char text[256];
    for (int i = 0; i < n && !why[0] && (m->least || m->most); i++) {
        if (tp__in_range(number_of(m, cfg, i), m->least, m->most)) continue;
        tp_model_member_get(m, cfg, text, sizeof text);
        snprintf(why, size, "%s = %s%s must be %lld to %lld", m->key, text, list ? ": each" : "",
                 (long long)m->least, (long long)m->most);
    }
}

static void check_member(const tp_model_member *m, const void *cfg, char *why, size_t size)
{
    const void *p = (const char *)cfg + m->at;
    int n = 1;
    switch (m->kind) {
    case TP_MEMBER_INTS:
    case TP_MEMBER_INT64S:
    case TP_MEMBER_SIDES:
        n = entries(m, cfg);
        if (m->length && !tp__in_range(n, 1, m->count)) {
            snprintf(why, size, "%s has %d numbers, not 1 to %d", m->key, n, m->count);
            break;
        } /* fallthrough */
    case TP_MEMBER_INT:
    case TP_MEMBER_INT64: check_numbers(m, cfg, n, why, size); break;
    case TP_MEMBER_RATE:
        if (!tp__is_rate(*(const double *)p))
            snprintf(why, size, "%s must be in [0,1), not %g", m->key, *(const double *)p);
        break;
    case TP_MEMBER_WORD:
        for (n = 0; m->words[n];) n++;
        if (!tp__in_range(*(const int *)p, 0, n - 1))
            snprintf(why, size, "%s has no value number %d", m->key, *(const int *)p);
        break;
    case TP_MEMBER_HIDDEN:
        if (m->common == TP_COMMON_RECOMPUTE &&
            !tp__in_range(*(const int *)p, 0, TP_RECOMPUTE_BLOCK))
            snprintf(why, size, "there is no recomputation number %d", *(const int *)p);
        break;
    default: break;
    }
}

bool tp__check_members(const tp_model_member *m, const void *cfg, char *why, size_t size)
{
    why[0] = '\0';
    for (; m->kind != TP_MEMBER_END && !why[0]; m++) check_member(m, cfg, why, size);
    return !why[0];
}

/* ---- options ---- */

tp_common_cfg tp_model_get(const tp_model_cfg *c)
{
    tp_common_cfg o = { 0 };
    if (!c || !c->model) return o;
    for (const tp_model_member *m = c->model->members; m->kind != TP_MEMBER_END; m++) {
        const void *p = c->at.bytes + m->at;
        switch (m->common) {
        case TP_COMMON_NONE:
        case TP_COMMON_KINDS: break;
        case TP_COMMON_IMAGE: memcpy(o.image, p, sizeof o.image); break;
        case TP_COMMON_CACHE: o.cache = *(const int64_t *)p; break;
        case TP_COMMON_LENGTH: o.length = *(const int64_t *)p; break;
        case TP_COMMON_VOCAB: o.vocab = *(const int64_t *)p; break;
        case TP_COMMON_PAIR: o.pair = *(const bool *)p; break;
        case TP_COMMON_OUTPUTS: o.outputs = *(const int64_t *)p; break;
        case TP_COMMON_DROPOUT: o.dropout = *(const double *)p; break;
        case TP_COMMON_DROP_PATH: o.drop_path = *(const double *)p; break;
        case TP_COMMON_RECOMPUTE: o.recompute = *(const tp_recompute *)p; break;
        }
    }
    return o;
}

void tp_model_set(tp_model_cfg *c, const tp_common_cfg *o)
{
    if (!c || !c->model) return;
    for (const tp_model_member *m = c->model->members; m->kind != TP_MEMBER_END; m++) {
        void *p = c->at.bytes + m->at;
        switch (m->common) {
        case TP_COMMON_NONE:
        case TP_COMMON_KINDS: break;
        case TP_COMMON_IMAGE: memcpy(p, o->image, sizeof o->image); break;
        case TP_COMMON_CACHE: *(int64_t *)p = o->cache; break;
        case TP_COMMON_LENGTH: *(int64_t *)p = o->length; break;
        case TP_COMMON_VOCAB: *(int64_t *)p = o->vocab; break;
        case TP_COMMON_PAIR: *(bool *)p = o->pair; break;
        case TP_COMMON_OUTPUTS: *(int64_t *)p = o->outputs; break;
        case TP_COMMON_DROPOUT: *(double *)p = o->dropout; break;
        case TP_COMMON_DROP_PATH: *(double *)p = o->drop_path; break;
        case TP_COMMON_RECOMPUTE: *(tp_recompute *)p = o->recompute; break;
        }
    }
}
