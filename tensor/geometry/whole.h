/* whole.h - integer size arithmetic. */
#ifndef TP_WHOLE_H
#define TP_WHOLE_H

#include "tensor/host_device.h"

/* The integers first .. end - 1. */
typedef struct tp__range {
    int64_t first, end;
} tp__range;

static inline TP_HD int64_t tp__least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline TP_HD int64_t tp__most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The number of pieces of size b that cover a; 0 if b is 0. */
static inline TP_HD int64_t tp__ceil_div(int64_t a, int64_t b)
{
    return b > 0 ? (a + b - 1) / b : 0;
}

/* The smallest multiple of `unit` that is at least a. */
static inline TP_HD int64_t tp__round_up(int64_t a, int64_t unit)
{
    return tp__ceil_div(a, unit) * unit;
}

#endif
