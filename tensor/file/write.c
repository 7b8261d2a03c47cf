/* write.c - collects what a safetensors file will hold, and its header. Layout: inner.h. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/backend.h"
#include "tensor/file/checksum.h"
#include "tensor/file/writer.h"

static tp_writer no_memory = {
    .err = { TP_E_MEMORY, "file: out of memory for the writer object itself", NULL },
};

static tp_writer no_writer = {
    .err = { TP_E_STATE, "file: NULL was given in place of a writer; make one with tp_writer_new",
             NULL },
};

tp_writer *tp__writer_some(const tp_writer *W)
{
    return W ? (tp_writer *)(uintptr_t)W : &no_writer;
}

void tp__writer_failf(tp_writer *W, tp_code code, const char *fmt, ...)
{
    if (!tp_writer_ok(W)) return;
    char text[TP_TEXT], path[1000], plain[TP_TEXT];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    tp__err(&W->err, code, "%s cannot be written: %s", tp_plain(W->path, path, sizeof path),
            tp_plain(text, plain, sizeof plain));
}

void tp__writer_no_memory(tp_writer *W)
{
    tp__writer_failf(W, TP_E_MEMORY, "out of host memory");
}

/* ---- collecting ---- */

tp_writer *tp_writer_new(const char *path)
{
    tp_writer *W = calloc(1, sizeof *W);
    char *copy = W ? strdup(path && *path ? path : "file") : NULL;
    json_t *meta = copy ? json_object() : NULL;
    if (!meta) {
        free(copy);
        free(W);
        return &no_memory;
    }
    W->path = copy;
    W->meta = meta;
    if (!path || !*path)
        tp__writer_failf(W, TP_E_VALUE, "%s was given in place of a path",
                         path ? "an empty text" : "NULL");
    return W;
}

tp_writer *tp_writer_numpy(const char *path)
{
    tp_writer *W = tp_writer_new(path);
    if (tp_writer_ok(W)) W->numpy = true;
    return W;
}

void tp_writer_free(tp_writer *W)
{
    if (!W || W == &no_memory) return;
    for (int i = 0; i < W->n; i++) {
        free(W->items[i].name);
        free(W->items[i].own);
        free(W->items[i].parts);
    }
    free(W->items);
    json_decref(W->meta);
    free(W->path);
    free(W);
}

bool tp_writer_ok(const tp_writer *W)
{
    return tp__writer_some(W)->err.code == TP_OK;
}
const char *tp_writer_why(const tp_writer *W)
{
    return tp__writer_some(W)->err.text;
}

tp_code tp_writer_code(const tp_writer *W)
{
    return tp__writer_some(W)->err.code;
}

void tp__writer_no_nan(tp_writer *W)
{
    if (tp_writer_ok(W)) W->no_nan = true;
}

void tp_writer_finite(tp_writer *W)
{
    if (tp_writer_ok(W)) W->finite = true;
}

void tp__writer_fail(tp_writer *W, const tp_err *e)
{
    tp__writer_failf(W, e->code, "%s", e->text);
}

void tp_writer_meta(tp_writer *W, const char *key, const char *value)
{
    if (!tp_writer_ok(W)) return;
    errno = 0; /* jansson does not say why it failed; malloc sets errno */
    if (!key)
        tp__writer_failf(W, TP_E_VALUE, "NULL was given in place of the key of metadata");
    else if (W->numpy)
        tp__writer_failf(W, TP_E_VALUE,
                         "NumPy's files hold no metadata like '%.200s'; add a tensor, or write "
                         "safetensors with tp_writer_new",
                         key);
    else if (strcmp(key, TP_SUM_HEADER) == 0 || strcmp(key, TP_SUM_TENSORS) == 0)
        tp__writer_failf(W, TP_E_VALUE,
                         "metadata '%s' is a checksum, which the writer itself makes", key);
    else if (json_object_get(W->meta, key))
        tp__writer_failf(W, TP_E_VALUE, "metadata '%.200s' is given twice", key);
    else if (!value ||
             (json_object_set_new(W->meta, key, json_string(value)) != 0 && errno == ENOMEM))
        tp__writer_no_memory(W);
    else if (!json_object_get(W->meta, key))
        tp__writer_failf(W, TP_E_VALUE, "metadata '%.200s' is not UTF-8 text", key);
}

void tp_writer_meta_int(tp_writer *W, const char *key, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    tp_writer_meta(W, key, text);
}

/* Writes JSON with the fewest digits, 15 to 17, that read back to the same bits. */
void tp_writer_meta_num(tp_writer *W, const char *key, double value)
{
    if (!isfinite(value)) {
        tp__writer_failf(W, TP_E_VALUE, "metadata '%.200s' is not a finite number",
                         key ? key : "(NULL)");
        return;
    }
    void *locale = tp_c_locale_begin();
    json_t *j = json_real(value);
    bool same = false; /* false if out of memory */
    for (size_t digits = 15; digits <= 17 && !same; digits++) {
        char *text = json_dumps(j, JSON_ENCODE_ANY | JSON_REAL_PRECISION(digits));
        json_t *back = text ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
        same = back && json_real_value(back) == value;
        if (same) tp_writer_meta(W, key, text);
        json_decref(back);
        free(text);
    }
    json_decref(j);
    tp_c_locale_end(locale);
    if (!same) tp__writer_no_memory(W);
}

static bool check(tp_writer *W, const char *name, const tp_shape *s, tp_dtype dt, const void *host)
{
    int64_t numel;
    size_t bytes;
    errno = 0;
    json_t *text = json_string(name);
    if (!text && errno == ENOMEM)
        tp__writer_no_memory(W);
    else if (!text || strcmp(name, "__metadata__") == 0)
        tp__writer_failf(W, TP_E_VALUE,
                         "'%.200s' cannot be the name of a tensor; use other UTF-8 text", name);
    else if ((unsigned)dt >= TP_NDTYPES)
        tp__writer_failf(W, TP_E_DTYPE, "tensor '%.200s' has no valid dtype", name);
    else if (!tp__numel(s, &numel) || !tp__size_mul((size_t)numel, tp_dtype_size(dt), &bytes))
        tp__writer_failf(W, TP_E_SHAPE, "tensor '%.200s' has no valid shape", name);
    else if (!host && numel > 0)
        tp__writer_failf(W, TP_E_VALUE, "tensor '%.200s' has no data", name);
    json_decref(text);
    return tp_writer_ok(W);
}

/* Adds an item; NULL with W failed. */
static tp_item *add(tp_writer *W, const char *name, const tp_view *v)
{
    if (!tp_reserve(&W->items, &W->cap, (size_t)W->n, 1, sizeof *W->items)) {
        tp__writer_no_memory(W);
        return NULL;
    }
    tp_item *t = &W->items[W->n];
    *t = (tp_item){ .name = strdup(name), .view = *v, .bytes = tp__view_bytes(v), .order = W->n };
    t->whole = (tp_owned){ .bytes = t->bytes, .data = v->data };
    if (!t->name) {
        tp__writer_no_memory(W);
        return NULL;
    }
    W->n++;
    return t;
}

void tp_writer_add(tp_writer *W, const char *name, tp_dtype dt, tp_shape s, const void *host,
                   bool copy)
{
    if (!tp_writer_ok(W) || !check(W, name, &s, dt, host)) return;
    const tp_view v = tp__view(dt, &s, (void *)host);
    tp_item *t = add(W, name, &v);
    if (!t || !copy || t->bytes == 0) return;
    t->own = malloc(t->bytes);
    if (!t->own)
        tp__writer_no_memory(W);
    else
        t->whole.data = memcpy(t->own, host, t->bytes);
}

void tp__writer_add_device(tp_writer *W, const char *name, tp_device *D, const tp_view *v)
{
    const tp_shape s = tp__view_shape(v);
    if (D->dry)
        tp__writer_failf(W, TP_E_STATE, "'%.200s' lives on a dry device, which holds no values",
                         name);
    if (!tp_writer_ok(W) || !check(W, name, &s, v->dtype, v->data)) return;
    tp_item *t = add(W, name, v);
    if (t && D->be->kind != TP_CPU) t->whole.dev = D; /* CPU memory is host memory */
}

void tp__writer_add_stretches(tp_writer *W, const char *name, tp_dtype dt, tp_shape s,
                              const tp_owned *at, int n)
{
    if (!tp_writer_ok(W) || !check(W, name, &s, dt, at)) return;
    const tp_view v = tp__view(dt, &s, NULL);
    const size_t size = tp_dtype_size(dt);
    size_t left = tp__view_bytes(&v);
    bool fit = true;
    for (int i = 0; fit && i < n; i++) {
        fit = at[i].owner >= 0 && at[i].bytes % size == 0 && at[i].bytes <= left;
        left -= at[i].bytes;
    }
    if (!fit || left > 0) {
        tp__writer_failf(W, TP_E_VALUE, "the stretches of tensor '%.200s' do not fill it", name);
        return;
    }
    tp_item *t = add(W, name, &v);
    if (!t || n == 0) return;
    t->parts = malloc((size_t)n * sizeof *at);
    t->n = n;
    if (!t->parts)
        tp__writer_no_memory(W);
    else
        memcpy(t->parts, at, (size_t)n * sizeof *at);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The first name that appears twice, NULL: none. */
static const char *twice(const char **names, int n)
{
    if (n > 0) qsort(names, (size_t)n, sizeof *names, by_name);
    for (int i = 1; i < n; i++)
        if (strcmp(names[i - 1], names[i]) == 0) return names[i];
    return NULL;
}

bool tp__writer_arrays(tp_writer *W)
{
    const char **names = malloc(((size_t)W->n + 1) * sizeof *names);
    if (!names) {
        tp__writer_no_memory(W);
        return false;
    }
    for (int i = 0; i < W->n; i++) {
        names[i] = W->items[i].name;
        if (strlen(names[i]) > 1000)
            tp__writer_failf(W, TP_E_VALUE, "the name '%.60s...' has more than 1000 bytes",
                             names[i]);
    }
    const char *again = twice(names, W->n);
    if (again) tp__writer_failf(W, TP_E_VALUE, "tensor '%.200s' is given twice", again);
    free(names);
    if (tp_ends_in(W->path, ".npy") && W->n != 1)
        tp__writer_failf(W, TP_E_VALUE,
                         "a .npy holds one tensor, not %d; give a path that ends in .npz", W->n);
    return tp_writer_ok(W);
}

/* ---- the header ---- */

static int by_place(const void *pa, const void *pb)
{
    const tp_item *a = pa, *b = pb;
    const size_t ea = tp_dtype_size(a->view.dtype), eb = tp_dtype_size(b->view.dtype);
    return ea != eb ? (ea < eb ? 1 : -1) : a->order - b->order;
}

void tp__writer_place(tp_writer *W)
{
    size_t at = 0;
    if (W->n) qsort(W->items, (size_t)W->n, sizeof *W->items, by_place);
    for (int i = 0; i < W->n; i++) {
        W->items[i].begin = at;
        at += W->items[i].bytes;
    }
}

/* NULL without memory. */
static json_t *describe(const tp_item *t)
{
    json_t *shape = json_array();
    bool ok = shape != NULL;
    for (int i = 0; ok && i < t->view.ndim; i++)
        ok = json_array_append_new(shape, json_integer(t->view.dim[i])) == 0;
    if (!ok) {
        json_decref(shape);
        return NULL;
    }
    const json_int_t begin = (json_int_t)t->begin, bytes = (json_int_t)t->bytes;
    return json_pack("{s:s, s:o, s:[I,I]}", "dtype", tp__stored_as(t->view.dtype)->name, "shape",
                     shape, "data_offsets", begin, begin + bytes);
}

/* The metadata after checksums whose digits are still 0. NULL without memory. */
static json_t *describe_all(const tp_writer *W)
{
    const size_t digits = TP_SUM_DIGITS * (size_t)W->n;
    char *zeros = malloc(digits + TP_SUM_DIGITS);
    if (!zeros) return NULL;
    memset(zeros, '0', digits + TP_SUM_DIGITS);
    json_t *meta = json_object();
    if (json_object_set_new(meta, TP_SUM_HEADER, json_stringn(zeros, TP_SUM_DIGITS)) != 0 ||
        json_object_set_new(meta, TP_SUM_TENSORS, json_stringn(zeros, digits)) != 0 ||
        json_object_update(meta, W->meta) != 0) {
        json_decref(meta);
        meta = NULL;
    }
    free(zeros);
    return meta;
}

char *tp__writer_header(tp_writer *W)
{
    errno = 0; /* without memory jansson may drop characters and continue; malloc sets errno */
    json_t *root = json_object();
    if (json_object_set_new(root, "__metadata__", describe_all(W)) != 0) tp__writer_no_memory(W);
    for (int i = 0; i < W->n; i++) {
        const tp_item *t = &W->items[i];
        if (json_object_get(root, t->name))
            tp__writer_failf(W, TP_E_VALUE, "tensor '%.200s' is given twice", t->name);
        else if (json_object_set_new(root, t->name, describe(t)) != 0)
            tp__writer_no_memory(W);
    }
    char *text = tp_writer_ok(W) ? json_dumps(root, JSON_COMPACT) : NULL;
    if (!text || errno == ENOMEM) tp__writer_no_memory(W);
    json_decref(root);
    if (tp_writer_ok(W) && strlen(text) > TP_FILE_HEADER_MAX - 8)
        tp__writer_failf(W, TP_E_VALUE, "its header would exceed %d bytes; write several files",
                         TP_FILE_HEADER_MAX);
    return text;
}
