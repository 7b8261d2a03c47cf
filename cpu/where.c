/* where.c - mask ? a : b, which broadcast into a common shape (meet.h); each gradient flows where
 * its operand was selected, and is summed (fold.h) if the operand is repeated.
 *
 * Forward only moves elements, so only their size matters. a or b may be a number. */
#include "cpu/kit/fold.h"
#include "cpu/kit/real.h"
#include "tensor/geometry/elementwise.h"
#include "tensor/geometry/meet.h"
#include "tensor/kernel.h"

#define GRAIN (4 * TP_BLOCK)

/* ---- forward ---- */

/* With constant a_one and b_one, the loops vectorise. */
#define CHOOSE(type)                                                                               \
    TP_INLINE void pick_##type(const uint8_t *restrict mask, const type *restrict a,               \
                               const type *restrict b, type *restrict y, int64_t n, bool a_one,    \
                               bool b_one)                                                         \
    {                                                                                              \
        for (int64_t j = 0; j < n; j++) {                                                          \
            const type yes = a[a_one ? 0 : j], no = b[b_one ? 0 : j];                              \
            y[j] = mask[j] ? yes : no;                                                             \
        }                                                                                          \
    }                                                                                              \
    static void take_##type(const type *restrict from, type *restrict y, int64_t n, bool one)      \
    {                                                                                              \
        if (one)                                                                                   \
            for (int64_t j = 0; j < n; j++) y[j] = *from;                                          \
        else                                                                                       \
            memcpy(y, from, (size_t)n * sizeof *y);                                                \
    }                                                                                              \
    static void choose_##type(const tp_call *c, int64_t begin, int64_t end)                        \
    {                                                                                              \
        const tp_view *const x[] = { &c->x[0], &c->x[1], &c->x[2] };                               \
        const tp_meet m = tp__meet(&c->y[0], 3, x);                                                \
        type number;                                                                               \
        const tp_view of_number = { .data = &number, .dtype = c->y[0].dtype };                     \
        tp_st(&of_number, 0, ((const tp_binary_attr *)c->attr)->number);                           \
        const type *all_a = tp_absent(x[1]) ? &number : x[1]->data;                                \
        const type *all_b = tp_absent(x[2]) ? &number : x[2]->data;                                \
        for (tp_run r = tp__run_from(&m, begin, end); r.n > 0; tp__run_next(&m, &r, end)) {        \
            const uint8_t *mask = (const uint8_t *)x[0]->data + r.x[0];                            \
            const type *a = all_a + r.x[1], *b = all_b + r.x[2];                                   \
            type *y = (type *)c->y[0].data + r.y;                                                  \
            if (m.one[0])                                                                          \
                take_##type(*mask ? a : b, y, r.n, m.one[*mask ? 1 : 2]);                          \
            else if (m.one[1] && m.one[2])                                                         \
                pick_##type(mask, a, b, y, r.n, true, true);                                       \
            else if (m.one[1])                                                                     \
                pick_##type(mask, a, b, y, r.n, true, false);                                      \
            else if (m.one[2])                                                                     \
                pick_##type(mask, a, b, y, r.n, false, true);                                      \
            else                                                                                   \
                pick_##type(mask, a, b, y, r.n, false, false);                                     \
        }                                                                                          \
    }

CHOOSE(uint8_t)
CHOOSE(uint32_t)
CHOOSE(uint64_t)

static tp_code where_fwd(const tp_call *c)
{
    const size_t size = tp_dtype_size(c->y[0].dtype);
    const tp_call_body body = size == 8   ? choose_uint64_t
                              : size == 4 ? choose_uint32_t
                                          : choose_uint8_t;
    tp__for(c, c->y[0].numel, GRAIN, body);
    return TP_OK;
}

/* ---- backward ---- */

typedef struct selection {
    const uint8_t *mask;
    const real *dy;
    tp_meet m; /* of the mask */
} selection;

static selection selection_of(const tp_call *c)
{
    const tp_view *const mask = &c->x[0];
    return (selection){ mask->data, c->dy[0].data, tp__meet(&c->dy[0], 1, &mask) };
}

/* out = dy where the mask selects a (or b), else 0, for elements [i, end) of dy. */
TP_INLINE void terms(const selection *s, bool of_a, int64_t i, int64_t end, real *to)
{
    for (tp_run r = tp__run_from(&s->m, i, end); r.n > 0; tp__run_next(&s->m, &r, end)) {
        const uint8_t *restrict mask = s->mask + r.x[0];
        const real *restrict dy = s->dy + r.y;
        real *restrict out = to + (r.y - i);
        if (s->m.one[0]) {
            if ((*mask != 0) == of_a)
                memcpy(out, dy, (size_t)r.n * sizeof *out);
            else
                memset(out, 0, (size_t)r.n * sizeof *out);
        } else {
            for (int64_t j = 0; j < r.n; j++) {
                const real g = dy[j];
                out[j] = (mask[j] != 0) == of_a ? g : 0;
            }
        }
    }
}

#define GRADIENT(name, i, of_a)                                                                    \
    static void name##_direct(const tp_call *c, int64_t begin, int64_t end)                        \
    {                                                                                              \
        const selection s = selection_of(c);                                                       \
        terms(&s, of_a, begin, end, (real *)c->dx[i].data + begin);                                \
    }                                                                                              \
    static void name##_terms(const void *ctx, int64_t begin, int64_t end, real *out)               \
    {                                                                                              \
        terms(ctx, of_a, begin, end, out);                                                         \
    }                                                                                              \
    static void name(const tp_call *c)                                                             \
    {                                                                                              \
        const selection s = selection_of(c);                                                       \
        if (!c->dx[i].data) return;                                                                \
        if (c->x[i].numel == c->dy[0].numel)                                                       \
            tp__for(c, c->dy[0].numel, GRAIN, name##_direct);                                      \
        else                                                                                       \
            fold_computed(c, &c->dy[0], &c->dx[i], name##_terms, &s, c->dx[i].data);               \
    }

GRADIENT(to_a, 1, true)
GRADIENT(to_b, 2, false)

static tp_code where_bwd(const tp_call *c)
{
    to_a(c);
    to_b(c);
    return TP_OK;
}

TP_CPU_KERNEL_UNTYPED(where_fwd)
TP_CPU_KERNEL(where_bwd)
