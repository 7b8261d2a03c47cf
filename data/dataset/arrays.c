/* arrays.c - rows of arrays: those of the caller, or of a file of tensors, which are held in memory
 * or, if they are large, read row by row under a lock, because a file has one reader. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/dataset.h"

static bool load(tp_row *r)
{
    (void)r;
    return true;
}

static void unload(tp_row *r)
{
    (void)r;
}

/* NULL: r has failed. */
static const tp_array *array_of(tp_row *r, const char *field)
{
    const tp_dataset *X = r->X;
    const int at = tp__field_at(X, field);
    if (at >= 0) return &X->array[at];
    tp__row_broken(r, TP_EXAMPLE_FAILED, "there is no array '%s'; the first is '%s'", field,
                   X->array[0].name);
    return NULL;
}

/* Reads the row's n values as they are stored, to `to`. */
static bool fetch(tp_row *r, const tp_array *A, void *to)
{
    const size_t size = tp_dtype_size(A->dtype) * (size_t)A->each;
    const unsigned char *all = A->own ? A->own : A->data;
    if (all) {
        memcpy(to, all + (size_t)r->number * size, size);
        return true;
    }
    pthread_mutex_t *lock = (pthread_mutex_t *)(uintptr_t)&r->X->lock;
    pthread_mutex_lock(lock);
    const bool done =
        tp_file_read_part(r->X->file, A->in_file, r->number * A->each, A->each, A->dtype, to);
    if (!done) tp__row_broken(r, TP_EXAMPLE_FAILED, "%s", tp_file_why(r->X->file));
    pthread_mutex_unlock(lock);
    return done;
}

/* ---- conversion ---- */

static double float_at(tp_dtype dt, const void *from, int64_t i)
{
    if (dt == TP_F32) return (double)((const float *)from)[i];
    if (dt == TP_F64) return ((const double *)from)[i];
    const uint32_t bits = (uint32_t)((const uint16_t *)from)[i] << 16; /* bf16 */
    float x;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
}

static int64_t int_at(tp_dtype dt, const void *from, int64_t i)
{
    if (dt == TP_I32) return ((const int32_t *)from)[i];
    if (dt == TP_I64) return ((const int64_t *)from)[i];
    return ((const uint8_t *)from)[i];
}

static bool convert(tp_row *r, const tp_array *A, const void *from, tp_dtype dt, void *to)
{
    char what[200];
    snprintf(what, sizeof what, "array '%.150s'", A->name);
    for (int64_t i = 0; i < A->each; i++)
        if (!(tp_is_float(A->dtype)
                  ? tp__row_store(r, what, dt, to, i, float_at(A->dtype, from, i))
                  : tp__row_store_int(r, what, dt, to, i, int_at(A->dtype, from, i))))
            return false;
    return true;
}

static bool read_values(tp_row *r, const char *field, int64_t n, tp_dtype dt, void *to)
{
    const tp_array *A = array_of(r, field);
    if (!A) return false;
    if (n != A->each)
        return tp__row_broken(r, TP_EXAMPLE_FAILED,
                              "array '%s' has %lld values for each row, %lld were asked for", field,
                              (long long)A->each, (long long)n);
    if (dt == A->dtype) return fetch(r, A, to);
    const size_t bytes = tp_dtype_size(A->dtype) * (size_t)n;
    if (!tp_reserve(&r->bytes, &r->room, 0, bytes + 1, 1))
        return tp__row_broken(r, TP_EXAMPLE_NO_MEMORY, "out of memory for %zu bytes", bytes);
    return fetch(r, A, r->bytes) && convert(r, A, r->bytes, dt, to);
}

static int64_t length(tp_row *r, const char *field)
{
    const tp_array *A = array_of(r, field);
    return A ? A->each : -1;
}

static const char *text(tp_row *r, const char *field)
{
    const tp_array *A = array_of(r, field);
    double x = 0;
    int64_t k = 0;
    if (!A) return NULL;
    if (tp_is_float(A->dtype)) {
        if (!read_values(r, field, 1, TP_F64, &x)) return NULL;
        tp_number_write(r->shown, sizeof r->shown, x, 1);
    } else {
        if (!read_values(r, field, 1, TP_I64, &k)) return NULL;
        snprintf(r->shown, sizeof r->shown, "%lld", (long long)k);
    }
    return r->shown;
}

static bool is_empty(tp_row *r, const char *field)
{
    array_of(r, field);
    return false;
}

static const tp_dataset_kind arrays = { .load = load,
                                        .unload = unload,
                                        .read = read_values,
                                        .length = length,
                                        .text = text,
                                        .is_empty = is_empty };

/* ---- sets ---- */

/* Adds an array. NULL: X has failed. */
static tp_array *add(tp_dataset *X, const char *name, tp_dtype dt, const tp_shape *s)
{
    const char *of = X->file ? X->name : "of arrays", *bad = NULL;
    if (X->why[0]) return NULL;
    if (!name)
        bad = "has no name";
    else if (tp__field_at(X, name) >= 0)
        bad = "is there twice";
    else if (dt < 0 || dt >= TP_NDTYPES)
        bad = "has no dtype";
    else if (s->ndim < 1 || s->ndim > TP_MAX_DIMS || s->dim[0] < 1)
        bad = "has no rows along a first axis";
    int64_t each = 1, all = 1;
    for (int a = 0; !bad && a < s->ndim; a++)
        if (s->dim[a] < 1 || __builtin_mul_overflow(all, s->dim[a], &all) || all > INT64_MAX / 16)
            bad = "has an axis without elements, or too many";
        else if (a > 0)
            each *= s->dim[a];
    if (bad || X->arrays == TP_MAX_FIELDS) {
        tp__dataset_fail(X, TP_E_VALUE, "dataset %s: array '%.200s' %s", of, name ? name : "",
                         bad ? bad : "is one too many: at most 64 are read; name those to read");
        return NULL;
    }
    if (X->arrays && s->dim[0] != X->count) {
        tp__dataset_fail(X, TP_E_VALUE,
                         "dataset %s: array '%.200s' has %lld rows, '%.200s' has %lld; name the "
                         "arrays that belong together",
                         of, name, (long long)s->dim[0], X->array[0].name, (long long)X->count);
        return NULL;
    }
    tp_array *A = &X->array[X->arrays];
    *A = (tp_array){ .name = strdup(name), .dtype = dt, .each = each };
    if (!A->name) {
        tp__dataset_fail(X, TP_E_MEMORY, "dataset %s: out of memory", of);
        return NULL;
    }
    X->count = s->dim[0];
    X->arrays++;
    return A;
}

tp_dataset *tp_dataset_arrays(int n, const tp_row_array array[])
{
    tp_dataset *X = tp__dataset_new(&arrays, "");
    if (!X) return &tp__no_dataset;
    if (n < 1 || !array)
        tp__dataset_fail(X, TP_E_VALUE, "dataset of arrays: %d arrays are not 1 to %d", n,
                         TP_MAX_FIELDS);
    for (int i = 0; array && i < n && !X->why[0]; i++) {
        tp_array *A = add(X, array[i].name, array[i].dtype, &array[i].shape);
        if (!A) break;
        A->data = array[i].data;
        if (!A->data)
            tp__dataset_fail(X, TP_E_STATE, "dataset of arrays: array '%.200s' has no data",
                             A->name);
    }
    return X;
}

/* ---- files ---- */

/* The dtype in which a stored tensor is kept. */
static tp_dtype dtype_of(const tp_file_tensor *t)
{
    if (strcmp(t->stored, "F64") == 0) return TP_F64;
    if (strchr("FB", *t->stored) && strcmp(t->stored, "BOOL") != 0) return TP_F32; /* bf16, too */
    if (strcmp(t->stored, "U8") == 0 || strcmp(t->stored, "BOOL") == 0) return TP_U8;
    return strcmp(t->stored, "I32") == 0 ? TP_I32 : TP_I64;
}

static void add_tensor(tp_dataset *X, const tp_file_tensor *t)
{
    if (t->code != TP_OK) {
        tp__dataset_fail(X, t->code, "dataset %s: tensor '%.200s' %s", X->name, t->name, t->why);
        return;
    }
    tp_array *A = add(X, t->name, dtype_of(t), &t->shape);
    if (A) A->in_file = t;
}

/* Holds the tensors in memory if they are small. */
static void hold(tp_dataset *X, size_t memory)
{
    size_t bytes = 0;
    for (int i = 0; i < X->arrays; i++)
        bytes += tp_dtype_size(X->array[i].dtype) * (size_t)X->array[i].in_file->numel;
    for (int i = 0; i < X->arrays && bytes <= memory && !X->why[0]; i++) {
        tp_array *A = &X->array[i];
        A->own = malloc(tp_dtype_size(A->dtype) * (size_t)A->in_file->numel);
        if (!A->own)
            tp__dataset_fail(X, TP_E_MEMORY, "dataset %s: out of memory for %zu bytes", X->name,
                             bytes);
        else if (!tp_file_read(X->file, A->in_file, A->dtype, A->own))
            tp__dataset_fail(X, TP_E_IO, "dataset %s", tp_file_why(X->file));
    }
}

static void open_file(tp_dataset *X, const char *path, const tp_dataset_opts *o)
{
    X->file = tp_file_open(path);
    if (!tp_file_ok(X->file)) {
        tp__dataset_fail(X, TP_E_IO, "dataset %s", tp_file_why(X->file));
        return;
    }
    for (int i = 0; i < o->fields && !X->why[0]; i++) {
        const char *name = o->field ? o->field[i] : NULL;
        const tp_file_tensor *t = name ? tp_file_find(X->file, name) : NULL;
        if (t)
            add_tensor(X, t);
        else
            tp__dataset_fail(X, TP_E_VALUE, "dataset %s: there is no tensor '%.200s' in it",
                             X->name, name ? name : "");
    }
    for (int i = 0; i < tp_file_count(X->file) && o->fields < 1 && !X->why[0]; i++)
        add_tensor(X, tp_file_at(X->file, i));
    if (X->arrays == 0) tp__dataset_fail(X, TP_E_IO, "dataset %s: has no tensors", X->name);
    if (!X->why[0]) hold(X, o->memory ? o->memory : (size_t)64 << 20);
}

tp_dataset *tp_dataset_file(const char *path, const tp_dataset_opts *o)
{
    static const tp_dataset_opts defaults = { 0 };
    tp_dataset *X = tp__dataset_new(&arrays, path);
    if (!X) return &tp__no_dataset;
    if (!X->why[0]) open_file(X, path, o ? o : &defaults);
    return X;
}
