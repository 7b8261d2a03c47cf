/* cast.c - conversion between all dtypes: one pass, bound by memory except from floats to i64.
 *
 * Casts to integers drop fractions, clamp values to the range, and turn NaN into 0. Values become
 * bf16 through f32. Rounding twice would not round to nearest, so values that f32 cannot represent
 * are rounded to odd first: to the neighbour whose last bit is 1, which never lies halfway between
 * two bf16. */
#include "cpu/kit/vmath.h"
#include "tensor/bf16.h"
#include "tensor/geometry/elementwise.h"
#include "tensor/kernel.h"

#define GRAIN (4 * TP_BLOCK)

/* ---- one element ---- */

/* Truncates an inexact result towards 0 and sets its last bit. */
TP_INLINE float odd_of_f64(double x)
{
    const float near = (float)x;
    const double back = (double)near;
    const uint32_t bits = tp__float_bits(near) - (fabs(back) > fabs(x) ? 1u : 0u);
    return back == x ? near : tp__bits_float(bits | 1u);
}

/* The bits that double may lack become one odd bit. */
TP_INLINE float odd_of_i64(int64_t x)
{
    const int64_t low = 0x7ff, few = (x & ~low) | ((x & low) != 0 ? low + 1 : 0);
    const bool exact = x >= -(INT64_C(1) << 53) && x <= INT64_C(1) << 53;
    return odd_of_f64((double)(exact ? x : few));
}

#define CLAMPED(x, lo, hi) ((x) != (x) ? 0 : (x) < (lo) ? (lo) : (x) > (hi) ? (hi) : (x))

/* The largest float below 2^31 or 2^63 is not the largest integer. */
TP_INLINE int32_t i32_of_f32(float x)
{
    const int32_t v = (int32_t)CLAMPED(x, -0x1p31f, 0x1.fffffep30f);
    return x >= 0x1p31f ? INT32_MAX : v;
}
TP_INLINE int64_t i64_of_f32(float x)
{
    const int64_t v = (int64_t)CLAMPED(x, -0x1p63f, 0x1.fffffep62f);
    return x >= 0x1p63f ? INT64_MAX : v;
}
TP_INLINE int64_t i64_of_f64(double x)
{
    const int64_t v = (int64_t)CLAMPED(x, -0x1p63, 0x1.fffffffffffffp62);
    return x >= 0x1p63 ? INT64_MAX : v;
}
TP_INLINE int64_t within(int64_t x, int64_t lo, int64_t hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

/* ---- arrays ---- */

#define CAST(name, from, to, value)                                                                \
    static void name(const void *px, void *py, int64_t n)                                          \
    {                                                                                              \
        const from *restrict in = px;                                                              \
        to *restrict out = py;                                                                     \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const from x = in[i];                                                                  \
            out[i] = (to)(value);                                                                  \
        }                                                                                          \
    }

CAST(f32_f32, float, float, x)
CAST(f32_bf16, float, uint16_t, tp__to_bf16(x))
CAST(f32_f64, float, double, x)
CAST(f32_i32, float, int32_t, i32_of_f32(x))
CAST(f32_large, float, int64_t, i64_of_f32(x))
CAST(f32_u8, float, uint8_t, (int32_t)CLAMPED(x, 0.0f, 255.0f))
CAST(f64_f32, double, float, x)
CAST(f64_bf16, double, uint16_t, tp__to_bf16(odd_of_f64(x)))
CAST(f64_i32, double, int32_t, (int32_t)CLAMPED(x, -0x1p31, 0x1.fffffffcp30))
CAST(f64_i64, double, int64_t, i64_of_f64(x))
CAST(f64_u8, double, uint8_t, (int32_t)CLAMPED(x, 0.0, 255.0))
CAST(i32_f32, int32_t, float, x)
CAST(i32_f64, int32_t, double, x)
CAST(i32_bf16, int32_t, uint16_t, tp__to_bf16(odd_of_f64((double)x)))
CAST(i32_i64, int32_t, int64_t, x)
CAST(i32_u8, int32_t, uint8_t, x<0 ? 0 : x> 255 ? 255 : x)
CAST(i64_f32, int64_t, float, x)
CAST(i64_f64, int64_t, double, x)
CAST(i64_bf16, int64_t, uint16_t, tp__to_bf16(odd_of_i64(x)))
CAST(i64_i32, int64_t, int32_t, within(x, INT32_MIN, INT32_MAX))
CAST(i64_u8, int64_t, uint8_t, within(x, 0, 255))
CAST(u8_f32, uint8_t, float, x)
CAST(u8_bf16, uint8_t, uint16_t, tp__to_bf16(x))
CAST(u8_f64, uint8_t, double, x)
CAST(u8_i32, uint8_t, int32_t, x)
CAST(u8_i64, uint8_t, int64_t, x)
CAST(bf16_f32, uint16_t, float, tp__from_bf16(x))
CAST(bf16_f64, uint16_t, double, tp__from_bf16(x))
CAST(bf16_i32, uint16_t, int32_t, i32_of_f32(tp__from_bf16(x)))
CAST(bf16_i64, uint16_t, int64_t, i64_of_f32(tp__from_bf16(x)))
CAST(bf16_u8, uint16_t, uint8_t, (int32_t)CLAMPED(tp__from_bf16(x), 0.0f, 255.0f))

/* AVX2 converts vectors only to i32, so numbers that fit take that path. */
static void f32_i64(const void *px, void *py, int64_t n)
{
    const float *restrict x = px;
    int64_t *restrict y = py;
    for (int64_t b = 0; b < n; b += TP_BLOCK) {
        const int64_t end = b + TP_BLOCK < n ? b + TP_BLOCK : n;
        int large = 0;
        for (int64_t i = b; i < end; i++) large |= !(fabsf(x[i]) < 0x1p31f);
        if (large)
            f32_large(x + b, y + b, end - b);
        else
            for (int64_t i = b; i < end; i++) y[i] = (int32_t)x[i];
    }
}

typedef void (*cast)(const void *x, void *y, int64_t n);

static const cast casts[TP_NDTYPES][TP_NDTYPES] = {
    [TP_F32] = { [TP_F32] = f32_f32,
                 [TP_BF16] = f32_bf16,
                 [TP_F64] = f32_f64,
                 [TP_I32] = f32_i32,
                 [TP_I64] = f32_i64,
                 [TP_U8] = f32_u8 },
    [TP_F64] = { [TP_F32] = f64_f32,
                 [TP_BF16] = f64_bf16,
                 [TP_I32] = f64_i32,
                 [TP_I64] = f64_i64,
                 [TP_U8] = f64_u8 },
    [TP_BF16] = { [TP_F32] = bf16_f32,
                  [TP_F64] = bf16_f64,
                  [TP_I32] = bf16_i32,
                  [TP_I64] = bf16_i64,
                  [TP_U8] = bf16_u8 },
    [TP_I32] = { [TP_F32] = i32_f32,
                 [TP_BF16] = i32_bf16,
                 [TP_F64] = i32_f64,
                 [TP_I64] = i32_i64,
                 [TP_U8] = i32_u8 },
    [TP_I64] = { [TP_F32] = i64_f32,
                 [TP_BF16] = i64_bf16,
                 [TP_F64] = i64_f64,
                 [TP_I32] = i64_i32,
                 [TP_U8] = i64_u8 },
    [TP_U8] = { [TP_F32] = u8_f32,
                [TP_BF16] = u8_bf16,
                [TP_F64] = u8_f64,
                [TP_I32] = u8_i32,
                [TP_I64] = u8_i64 },
};

/* ---- kernels ---- */

typedef struct job {
    const char *from;
    char *to;
    size_t from_size, to_size;
    cast f;
} job;

static void convert(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const job *j = ctx;
    (void)thread;
    j->f(j->from + (size_t)begin * j->from_size, j->to + (size_t)begin * j->to_size, end - begin);
}

static tp_code convert_all(const tp_call *c, const tp_view *x, const tp_view *y)
{
    const job j = { x->data, y->data, tp_dtype_size(x->dtype), tp_dtype_size(y->dtype),
                    casts[x->dtype][y->dtype] };
    if (!j.f) return TP_E_DTYPE;
    tp__parallel(c->dev, x->numel, GRAIN, convert, &j);
    return TP_OK;
}

static tp_code cast_fwd(const tp_call *c)
{
    return convert_all(c, &c->x[0], &c->y[0]);
}

static tp_code cast_bwd(const tp_call *c)
{
    return c->dx[0].data ? convert_all(c, &c->dy[0], &c->dx[0]) : TP_OK;
}

TP_CPU_KERNEL_UNTYPED(cast_fwd)
TP_CPU_KERNEL_UNTYPED(cast_bwd)
