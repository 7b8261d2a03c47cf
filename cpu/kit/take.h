/* take.h - lays out a kernel's scratch, in elements. */
#ifndef TP_TAKE_H
#define TP_TAKE_H

#include <stdint.h>

/* Returns the offset of a part of n elements and adds it to the total. Parts begin at multiples of
 * 16 elements: whole vectors in every instruction set. */
static inline int64_t tp__take(int64_t *total, int64_t n)
{
    const int64_t at = *total;
    *total += (n + 15) / 16 * 16;
    return at;
}

#endif
