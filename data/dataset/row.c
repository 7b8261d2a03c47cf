/* row.c - what a caller's function asks of a row: one value, many, a text, a class. The first
 * question that cannot be answered fails the row; the others then get zeros. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/dataset.h"

static bool fail(tp_row *r, tp_example_state state, const char *format, va_list args)
{
    if (r->state != TP_EXAMPLE_MADE) return false;
    r->state = state;
    vsnprintf(r->why, sizeof r->why, format, args);
    return false;
}

bool tp_row_fail(tp_row *r, const char *format, ...)
{
    va_list args;
    if (!r || !format) return false;
    va_start(args, format);
    fail(r, TP_EXAMPLE_BAD, format, args);
    va_end(args);
    return false;
}

bool tp__row_broken(tp_row *r, tp_example_state state, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fail(r, state, format, args);
    va_end(args);
    return false;
}

/* Can r still be asked for this field? */
static bool asks(tp_row *r, const char *field)
{
    if (!r || r->state != TP_EXAMPLE_MADE) return false;
    return field || tp__row_broken(r, TP_EXAMPLE_FAILED, "NULL was given in place of a field");
}

/* ---- storing values ---- */

static bool too_large(tp_row *r, const char *what, double x, tp_dtype dt)
{
    return tp_row_fail(r, "%s has %.17g, which does not fit into %s", what, x, tp_dtype_name(dt));
}

bool tp__row_store_int(tp_row *r, const char *what, tp_dtype dt, void *to, int64_t i, int64_t x)
{
    switch (dt) {
    case TP_F32: ((float *)to)[i] = (float)x; return true;
    case TP_F64: ((double *)to)[i] = (double)x; return true;
    case TP_I64: ((int64_t *)to)[i] = x; return true;
    case TP_I32:
        ((int32_t *)to)[i] = (int32_t)x;
        return (x >= INT32_MIN && x <= INT32_MAX) || too_large(r, what, (double)x, dt);
    default:
        ((uint8_t *)to)[i] = (uint8_t)x;
        return (x >= 0 && x <= UINT8_MAX) || too_large(r, what, (double)x, dt);
    }
}

bool tp__row_store(tp_row *r, const char *what, tp_dtype dt, void *to, int64_t i, double x)
{
    if (dt == TP_F64) {
        ((double *)to)[i] = x;
        return true;
    }
    if (dt == TP_F32) {
        ((float *)to)[i] = (float)x;
        return !isfinite(x) || isfinite((float)x) || too_large(r, what, x, dt);
    }
    if (tp__is_int64(x)) return tp__row_store_int(r, what, dt, to, i, (int64_t)x);
    if (x == trunc(x)) return too_large(r, what, x, dt);
    return tp_row_fail(r, "%s has %.17g, which is not an integer; read it as f32 or f64", what, x);
}

/* ---- questions ---- */

bool tp_row_read(tp_row *r, const char *field, int64_t n, tp_dtype dt, void *to)
{
    if (!asks(r, field)) return false;
    if (!to || n < 0 || dt < 0 || dt >= TP_NDTYPES || dt == TP_BF16)
        return tp__row_broken(
            r, TP_EXAMPLE_FAILED, "field '%s': %lld values of dtype %s cannot be read%s", field,
            (long long)n, dt >= 0 && dt < TP_NDTYPES ? tp_dtype_name(dt) : "unknown",
            dt == TP_BF16 ? "; read f32, which a bf16 tape converts" : "");
    return r->X->kind->read(r, field, n, dt, to);
}

double tp_row_real(tp_row *r, const char *field)
{
    double x = 0;
    return tp_row_read(r, field, 1, TP_F64, &x) ? x : 0;
}

int64_t tp_row_int(tp_row *r, const char *field)
{
    int64_t x = 0;
    return tp_row_read(r, field, 1, TP_I64, &x) ? x : 0;
}

const char *tp_row_text(tp_row *r, const char *field)
{
    const char *text = asks(r, field) ? r->X->kind->text(r, field) : NULL;
    return text ? text : "";
}

bool tp_row_is_empty(tp_row *r, const char *field)
{
    return asks(r, field) && r->X->kind->is_empty(r, field);
}

int64_t tp_row_length(tp_row *r, const char *field)
{
    const int64_t n = asks(r, field) ? r->X->kind->length(r, field) : 0;
    return n > 0 ? n : 0;
}

struct json_t *tp_row_json(tp_row *r)
{
    return r ? r->json : NULL;
}

/* ---- classes ---- */

static const tp_classes *classes_of(const tp_dataset *X, const char *field)
{
    for (size_t i = 0; tp_dataset_ok(X) && field && i < X->nclasses; i++)
        if (strcmp(X->classes[i].field, field) == 0) return &X->classes[i];
    return NULL;
}

int32_t tp_row_label(tp_row *r, const char *field)
{
    const tp_classes *K = asks(r, field) ? classes_of(r->X, field) : NULL;
    if (K) return K->label[r->number];
    if (r)
        tp__row_broken(r, TP_EXAMPLE_FAILED,
                       "field '%s' has no classes; call tp_dataset_classes before the loader is "
                       "made",
                       field ? field : "");
    return 0;
}

const char *tp_dataset_class(const tp_dataset *X, const char *field, int32_t class_number)
{
    const tp_classes *K = classes_of(X, field);
    return K && class_number >= 0 && class_number < K->n ? K->name[class_number] : NULL;
}

const int32_t *tp_dataset_labels(const tp_dataset *X, const char *field)
{
    const tp_classes *K = classes_of(X, field);
    return K ? K->label : NULL;
}
