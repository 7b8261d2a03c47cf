/* shape.c - overflow-checked sizes, views and printing them. */
#include "tensor/shape.h"

#include <math.h>

#include "tensor/bf16.h"
#include "tensor/error.h"

static const struct {
    const char *name;
    size_t size;
} dtypes[TP_NDTYPES] = {
    [TP_F32] = { "f32", 4 }, [TP_F64] = { "f64", 8 }, [TP_BF16] = { "bf16", 2 },
    [TP_I32] = { "i32", 4 }, [TP_I64] = { "i64", 8 }, [TP_U8] = { "u8", 1 },
};

static bool known(tp_dtype dt)
{
    return (unsigned)dt < TP_NDTYPES;
}
size_t tp_dtype_size(tp_dtype dt)
{
    return known(dt) ? dtypes[dt].size : 0;
}
const char *tp_dtype_name(tp_dtype dt)
{
    return known(dt) ? dtypes[dt].name : "?";
}

bool tp__numel(const tp_shape *s, int64_t *numel)
{
    if (s->ndim < 0 || s->ndim > TP_MAX_DIMS) return false;
    int64_t n = 1;
    bool empty = false;
    for (int i = 0; i < s->ndim; i++) {
        if (s->dim[i] < 0) return false;
        if (s->dim[i] == 0)
            empty = true;
        else if (__builtin_mul_overflow(n, s->dim[i], &n) || n > INT64_MAX / 16)
            return false;
    }
    *numel = empty ? 0 : n;
    return true;
}

bool tp__size_mul(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
bool tp__size_add(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

tp_view tp__view(tp_dtype dt, const tp_shape *s, void *data)
{
    tp_view v = { .data = data, .dtype = dt, .ndim = s->ndim };
    for (int i = 0; i < s->ndim; i++) v.dim[i] = s->dim[i];
    if (!tp__numel(s, &v.numel)) v.numel = 0;
    return v;
}

tp_shape tp__view_shape(const tp_view *v)
{
    tp_shape s = { .ndim = v->ndim < 0 ? 0 : v->ndim };
    for (int i = 0; i < s.ndim; i++) s.dim[i] = v->dim[i];
    return s;
}

size_t tp__view_bytes(const tp_view *v)
{
    return tp_absent(v) ? 0 : (size_t)v->numel * tp_dtype_size(v->dtype);
}

int tp__axis(int ndim, int axis)
{
    if (axis < 0) axis += ndim;
    return axis < 0 || axis >= ndim ? -1 : axis;
}

bool tp__same_shape(const tp_view *a, const tp_view *b)
{
    if (a->ndim != b->ndim) return false;
    for (int i = 0; i < a->ndim; i++)
        if (a->dim[i] != b->dim[i]) return false;
    return true;
}

bool tp__broadcasts(const tp_view *a, const tp_view *b)
{
    if (b->ndim > a->ndim) return false;
    for (int i = 0; i < b->ndim; i++) {
        const int64_t nb = b->dim[b->ndim - 1 - i], na = a->dim[a->ndim - 1 - i];
        if (nb != na && nb != 1) return false;
    }
    return true;
}

void tp__axis_split(const tp_view *v, int axis, int64_t *outer, int64_t *dim, int64_t *inner)
{
    *outer = *inner = 1;
    *dim = v->dim[axis];
    for (int i = 0; i < axis; i++) *outer *= v->dim[i];
    for (int i = axis + 1; i < v->ndim; i++) *inner *= v->dim[i];
}

void tp__print_shape(char *text, size_t size, int ndim, const int64_t *dim)
{
    tp__append(text, size, "[");
    for (int i = 0; i < ndim; i++) tp__append(text, size, i ? ",%lld" : "%lld", (long long)dim[i]);
    tp__append(text, size, "]");
}

void tp__print_view(char *text, size_t size, const tp_view *v)
{
    if (tp_absent(v)) {
        tp__append(text, size, "none");
        return;
    }
    tp__append(text, size, "%s", tp_dtype_name(v->dtype));
    tp__print_shape(text, size, v->ndim, v->dim);
}

double tp_ld(const tp_view *v, int64_t i)
{
    switch (v->dtype) {
    case TP_F32: return (double)((const float *)v->data)[i];
    case TP_F64: return ((const double *)v->data)[i];
    case TP_BF16: return (double)tp__from_bf16(((const uint16_t *)v->data)[i]);
    case TP_I32: return (double)((const int32_t *)v->data)[i];
    case TP_I64: return (double)((const int64_t *)v->data)[i];
    case TP_U8: return (double)((const uint8_t *)v->data)[i];
    default: return 0.0;
    }
}

/* Truncates x and clamps it to lo..hi; converting out-of-range values is undefined. */
static int64_t to_integer(double x, int64_t lo, int64_t hi)
{
    if (isnan(x)) return 0;
    return x >= (double)hi ? hi : x <= (double)lo ? lo : (int64_t)x;
}

void tp_st(const tp_view *v, int64_t i, double x)
{
    switch (v->dtype) {
    case TP_F32: ((float *)v->data)[i] = (float)x; break;
    case TP_F64: ((double *)v->data)[i] = x; break;
    case TP_BF16: ((uint16_t *)v->data)[i] = tp__to_bf16((float)x); break;
    case TP_I32: ((int32_t *)v->data)[i] = (int32_t)to_integer(x, INT32_MIN, INT32_MAX); break;
    case TP_I64: ((int64_t *)v->data)[i] = to_integer(x, INT64_MIN, INT64_MAX); break;
    case TP_U8: ((uint8_t *)v->data)[i] = (uint8_t)to_integer(x, 0, UINT8_MAX); break;
    default: break;
    }
}
