/* meta.c - metadata of an open file: texts, and numbers parsed as JSON. */
#include <string.h>

#include "tensor/file/open.h"

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
