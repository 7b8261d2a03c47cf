/* binary.c - add, sub, mul, div with b broadcast into a: memory-bound loops over pieces of
 * rows.
 *
 *     y = f(a, b);   da = dy df/da,   db = sum of dy df/db over the elements of a that b[i] broadcasts to
 *
 * The sums of db are folded (fold.h) without a temporary of the size of a. Where da or db equals dy, the
 * tape passes dy on. */
#include "tensor/cpu/kit/fold.h"
#include "tensor/cpu/kit/real.h"
#include "tensor/geometry/broadcast.h"
#include "tensor/kernel.h"

#define GRAIN (4 * TP_BLOCK)

typedef real (*function)(real a, real b);

TP_INLINE real add(real a, real b)
{
    return a + b;
}
TP_INLINE real sub(real a, real b)
{
    return a - b;
}
TP_INLINE real mul(real a, real b)
{
    return a * b;
}
TP_INLINE real div(real a, real b)
{
    return a / b;
}

/* out = f(a, b) for elements [i, end) of a. Inlined where f is known, so that the loops vectorise. */
TP_INLINE void map(function f, const tp_view *a_view, const tp_view *b_view, tp_view *out_view,
                   int64_t i, int64_t end)
{
    const tp_bcast p = tp__bcast(a_view, b_view);
    for (tp_piece s = tp__piece(&p, i, end); s.n > 0; tp__next(&p, &s, end)) {
        const real *a = (const real *)a_view->data + s.a, *b = (const real *)b_view->data + s.b;
        real *restrict out = (real *)out_view->data + s.a;
        if (p.one) {
            const real k = b[0];
            for (int64_t j = 0; j < s.n; j++) out[j] = f(a[j], k);
        } else {
            for (int64_t j = 0; j < s.n; j++) out[j] = f(a[j], b[j]);
        }
    }
}

/* ---- forward, and da, for which dy replaces a ---- */

#define RANGE(name, f, a, b, out)                                                                  \
    static void name(const tp_call *c, int64_t begin, int64_t end, int thread)                     \
    {                                                                                              \
        (void)thread;                                                                              \
        map(f, &c->a, &c->b, &c->out, begin, end);                                                 \
    }

RANGE(add_range, add, x[0], x[1], y[0])
RANGE(sub_range, sub, x[0], x[1], y[0])
RANGE(mul_range, mul, x[0], x[1], y[0])
RANGE(div_range, div, x[0], x[1], y[0])
RANGE(mul_da, mul, dy[0], x[1], dx[0])
RANGE(div_da, div, dy[0], x[1], dx[0])
#undef RANGE

static tp_code each(const tp_call *c, tp_call_body body)
{
    tp__for(c, c->x[0].numel, GRAIN, body);
    return TP_OK;
}

static tp_code add_fwd(const tp_call *c)
{
    return each(c, add_range);
}
static tp_code sub_fwd(const tp_call *c)
{
    return each(c, sub_range);
}
static tp_code mul_fwd(const tp_call *c)
{
    return each(c, mul_range);
}
static tp_code div_fwd(const tp_call *c)
{
    return each(c, div_range);
}

/* ---- db: a sum, then the factor that all terms share ---- */

static void sub_db(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    real *db = c->dx[1].data;
    (void)thread;
    for (int64_t i = begin; i < end; i++) db[i] = -db[i];
}

static void div_db(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const real *b = c->x[1].data;
    real *db = c->dx[1].data;
    (void)thread;
    for (int64_t i = begin; i < end; i++) db[i] = -db[i] / b[i] / b[i];
}

/* da: NULL for ops that never need it. factor: multiplies dy before the sum, or NULL. */
static tp_code backward(const tp_call *c, tp_call_body da, const real *factor, tp_call_body db)
{
    if (da && c->dx[0].data) tp__for(c, c->x[0].numel, GRAIN, da);
    if (c->dx[1].data) {
        fold(c, &c->x[0], &c->x[1], c->dy[0].data, factor, c->dx[1].data);
        if (db) tp__for(c, c->x[1].numel, GRAIN, db);
    }
    return TP_OK;
}

static tp_code add_bwd(const tp_call *c)
{
    return backward(c, NULL, NULL, NULL);
}

static tp_code sub_bwd(const tp_call *c)
{
    return backward(c, NULL, NULL, sub_db);
}

static tp_code mul_bwd(const tp_call *c)
{
    return backward(c, mul_da, c->x[0].data, NULL);
}

static tp_code div_bwd(const tp_call *c)
{
    return backward(c, div_da, c->x[0].data, div_db);
}

TP_CPU_KERNEL(add_fwd)
TP_CPU_KERNEL(sub_fwd)
TP_CPU_KERNEL(mul_fwd)
TP_CPU_KERNEL(div_fwd)
TP_CPU_KERNEL(add_bwd)
TP_CPU_KERNEL(sub_bwd)
TP_CPU_KERNEL(mul_bwd)
TP_CPU_KERNEL(div_bwd)
