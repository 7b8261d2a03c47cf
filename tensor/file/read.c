/* read.c - reads tensors of a file in the dtype that the caller wants.
 *
 * Equal dtypes are copied. Floating-point dtypes convert through double, integers through int64
 * with a range check. Every element is loaded by memcpy, since data need not be aligned. 8-bit
 * floats carry no scale here and are therefore not converted. */
#include <inttypes.h>
#include <string.h>

#include "tensor/bf16.h"
#include "tensor/file/open.h"

enum { PIECE = 4096 }; /* elements converted at a time */

static float from_f16(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h >> 15) << 31, e = h >> 10 & 31u, m = h & 1023u;
    const uint32_t bits = sign | (e == 31 ? 255u : e + 112u) << 23 | m << 13;
    float f;
    if (e == 0) return (sign ? -0x1p-24f : 0x1p-24f) * (float)m;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Declares x of type T and loads it from p. */
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

/* The first letter of an integer dtype's name determines how to widen it (BOOL, I*, U*). False if
 * the value is above the largest int64. */
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

/* Converts the stored integers src into `to`, the elements from `first` on. */
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

static bool convert(tp_file *F, const tp_file_tensor *t, const tp_stored *s, int64_t first,
                    int64_t n, tp_dtype dt, void *host)
{
    unsigned char src[PIECE * sizeof(double)];
    for (int64_t at = 0; at < n; at += PIECE) {
        const int64_t m = n - at < PIECE ? n - at : PIECE;
        const tp_view to = { .data = (char *)host + (size_t)at * tp_dtype_size(dt),
                             .dtype = dt,
                             .numel = m };
        if (!tp__file_bytes(F, t, (size_t)(first + at) * s->size, (size_t)m * s->size, src))
            return false;
        for (int64_t i = 0; s->kind == TP_STORED_FLOAT && i < m; i++)
            tp_st(&to, i, load_float(s, src + (size_t)i * s->size));
        if (s->kind == TP_STORED_INT && !ints(F, t, s, src, first + at, &to)) return false;
    }
    return true;
}

bool tp_file_read_part(tp_file *F, const tp_file_tensor *t, int64_t first, int64_t n, tp_dtype dt,
                       void *host)
{
    if (!tp_file_ok(F)) return false;
    if (!t) {
        tp__file_fail(F, TP_E_VALUE, TP_FILE_ABSENT);
        return false;
    }
    if (!tp__file_readable(F, t)) return false;
    if (first < 0 || n < 0 || first > t->numel - n) {
        tp__file_fail(F, TP_E_VALUE,
                      "%lld elements from %lld on of tensor '%.200s' were read, but it has %lld",
                      (long long)n, (long long)first, t->name, (long long)t->numel);
        return false;
    }
    const tp_stored *s = tp__stored(t->stored);
    if (s->dt == dt)
        return tp__file_bytes(F, t, (size_t)first * s->size, (size_t)n * s->size, host);
    if ((s->kind == TP_STORED_FLOAT && tp_is_float(dt)) ||
        (s->kind == TP_STORED_INT && (dt == TP_I64 || dt == TP_I32 || dt == TP_U8)))
        return convert(F, t, s, first, n, dt, host);
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
