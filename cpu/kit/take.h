/* take.h - the layout of a kernel's scratch, in elements. */
#ifndef TP_TAKE_H
#define TP_TAKE_H

#include <stdint.h>

/* Returns where a part of n elements begins and adds it to the total. Every part begins at a multiple of 16
 * elements, whole vectors of every instruction set. */
static inline int64_t tp__take(int64_t *total, int64_t n)
{
    const int64_t at = *total;
    *total += (n + 15) / 16 * 16;
    return at;
}

#endif
