/* compare.c - masks of where two operands, which broadcast (meet.h), are in a relation, and of
 * where elements of one tensor are 0, NaN or infinite: memory-bound loops for every dtype. */
#include "tensor/geometry/elementwise.h"
#include "tensor/geometry/meet.h"
#include "tensor/kernel.h"

#define GRAIN (4 * TP_BLOCK)

/* ---- two operands ---- */

/* A row: n elements of y, which meet n elements or one of a and b. */
typedef struct row {
    const void *a, *b;
    bool a_one, b_one;
    uint8_t *y;
    int64_t n;
} row;

#define WHERE(type, holds)                                                                         \
    do {                                                                                           \
        if (r->b_one) {                                                                            \
            const type b = *to;                                                                    \
            for (int64_t j = 0; j < r->n; j++) {                                                   \
                const type a = from[j];                                                            \
                y[j] = (holds);                                                                    \
            }                                                                                      \
        } else if (r->a_one) {                                                                     \
            const type a = *from;                                                                  \
            for (int64_t j = 0; j < r->n; j++) {                                                   \
                const type b = to[j];                                                              \
                y[j] = (holds);                                                                    \
            }                                                                                      \
        } else {                                                                                   \
            for (int64_t j = 0; j < r->n; j++) {                                                   \
                const type a = from[j], b = to[j];                                                 \
                y[j] = (holds);                                                                    \
            }                                                                                      \
        }                                                                                          \
    } while (0)

/* > and >= have become < and <= of swapped operands. */
#define RELATE(type)                                                                               \
    static void relate_##type(tp_relation relation, const row *r)                                  \
    {                                                                                              \
        const type *restrict from = r->a, *restrict to = r->b;                                     \
        uint8_t *restrict y = r->y;                                                                \
        switch (relation) {                                                                        \
        case TP_EQ: WHERE(type, a == b); break;                                                    \
        case TP_NE: WHERE(type, a != b); break;                                                    \
        case TP_LT: WHERE(type, a < b); break;                                                     \
        case TP_LE: WHERE(type, a <= b); break;                                                    \
        case TP_AND: WHERE(type, (a != 0) & (b != 0)); break;                                      \
        case TP_OR: WHERE(type, (a != 0) | (b != 0)); break;                                       \
        default: WHERE(type, (a != 0) ^ (b != 0));                                                 \
        }                                                                                          \
    }

RELATE(float)
RELATE(double)
RELATE(int32_t)
RELATE(int64_t)
RELATE(uint8_t)

static void relate(tp_dtype dt, tp_relation relation, const row *r)
{
    switch (dt) {
    case TP_F64: relate_double(relation, r); break;
    case TP_I32: relate_int32_t(relation, r); break;
    case TP_I64: relate_int64_t(relation, r); break;
    case TP_U8: relate_uint8_t(relation, r); break;
    default: relate_float(relation, r);
    }
}

static void compare(const tp_call *c, int64_t begin, int64_t end)
{
    const tp_compare_attr *k = c->attr;
    const bool swap = k->relation == TP_GT || k->relation == TP_GE;
    const tp_relation relation = !swap ? k->relation : k->relation == TP_GT ? TP_LT : TP_LE;
    const tp_view *const x[] = { &c->x[swap ? 1 : 0], &c->x[swap ? 0 : 1] };
    const tp_dtype dt = x[tp_absent(x[0]) ? 1 : 0]->dtype;
    const size_t size = tp_dtype_size(dt);
    const tp_meet m = tp__meet(&c->y[0], 2, x);
    double number; /* holds any dtype */
    const tp_view one = { .data = &number, .dtype = dt };
    tp_st(&one, 0, k->operands.number);
    const char *a = tp_absent(x[0]) ? one.data : x[0]->data;
    const char *b = tp_absent(x[1]) ? one.data : x[1]->data;
    for (tp_run r = tp__run_from(&m, begin, end); r.n > 0; tp__run_next(&m, &r, end))
        relate(dt, relation,
               &(row){ a + (size_t)r.x[0] * size, b + (size_t)r.x[1] * size, m.one[0], m.one[1],
                       (uint8_t *)c->y[0].data + r.y, r.n });
}

static tp_code compare_fwd(const tp_call *c)
{
    tp__for(c, c->y[0].numel, GRAIN, compare);
    return TP_OK;
}

/* ---- one tensor ---- */

#define EACH(type, holds)                                                                          \
    for (int64_t i = begin; i < end; i++) {                                                        \
        const type x = from[i];                                                                    \
        y[i] = (holds);                                                                            \
    }

/* x - x is NaN if x is NaN or infinite. */
#define ASK_FLOATS(type)                                                                           \
    static void ask_##type(tp_question question, const type *restrict from, uint8_t *restrict y,   \
                           int64_t begin, int64_t end)                                             \
    {                                                                                              \
        if (question == TP_IS_ZERO)                                                                \
            EACH(type, x == 0)                                                                     \
        else if (question == TP_IS_NAN)                                                            \
            EACH(type, x != x)                                                                     \
        else if (question == TP_IS_FINITE)                                                         \
            EACH(type, x - x == 0)                                                                 \
        else                                                                                       \
            EACH(type, (x == x) & (x - x != 0))                                                    \
    }

#define ASK_INTEGERS(type)                                                                         \
    static void ask_##type(tp_question question, const type *restrict from, uint8_t *restrict y,   \
                           int64_t begin, int64_t end)                                             \
    {                                                                                              \
        if (question == TP_IS_ZERO)                                                                \
            EACH(type, x == 0)                                                                     \
        else                                                                                       \
            memset(y + begin, question == TP_IS_FINITE, (size_t)(end - begin));                    \
    }

ASK_FLOATS(float)
ASK_FLOATS(double)
ASK_INTEGERS(int32_t)
ASK_INTEGERS(int64_t)
ASK_INTEGERS(uint8_t)

static void ask(const tp_call *c, int64_t begin, int64_t end)
{
    const tp_question question = *(const tp_question *)c->attr;
    const void *from = c->x[0].data;
    uint8_t *y = c->y[0].data;
    switch (c->x[0].dtype) {
    case TP_F64: ask_double(question, from, y, begin, end); break;
    case TP_I32: ask_int32_t(question, from, y, begin, end); break;
    case TP_I64: ask_int64_t(question, from, y, begin, end); break;
    case TP_U8: ask_uint8_t(question, from, y, begin, end); break;
    default: ask_float(question, from, y, begin, end);
    }
}

static tp_code ask_fwd(const tp_call *c)
{
    tp__for(c, c->y[0].numel, GRAIN, ask);
    return TP_OK;
}

TP_CPU_KERNEL_UNTYPED(compare_fwd)
TP_CPU_KERNEL_UNTYPED(ask_fwd)
