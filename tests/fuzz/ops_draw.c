/* ops_draw.c - decodes the bytes of a program into numbers, shapes and tensors. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "ops_fuzzer.h"

#define COUNT(list) (sizeof(list) / sizeof *(list))

uint8_t ops_byte(ops_env *e)
{
    return e->at < e->end ? *e->at++ : 0;
}

bool ops_flag(ops_env *e)
{
    return ops_byte(e) & 1;
}

/* The last 16 byte values stand for rare values. */
enum { RARE = 240 };

int64_t ops_size(ops_env *e)
{
    static const int64_t small[] = { 2, 1, 3, 4, 2, 6, 8, 5, 1, 2, 3, 4, 16, 7, 9, 12 };
    static const int64_t rare[] = { 0,
                                    0,
                                    0,
                                    -1,
                                    17,
                                    33,
                                    64,
                                    100,
                                    INT32_MAX,
                                    INT64_C(1) << 31,
                                    INT64_C(1) << 32,
                                    INT64_C(1) << 62,
                                    INT64_MAX,
                                    INT64_MIN,
                                    (INT64_C(1) << 32) + 1,
                                    300 };
    const uint8_t b = ops_byte(e);
    return b < RARE ? small[b % COUNT(small)] : rare[b - RARE];
}

int64_t ops_integer(ops_env *e)
{
    static const int64_t rare[] = { INT32_MIN,
                                    INT32_MAX,
                                    INT64_MIN,
                                    INT64_MAX,
                                    INT64_MAX - 1,
                                    INT64_C(1) << 62,
                                    INT64_C(1) << 31,
                                    -(INT64_C(1) << 31) - 1,
                                    INT64_C(1) << 32,
                                    1000,
                                    -1000,
                                    63,
                                    100000,
                                    INT64_MIN / 2,
                                    INT64_C(1) << 40,
                                    32 };
    const uint8_t b = ops_byte(e);
    return b < RARE ? b % 12 - 3 : rare[b - RARE];
}

int ops_int(ops_env *e)
{
    const int64_t i = ops_integer(e);
    return i < INT32_MIN ? INT32_MIN : i > INT32_MAX ? INT32_MAX : (int)i;
}

int64_t ops_near(ops_env *e, int64_t fit)
{
    return ops_byte(e) < 232 ? fit : ops_integer(e);
}

double ops_number(ops_env *e)
{
    static const double list[] = { 0.5,  1e-5,   0.0, 1.0,  -1.0, 0.1,     2.0,      0.9,
                                   -0.5, 1e-300, NAN, 1e30, 3.0,  DBL_MAX, INFINITY, -INFINITY };
    return list[ops_byte(e) % COUNT(list)];
}

tp_shape ops_shape(ops_env *e)
{
    tp_shape s = { 0 };
    const uint8_t b = ops_byte(e);
    s.ndim = b < 250 ? b % 5 : b == 250 ? 9 : b == 251 ? -1 : b == 252 ? INT32_MAX : b - 247;
    for (int i = 0; i < s.ndim && i < TP_MAX_DIMS; i++) s.dim[i] = ops_size(e);
    return s;
}

tp_dtype ops_dtype(ops_env *e)
{
    const uint8_t b = ops_byte(e);
    return b < 128   ? e->natural
           : b < 252 ? (tp_dtype)(b % TP_NDTYPES)
                     : (tp_dtype)(b == 252 ? -1 : b - 247);
}

int ops_axis(ops_env *e)
{
    const uint8_t b = ops_byte(e);
    static const int sets[] = { TP_AXES(0, 1),   TP_AXES(0, -1),
                                TP_KEEP(-1),     TP_KEEP(TP_AXES(0, 2)),
                                TP_KEEP(TP_ALL), TP_AXES(1, 1),
                                TP_AXES(9),      TP__AXES_MARK };
    if (b >= 232 && b < 248) return sets[b % COUNT(sets)];
    return b < 200 ? b % 9 - 4 : b < 224 ? TP_ALL : ops_int(e);
}

/* ---- shapes ---- */

int64_t ops_dim(tp_shape s, int axis)
{
    if (axis < 0 && s.ndim > 0) axis += s.ndim;
    return axis >= 0 && axis < s.ndim && axis < TP_MAX_DIMS ? s.dim[axis] : 1;
}

int64_t ops_times(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a * (uint64_t)b);
}

int64_t ops_plus(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

tp_shape ops_with(tp_shape s, int axis, int64_t n)
{
    if (axis < 0) axis += s.ndim;
    if (axis >= 0 && axis < s.ndim && axis < TP_MAX_DIMS) s.dim[axis] = n;
    return s;
}

tp_shape ops_fitting(tp_shape s, uint8_t b)
{
    if (b & 1) s = ops_with(s, b >> 4 & 3, 1);
    if ((b & 6) == 2 && s.ndim > 0 && s.ndim <= TP_MAX_DIMS)
        memmove(s.dim, s.dim + 1, (size_t)--s.ndim * sizeof *s.dim);
    return s;
}

/* ---- tensors ---- */

tp_tape *ops_tape(ops_env *e)
{
    return e->no_tape ? NULL : e->w[e->world].T;
}

static double real_value(int i, uint8_t how)
{
    static const double odd[] = { 0.0,         -0.0,    NAN,      INFINITY, -INFINITY, 1e30,
                                  FLT_MIN / 8, FLT_MAX, -FLT_MAX, 1e-20,    88.8,      -104.0 };
    switch (how & 7) {
    case 6: return odd[(size_t)(i + how / 8) % COUNT(odd)];
    case 7: return 0.0;
    default: return (double)((i * 7 + how) % 23 - 11) / 8.0;
    }
}

static double whole_value(int i, uint8_t how)
{
    static const double odd[] = {
        -1.0, 0.0, 2147483647.0, -2147483648.0, 4611686018427387904.0, 3.0, -9223372036854775808.0
    };
    return (how & 7) == 7 ? odd[(size_t)(i + how / 8) % COUNT(odd)]
                          : (double)((i + how / 8) % (1 + (how & 3)));
}

static void fill(tp_dtype dt, int64_t n, uint8_t how, void *host)
{
    const tp_view v = { .data = host, .dtype = dt, .numel = n };
    for (int i = 0; i < n; i++) {
        double x = tp_is_float(dt) ? real_value(i, how) : whole_value(i, how);
        if (dt == TP_U8) x = (how & 7) == 7 ? i % 256 : (int)x & 1;
        if (dt == TP_I32 && (x > INT32_MAX || x < INT32_MIN)) x = -7.0;
        if (dt == TP_F32 && fabs(x) > (double)FLT_MAX && isfinite(x)) x = INFINITY;
        tp_st(&v, i, x);
    }
}

/* Whether the shape has few elements. */
static bool is_small(tp_shape s, int64_t *n)
{
    *n = 1;
    for (int i = 0; i < s.ndim && i < TP_MAX_DIMS; i++) {
        if (s.dim[i] > OPS_VALUES) return false;
        *n *= s.dim[i] < 0 ? 0 : s.dim[i];
        if (*n > OPS_VALUES) return false;
    }
    return true;
}

tp_tensor ops_fresh(ops_env *e, tp_dtype dt, tp_shape s, uint8_t how)
{
    static _Alignas(64) char host[OPS_VALUES * 8];
    int64_t n;
    if (!is_small(s, &n)) e->dry_only = true;
    if (e->world == OPS_REAL && dt >= 0 && dt < TP_NDTYPES) fill(dt, n, how, host);
    return tp_is_float(dt) && !(how & 128) ? tp_input(ops_tape(e), dt, s, host)
                                           : tp_from(ops_tape(e), dt, s, host);
}

static ops_pick of_slot(ops_env *e, int i)
{
    if (e->slot[i].dry_only) e->dry_only = true;
    return (ops_pick){ e->slot[i].t[e->world], tp_shape_of(e->slot[i].t[OPS_DRY]) };
}

static ops_pick of_param(ops_env *e, int i)
{
    return (ops_pick){ e->w[e->world].param[i], tp_shape_of(e->w[OPS_DRY].param[i]) };
}

static tp_dtype of_kind(const ops_env *e, ops_kind kind, uint8_t b)
{
    if (kind == OPS_MASK) return TP_U8;
    if (kind == OPS_IDS) return b & 1 ? TP_I64 : TP_I32;
    return e->natural;
}

ops_pick ops_take(ops_env *e, tp_shape want, ops_kind kind)
{
    const uint8_t b = ops_byte(e);
    if (b < OPS_SLOTS) return of_slot(e, b);
    if (b < OPS_SLOTS + OPS_PARAMS) return of_param(e, b - OPS_SLOTS);
    switch (b) {
    case 24: return (ops_pick){ TP_NONE, want };
    case 25: return (ops_pick){ { NULL, 1 }, want }; /* what a failed op returns */
    case 26: return (ops_pick){ e->w[e->world].foreign, want };
    case 27: return (ops_pick){ e->w[e->world].carried, want };
    case 28: want = ops_shape(e); break;
    default: break;
    }
    const tp_dtype dt = b == 29            ? ops_dtype(e)
                        : b > 29 && b < 40 ? (tp_dtype)(ops_byte(e) % TP_NDTYPES)
                                           : of_kind(e, kind, b);
    return (ops_pick){ ops_fresh(e, dt, want, b < 40 ? ops_byte(e) : b % 40), want };
}

tp_tensor ops_input(ops_env *e, tp_shape want)
{
    return ops_take(e, want, OPS_FLOATS).t;
}

tp_tensor ops_ids(ops_env *e, tp_shape want)
{
    return ops_take(e, want, OPS_IDS).t;
}

tp_tensor ops_maybe(ops_env *e, tp_shape want)
{
    return ops_flag(e) ? ops_input(e, want) : TP_NONE;
}

ops_pick ops_any(ops_env *e)
{
    return ops_take(e, ops_shape(e), OPS_FLOATS);
}

ops_pick ops_map(ops_env *e, int ndim)
{
    tp_shape s = { .ndim = ndim };
    for (int i = 0; i < ndim; i++) s.dim[i] = ops_size(e);
    return ops_take(e, s, OPS_FLOATS);
}
