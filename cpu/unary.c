/* unary.c - elementwise functions of one operand: memory-bound loops with the function inlined.
 *
 *     y = f(x);   dx = dy f'   with f' computed from what the op saved, x or y
 *
 * The functions: tensor/geometry/functions.h. */
#include <string.h>

#include "cpu/kit/activation.h"
#include "cpu/kit/real.h"
#include "tensor/geometry/elementwise.h"
#include "tensor/geometry/functions.h"
#include "tensor/kernel.h"

#define GRAIN (4 * TP_BLOCK)

/* A function of x, or of what the op saved, with the call's constants. */
typedef real (*formula)(real x, real a, real b);

static tp_unary_attr constants(const tp_call *c)
{
    return c->attr ? *(const tp_unary_attr *)c->attr : (tp_unary_attr){ 0 };
}

/* Loops over elements [begin, end), inlined with a known f, so that they vectorise. */
TP_INLINE void map(formula f, const tp_call *c, int64_t begin, int64_t end)
{
    const tp_unary_attr k = constants(c);
    const real a = (real)k.a, b = (real)k.b;
    const real *restrict x = c->x[0].data;
    real *restrict y = c->y[0].data;
    for (int64_t i = begin; i < end; i++) y[i] = f(x[i], a, b);
}

/* A slope that reads neither x nor y gets dy and ignores it. */
TP_INLINE void grad(formula slope, const tp_call *c, int64_t begin, int64_t end)
{
    const tp_unary_attr k = constants(c);
    const real a = (real)k.a, b = (real)k.b;
    const real *restrict dy = c->dy[0].data;
    const real *restrict saved = c->x[0].data ? c->x[0].data : c->y[0].data ? c->y[0].data : dy;
    real *restrict dx = c->dx[0].data;
    for (int64_t i = begin; i < end; i++) dx[i] = dy[i] * slope(saved[i], a, b);
}

static tp_code forward(const tp_call *c, tp_call_body body)
{
    tp__for(c, c->x[0].numel, GRAIN, body);
    return TP_OK;
}

static tp_code backward(const tp_call *c, tp_call_body body)
{
    if (c->dx[0].data) tp__for(c, c->x[0].numel, GRAIN, body);
    return TP_OK;
}

#define FORMULA(name, at, result)                                                                  \
    TP_INLINE real name(real at, real a, real b)                                                   \
    {                                                                                              \
        (void)at, (void)a, (void)b;                                                                \
        return result;                                                                             \
    }
#define KERNEL(name, pass, range, loop, f)                                                         \
    static void range(const tp_call *c, int64_t begin, int64_t end)                                \
    {                                                                                              \
        loop(f, c, begin, end);                                                                    \
    }                                                                                              \
    static tp_code name(const tp_call *c)                                                          \
    {                                                                                              \
        return pass(c, range);                                                                     \
    }                                                                                              \
    TP_CPU_KERNEL(name)
#define FUNCTION(name, doc, saved, cases, value, slope)                                            \
    FORMULA(f_##name, x, value)                                                                    \
    FORMULA(d_##name, saved, slope)                                                                \
    KERNEL(name##_fwd, forward, name##_map, map, f_##name)                                         \
    KERNEL(name##_bwd, backward, name##_grad, grad, d_##name)
#define STEP(name, doc, value)                                                                     \
    FORMULA(f_##name, x, value)                                                                    \
    KERNEL(name##_fwd, forward, name##_map, map, f_##name)

TP_UNARY(FUNCTION)
TP_UNARY_OF(FUNCTION)
TP_UNARY_STEPS(STEP)

static void no_grad(const tp_call *c, int64_t begin, int64_t end)
{
    memset((real *)c->dx[0].data + begin, 0, (size_t)(end - begin) * sizeof(real));
}

static tp_code step_bwd(const tp_call *c)
{
    return backward(c, no_grad);
}
TP_CPU_KERNEL(step_bwd)

/* ---- functions of turns: for large x, the formula in double (libm) replaces results ---- */

enum { TURNED = 256 }; /* elements of a piece */

typedef struct turn {
    real (*f)(real x);
    double (*exact)(double x);
} turn;

/* y = f(x) for n <= TURNED elements. If an x is too large for the loop, a second corrects y. */
TP_INLINE void turn_piece(turn t, const real *restrict x, real *restrict y, int64_t n)
{
    int large = 0;
    for (int64_t i = 0; i < n; i++) {
        y[i] = t.f(x[i]);
        large |= r_large(x[i]);
    }
    for (int64_t i = 0; large && i < n; i++)
        if (r_large(x[i])) y[i] = (real)t.exact((double)x[i]);
}

TP_INLINE void turn_map(turn t, const tp_call *c, int64_t begin, int64_t end)
{
    const real *x = c->x[0].data;
    real *y = c->y[0].data;
    for (int64_t i = begin; i < end; i += TURNED)
        turn_piece(t, x + i, y + i, end - i < TURNED ? end - i : TURNED);
}

TP_INLINE void turn_grad(turn t, const tp_call *c, int64_t begin, int64_t end)
{
    const real *x = c->x[0].data, *restrict dy = c->dy[0].data;
    real *restrict dx = c->dx[0].data, slope[TURNED];
    for (int64_t i = begin; i < end; i += TURNED) {
        const int64_t n = end - i < TURNED ? end - i : TURNED;
        turn_piece(t, x + i, slope, n);
        for (int64_t j = 0; j < n; j++) dx[i + j] = dy[i + j] * slope[j];
    }
}

#define TURN_FORMULA(name, type, result)                                                           \
    TP_INLINE type name(type x)                                                                    \
    {                                                                                              \
        return result;                                                                             \
    }
#define TURN(name, doc, saved, cases, value, slope)                                                \
    TURN_FORMULA(f_##name, real, value)                                                            \
    TURN_FORMULA(d_##name, real, slope)                                                            \
    TURN_FORMULA(f_##name##_exact, double, value)                                                  \
    TURN_FORMULA(d_##name##_exact, double, slope)                                                  \
    KERNEL(name##_fwd, forward, name##_map, turn_map, ((turn){ f_##name, f_##name##_exact }))      \
    KERNEL(name##_bwd, backward, name##_grad, turn_grad, ((turn){ d_##name, d_##name##_exact }))

TP_UNARY_TURNS(TURN)
