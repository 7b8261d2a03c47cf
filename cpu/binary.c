/* binary.c - functions of two operands that broadcast into a common shape: memory-bound loops over
 * rows (meet.h). Functions: tensor/geometry/functions.h.
 *
 *     y = f(a, b);   da = dy df/da,   db = dy df/db,   each summed over the y that it meets
 *
 * The sums are folded (fold.h) without a temporary of y's size; terms other than an array or a
 * product of two are computed in pieces. If da or db equals dy, the tape passes dy on. A number is
 * a view of one element. */
#include "cpu/kit/activation.h"
#include "cpu/kit/fold.h"
#include "cpu/kit/real.h"
#include "tensor/geometry/elementwise.h"
#include "tensor/geometry/functions.h"
#include "tensor/geometry/meet.h"
#include "tensor/kernel.h"

#define GRAIN (4 * TP_BLOCK)

/* ---- the operands of a call ---- */

typedef struct pair {
    const real *a, *b, *dy;
    tp_meet m;
} pair;

/* `number` stores an operand that is a number. */
static pair operands(const tp_call *c, real *number)
{
    const tp_view *const x[] = { &c->x[0], &c->x[1] };
    *number = (real)((const tp_binary_attr *)c->attr)->number;
    return (pair){ tp_absent(x[0]) ? number : x[0]->data, tp_absent(x[1]) ? number : x[1]->data,
                   tp_is_backward(c) ? c->dy[0].data : NULL, tp__meet(&c->y[0], 2, x) };
}

typedef real (*value)(real a, real b);
typedef real (*slope)(real dy, real a, real b);

/* y = f(a, b) for elements [i, end). Inlined with a known f, so that the loops vectorise. */
TP_INLINE void map(value f, const tp_call *c, int64_t i, int64_t end)
{
    real number;
    const pair p = operands(c, &number);
    for (tp_run r = tp__run_from(&p.m, i, end); r.n > 0; tp__run_next(&p.m, &r, end)) {
        const real *a = p.a + r.x[0], *b = p.b + r.x[1];
        real *restrict y = (real *)c->y[0].data + r.y;
        if (p.m.one[1]) {
            const real k = b[0];
            for (int64_t j = 0; j < r.n; j++) y[j] = f(a[j], k);
        } else if (p.m.one[0]) {
            const real k = a[0];
            for (int64_t j = 0; j < r.n; j++) y[j] = f(k, b[j]);
        } else {
            for (int64_t j = 0; j < r.n; j++) y[j] = f(a[j], b[j]);
        }
    }
}

/* out = g(dy, a, b) for elements [i, end) of dy. */
TP_INLINE void terms(slope g, const pair *p, int64_t i, int64_t end, real *to)
{
    for (tp_run r = tp__run_from(&p->m, i, end); r.n > 0; tp__run_next(&p->m, &r, end)) {
        const real *a = p->a + r.x[0], *b = p->b + r.x[1], *dy = p->dy + r.y;
        real *restrict out = to + (r.y - i);
        if (p->m.one[1]) {
            const real k = b[0];
            for (int64_t j = 0; j < r.n; j++) out[j] = g(dy[j], a[j], k);
        } else if (p->m.one[0]) {
            const real k = a[0];
            for (int64_t j = 0; j < r.n; j++) out[j] = g(dy[j], k, b[j]);
        } else {
            for (int64_t j = 0; j < r.n; j++) out[j] = g(dy[j], a[j], b[j]);
        }
    }
}

/* ---- forward ---- */

static tp_code each(const tp_call *c, tp_call_body body)
{
    tp__for(c, c->y[0].numel, GRAIN, body);
    return TP_OK;
}

#define VALUE(op, doc, cases, value, ...)                                                          \
    TP_INLINE real op##_value(real a, real b)                                                      \
    {                                                                                              \
        return value;                                                                              \
    }                                                                                              \
    static void op##_range(const tp_call *c, int64_t begin, int64_t end)                           \
    {                                                                                              \
        map(op##_value, c, begin, end);                                                            \
    }
#define FORWARD(op, ...)                                                                           \
    VALUE(op, __VA_ARGS__)                                                                         \
    static tp_code op##_fwd(const tp_call *c)                                                      \
    {                                                                                              \
        return each(c, op##_range);                                                                \
    }                                                                                              \
    TP_CPU_KERNEL(op##_fwd)

TP_BINARY_SUMS(FORWARD)
TP_BINARY_PRODUCTS(FORWARD)
TP_BINARY_POWERS(VALUE)
TP_BINARY(FORWARD)

/* ---- backward ---- */

/* An operand that is not repeated has as many elements as y. */
static bool whole(const tp_call *c, int i)
{
    return c->x[i].numel == c->dy[0].numel;
}

/* Gradient of operand i: dy times a slope, summed if i is repeated. `direct`: all its terms. */
static tp_code gradient(const tp_call *c, int i, tp_call_body direct, fold_terms computed)
{
    real number;
    if (!c->dx[i].data) return TP_OK;
    if (whole(c, i)) {
        tp__for(c, c->dy[0].numel, GRAIN, direct);
    } else {
        const pair p = operands(c, &number);
        fold_computed(c, &c->dy[0], &c->dx[i], computed, &p, c->dx[i].data);
    }
    return TP_OK;
}

#define GRADIENT(name, slope, i)                                                                   \
    TP_INLINE real name##_term(real dy, real a, real b)                                            \
    {                                                                                              \
        (void)a, (void)b;                                                                          \
        return slope;                                                                              \
    }                                                                                              \
    static void name##_direct(const tp_call *c, int64_t begin, int64_t end)                        \
    {                                                                                              \
        real number;                                                                               \
        const pair p = operands(c, &number);                                                       \
        terms(name##_term, &p, begin, end, (real *)c->dx[i].data + begin);                         \
    }                                                                                              \
    static void name##_terms(const void *ctx, int64_t begin, int64_t end, real *out)               \
    {                                                                                              \
        terms(name##_term, ctx, begin, end, out);                                                  \
    }                                                                                              \
    static tp_code name(const tp_call *c)                                                          \
    {                                                                                              \
        return gradient(c, i, name##_direct, name##_terms);                                        \
    }
#define GRADIENTS(op, doc, cases, value, by_a, by_b)                                               \
    GRADIENT(op##_to_a, by_a, 0)                                                                   \
    GRADIENT(op##_to_b, by_b, 1)
#define BACKWARD(op, ...)                                                                          \
    GRADIENTS(op, __VA_ARGS__)                                                                     \
    static tp_code op##_bwd(const tp_call *c)                                                      \
    {                                                                                              \
        op##_to_a(c);                                                                              \
        return op##_to_b(c);                                                                       \
    }                                                                                              \
    TP_CPU_KERNEL(op##_bwd)

TP_BINARY_PRODUCTS(GRADIENTS)
TP_BINARY_POWERS(GRADIENTS)
TP_BINARY(BACKWARD)

/* dx = dy for an operand whose gradient the tape does not pass on: it is repeated or lacks axes. */
static void take_sum(const tp_call *c, int i)
{
    if (c->dx[i].data) fold(c, &c->dy[0], &c->dx[i], c->dy[0].data, NULL, c->dx[i].data);
}

static tp_code add_bwd(const tp_call *c)
{
    take_sum(c, 0);
    take_sum(c, 1);
    return TP_OK;
}

static void negate(const tp_call *c, int64_t begin, int64_t end)
{
    const real *from = whole(c, 1) ? c->dy[0].data : c->dx[1].data;
    real *db = c->dx[1].data;
    for (int64_t i = begin; i < end; i++) db[i] = -from[i];
}

static tp_code sub_bwd(const tp_call *c)
{
    take_sum(c, 0);
    if (c->dx[1].data) {
        if (!whole(c, 1)) take_sum(c, 1);
        tp__for(c, c->dx[1].numel, GRAIN, negate);
    }
    return TP_OK;
}

/* Sums of products of dy with a whole operand do not compute terms. */
static bool fold_product(const tp_call *c, int i)
{
    if (!c->dx[i].data || whole(c, i) || tp_absent(&c->x[1 - i]) || !whole(c, 1 - i)) return false;
    fold(c, &c->dy[0], &c->dx[i], c->dy[0].data, c->x[1 - i].data, c->dx[i].data);
    return true;
}

static tp_code mul_bwd(const tp_call *c)
{
    if (!fold_product(c, 0)) mul_to_a(c);
    if (!fold_product(c, 1)) mul_to_b(c);
    return TP_OK;
}

static void over_square(const tp_call *c, int64_t begin, int64_t end)
{
    const real *b = c->x[1].data;
    real *db = c->dx[1].data;
    for (int64_t i = begin; i < end; i++) db[i] = -db[i] / b[i] / b[i];
}

static tp_code div_bwd(const tp_call *c)
{
    div_to_a(c);
    if (fold_product(c, 1))
        tp__for(c, c->x[1].numel, GRAIN, over_square);
    else
        div_to_b(c);
    return TP_OK;
}

/* ---- powers with a number as exponent: a^k and dy k a^(k-1) ---- */

/* clang-format off */
TP_INLINE real power_0(real a)          { (void)a; return 1; }
TP_INLINE real power_1(real a)          { return a; }
TP_INLINE real power_2(real a)          { return a * a; }
TP_INLINE real power_3(real a)          { return a * a * a; }
TP_INLINE real power_of_minus_1(real a) { return 1 / a; }
TP_INLINE real power_of_minus_2(real a) { return 1 / (a * a); }
TP_INLINE real power_of_half(real a)    { return a == -INFINITY ? (real)INFINITY : r_sqrt(a + 0); }
TP_INLINE real power_of_minus_half(real a) { return a == -INFINITY ? 0 : 1 / r_sqrt(a + 0); }
/* clang-format on */

#define POWERS(X)                                                                                  \
    X(0, power_0)                                                                                  \
    X(1, power_1)                                                                                  \
    X(2, power_2)                                                                                  \
    X(3, power_3)                                                                                  \
    X(-1, power_of_minus_1)                                                                        \
    X(-2, power_of_minus_2)                                                                        \
    X(0.5, power_of_half)                                                                          \
    X(-0.5, power_of_minus_half)

TP_INLINE void powers(real (*f)(real), const tp_call *c, int64_t begin, int64_t end)
{
    const real *restrict a = c->x[0].data;
    real *restrict y = c->y[0].data;
    for (int64_t i = begin; i < end; i++) y[i] = f(a[i]);
}

TP_INLINE void power_slopes(real (*f)(real), const tp_call *c, int64_t begin, int64_t end)
{
    const real k = (real)((const tp_binary_attr *)c->attr)->number;
    const real *restrict a = c->x[0].data, *restrict dy = c->dy[0].data;
    real *restrict da = c->dx[0].data;
    for (int64_t i = begin; i < end; i++) da[i] = dy[i] * (k * f(a[i]));
}

#define POWER(k, f)                                                                                \
    static void f##_map(const tp_call *c, int64_t begin, int64_t end)                              \
    {                                                                                              \
        powers(f, c, begin, end);                                                                  \
    }                                                                                              \
    static void f##_slope(const tp_call *c, int64_t begin, int64_t end)                            \
    {                                                                                              \
        power_slopes(f, c, begin, end);                                                            \
    }
POWERS(POWER)

static const struct {
    double exponent;
    tp_call_body map, slope;
} power[] = {
#define ROW(k, f) { k, f##_map, f##_slope },
    POWERS(ROW)
#undef ROW
};

/* The row of an exponent that is a number, or -1. */
static int row_of(const tp_call *c, double less)
{
    const tp_binary_attr *k = c->attr;
    for (int i = 0; tp_absent(&c->x[1]) && i < (int)(sizeof power / sizeof *power); i++)
        if (k->number - less == power[i].exponent) return i;
    return -1;
}

static tp_code pow_fwd(const tp_call *c)
{
    const int row = row_of(c, 0.0);
    return each(c, row < 0 ? pow_range : power[row].map);
}

/* x^0 has the slope 0 even where x^-1 is infinite. */
static tp_code pow_bwd(const tp_call *c)
{
    const int row = row_of(c, 1.0);
    if (row >= 0 && ((const tp_binary_attr *)c->attr)->number != 0.0)
        return c->dx[0].data ? each(c, power[row].slope) : TP_OK;
    pow_to_a(c);
    return pow_to_b(c);
}

TP_CPU_KERNEL(add_bwd)
TP_CPU_KERNEL(sub_bwd)
TP_CPU_KERNEL(mul_bwd)
TP_CPU_KERNEL(div_bwd)
TP_CPU_KERNEL(pow_fwd)
TP_CPU_KERNEL(pow_bwd)
