/* file_read.c - tensors of a safetensors file as the caller wants them: the dtypes of the format
 * and their conversion.
 *
 * Equal dtypes are copied. Floating ones convert through double, integers through int64 with a
 * range check. Stored bytes may lie at any address, so every element is loaded by memcpy. 8-bit
 * floats carry no scale here and are therefore not converted. */
#include <inttypes.h>
#include <string.h>

#include "tensor/bf16.h"
#include "tensor/file_inner.h"

static const tp_stored table[] = {
    { "F64", 8, TP_STORED_FLOAT, TP_F64 },         { "F32", 4, TP_STORED_FLOAT, TP_F32 },
    { "BF16", 2, TP_STORED_FLOAT, TP_BF16 },       { "F16", 2, TP_STORED_FLOAT, TP_NDTYPES },
    { "I64", 8, TP_STORED_INT, TP_I64 },           { "I32", 4, TP_STORED_INT, TP_I32 },
    { "I16", 2, TP_STORED_INT, TP_NDTYPES },       { "I8", 1, TP_STORED_INT, TP_NDTYPES },
    { "U64", 8, TP_STORED_INT, TP_NDTYPES },       { "U32", 4, TP_STORED_INT, TP_NDTYPES },
    { "U16", 2, TP_STORED_INT, TP_NDTYPES },       { "U8", 1, TP_STORED_INT, TP_U8 },
    { "BOOL", 1, TP_STORED_INT, TP_NDTYPES },      { "C64", 8, TP_STORED_OTHER, TP_NDTYPES },
    { "F8_E4M3", 1, TP_STORED_OTHER, TP_NDTYPES }, { "F8_E5M2", 1, TP_STORED_OTHER, TP_NDTYPES },
    { "F8_E8M0", 1, TP_STORED_OTHER, TP_NDTYPES },
};

const tp_stored *tp__stored(const char *name)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i].name, name) == 0) return &table[i];
    return NULL;
}

const tp_stored *tp__stored_as(tp_dtype dt)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].dt == dt) return &table[i];
    return NULL;
}

static float from_f16(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h >> 15) << 31, e = h >> 10 & 31u, m = h & 1023u;
    const uint32_t bits = sign | (e == 31 ? 255u : e + 112u) << 23 | m << 13;
    float f;
    if (e == 0) return (sign ? -0x1p-24f : 0x1p-24f) * (float)m;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Loads x from p as a T of the same name as a variable. */
#define LOAD(T, x)                                                                                 \
    T x;                                                                                           \
    memcpy(&x, p, sizeof x)

static double load_float(const tp_stored *s, const unsigned char *p)
{
    if (s->size == 8) {
        LOAD(double, d);
        return d;
    }
    if (s->size == 4) {
        LOAD(float, f);
        return (double)f;
    }
    LOAD(uint16_t, h);
    return (double)(s->dt == TP_BF16 ? tp__from_bf16(h) : from_f16(h));
}

/* The first letter of an integer dtype's name says how to widen it (BOOL, I*, U*). False if the
 * value is above the largest int64. */
static bool load_int(const tp_stored *s, const unsigned char *p, int64_t *out)
{
    const unsigned unused = (unsigned)(64 - 8 * s->size);
    uint64_t u = 0;
    memcpy(&u, p, s->size);
    switch (s->name[0]) {
    case 'B': *out = u != 0; return true;
    case 'I': *out = (int64_t)(u << unused) >> unused; return true;
    default: *out = (int64_t)u; return u <= INT64_MAX;
    }
}

static bool ints(tp_file *F, const tp_file_tensor *t, const tp_stored *s, const unsigned char *src,
                 int64_t first, const tp_view *to)
{
    const int64_t low = to->dtype == TP_I64 ? INT64_MIN : to->dtype == TP_I32 ? INT32_MIN : 0;
    const int64_t high = to->dtype == TP_I64   ? INT64_MAX
                         : to->dtype == TP_I32 ? INT32_MAX
                                               : UINT8_MAX;
    for (int64_t i = 0; i < to->numel; i++) {
        int64_t x;
        const bool fits = load_int(s, src + (size_t)i * s->size, &x);
        if (!fits || x < low || x > high) {
            const uint64_t size = fits && x < 0 ? 0 - (uint64_t)x : (uint64_t)x;
            tp__file_fail(F, TP_E_VALUE,
                          "element %" PRId64 " of tensor '%.200s' is %s%" PRIu64
                          ", which does not fit %s; read it as a wider dtype",
                          first + i, t->name, fits && x < 0 ? "-" : "", size,
                          tp_dtype_name(to->dtype));
            return false;
        }
        switch (to->dtype) {
        case TP_I64: ((int64_t *)to->data)[i] = x; break;
        case TP_I32: ((int32_t *)to->data)[i] = (int32_t)x; break;
        default: ((uint8_t *)to->data)[i] = (uint8_t)x; break;
        }
    }
    return true;
}

bool tp_file_read_part(tp_file *F, const tp_file_tensor *t, int64_t first, int64_t n, tp_dtype dt,
                       void *host)
{
    if (!tp_file_ok(F)) return false;
    if (!t) {
        tp__file_fail(F, TP_E_VALUE,
                      "a tensor was read that the file does not have; "
                      "see tp_file_find");
        return false;
    }
    if (first < 0 || n < 0 || first > t->numel - n) {
        tp__file_fail(F, TP_E_VALUE,
                      "%lld elements from %lld on of tensor '%.200s' were read, but it has %lld",
                      (long long)n, (long long)first, t->name, (long long)t->numel);
        return false;
    }
    const tp_stored *s = tp__stored(t->stored);
    const unsigned char *src = (const unsigned char *)tp_file_data(F, t) + (size_t)first * s->size;
    const tp_view to = { .data = host, .dtype = dt, .numel = n };
    if (s->dt == dt) {
        if (n) memcpy(host, src, (size_t)n * s->size);
        return true;
    }
    if (s->kind == TP_STORED_FLOAT && tp_is_float(dt)) {
        for (int64_t i = 0; i < n; i++) tp_st(&to, i, load_float(s, src + (size_t)i * s->size));
        return true;
    }
    if (s->kind == TP_STORED_INT && (dt == TP_I64 || dt == TP_I32 || dt == TP_U8))
        return ints(F, t, s, src, first, &to);
    tp__file_fail(F, TP_E_DTYPE, "tensor '%.200s' is stored as %s and cannot be read as %s; %s",
                  t->name, s->name, tp_dtype_name(dt),
                  s->kind == TP_STORED_FLOAT ? "read it as f32, f64 or bf16"
                  : s->kind == TP_STORED_INT ? "read it as i64, i32 or u8"
                                             : "take its bytes with tp_file_data");
    return false;
}

bool tp_file_read(tp_file *F, const tp_file_tensor *t, tp_dtype dt, void *host)
{
    return tp_file_read_part(F, t, 0, t ? t->numel : 0, dt, host);
}
