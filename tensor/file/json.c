/* json.c - parses the JSON in files of tensors: headers, indexes, and metadata (texts and numbers).
 *
 * jansson takes up to 300 bytes for a value of two characters. JSON with more values than any list
 * of tensors is refused before parsing: a header has about 13 values for each tensor. */
#include <errno.h>
#include <string.h>

#include "tensor/file/open.h"

enum { MOST_VALUES = 2000000 };

typedef struct source {
    const char *at;
    size_t left;
    bool starved; /* memory ran out */
} source;

/* Feeds jansson byte by byte. When memory runs out, its lexer drops characters and continues; only
 * errno shows that, and only until the next number. */
static size_t feed(void *to, size_t room, void *data)
{
    source *s = data;
    s->starved = s->starved || errno == ENOMEM;
    if (s->left == 0 || room == 0 || s->starved) return 0;
    *(char *)to = *s->at++;
    s->left--;
    return 1;
}

json_t *tp_json_parse(const char *text, size_t n, size_t flags, json_error_t *e, bool *starved)
{
    source s = { text, text ? n : 0, false };
    json_error_t own = { .text = "" };
    bool ignored;
    if (!e) e = &own;
    if (!starved) starved = &ignored;
    e->text[0] = '\0';
    void *locale = tp_c_locale_begin();
    errno = 0;
    json_t *j = json_load_callback(feed, &s, flags, e);
    *starved = s.starved || errno == ENOMEM || (!j && !e->text[0]);
    tp_c_locale_end(locale);
    if (!*starved) return j;
    json_decref(j);
    return NULL;
}

/* The first character after the string that begins at s, or end. */
static const char *skip_string(const char *s, const char *end)
{
    for (s++; s < end && *s != '"'; s++)
        if (*s == '\\' && s + 1 < end) s++;
    return s < end ? s + 1 : end;
}

static bool is_modest(const char *text, size_t length)
{
    const char *const end = text + length;
    int values = 0;
    for (const char *s = text; s < end && values <= MOST_VALUES;) {
        if (*s == '"') {
            s = skip_string(s, end);
            continue;
        }
        values += *s == '{' || *s == '[' || *s == ',';
        s++;
    }
    return values <= MOST_VALUES;
}

json_t *tp__file_json(tp_file *F, const char *text, size_t length, size_t flags, json_error_t *e)
{
    bool starved;
    if (!is_modest(text, length)) {
        tp__file_fail(F, TP_E_IO, "its JSON has more than %d values, the supported number",
                      MOST_VALUES);
        return NULL;
    }
    json_t *j = tp_json_parse(text, length, flags, e, &starved);
    if (starved) tp__file_fail(F, TP_E_MEMORY, "out of host memory while reading the header");
    return j;
}

/* ---- metadata ---- */

void tp__file_add_meta(tp_file *F, const char *key, const char *value)
{
    if (!F->root) F->meta = F->root = json_object();
    if (tp_is_utf8(key) && json_object_set_new(F->meta, key, json_string(value)) != 0)
        tp__file_fail(F, TP_E_MEMORY, "out of memory for the metadata");
}

const char *tp_file_meta(const tp_file *F, const char *key)
{
    return json_string_value(json_object_get(tp__file_some(F)->meta, key));
}

bool tp_file_meta_at(const tp_file *F, int i, const char **key, const char **value)
{
    tp_file *f = tp__file_some(F);
    const bool next = f->pair_at && i == f->pair + 1; /* callers count upwards */
    void *it = NULL;
    if (i >= 0) it = next ? json_object_iter_next(f->meta, f->pair_at) : json_object_iter(f->meta);
    for (int k = next ? i : 0; it && k < i; k++) it = json_object_iter_next(f->meta, it);
    if (!it) return false;
    f->pair = i;
    f->pair_at = it;
    *key = json_object_iter_key(it);
    *value = json_string_value(json_object_iter_value(it));
    return true;
}

/* Parses a number as JSON. */
static json_t *number(tp_file *F, const char *key, const char *text, const char *what, size_t flags)
{
    json_t *j = tp__file_json(F, text, strlen(text), JSON_DECODE_ANY | flags, NULL);
    if (flags ? json_is_real(j) : json_is_integer(j)) return j;
    json_decref(j);
    tp__file_fail(F, TP_E_VALUE, "metadata '%.200s' is '%.100s', which is not %s", key, text, what);
    return NULL;
}

bool tp_file_int(tp_file *F, const char *key, int64_t *x)
{
    const char *text = tp_file_meta(F, key);
    if (!tp_file_ok(F) || !text) return tp_file_ok(F);
    json_t *j = number(F, key, text, "one whole number", 0);
    if (j) *x = json_integer_value(j);
    json_decref(j);
    return tp_file_ok(F);
}

bool tp_file_num(tp_file *F, const char *key, double *x)
{
    const char *text = tp_file_meta(F, key);
    if (!tp_file_ok(F) || !text) return tp_file_ok(F);
    json_t *j = number(F, key, text, "one finite number", JSON_DECODE_INT_AS_REAL);
    if (j) *x = json_real_value(j);
    json_decref(j);
    return tp_file_ok(F);
}
