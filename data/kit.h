/* kit.h - what readers of texts share: the first reason of a failure, arrays that grow, white space. */
#ifndef TP_KIT_H
#define TP_KIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/base.h>

/* Writes the reason of a failure to why, unless it holds an earlier one. Returns false. */
bool tp__first_reason(char *why, size_t size, const char *fmt, ...) TP_PRINTF(3, 4);

/* Makes room for n elements behind the `used` ones of an array; `array` is the address of its pointer. False: out of
 * memory. */
static inline bool tp__reserve(void *array, size_t *room, size_t used, size_t n, size_t size)
{
    void *old;
    memcpy(&old, array, sizeof old);
    if (old && used + n <= *room) return true;
    const size_t larger = 2 * (used + n) + 64;
    void *more = larger < SIZE_MAX / size ? realloc(old, larger * size) : NULL;
    if (!more) return false;
    memcpy(array, &more, sizeof more);
    *room = larger;
    return true;
}

static inline bool tp__is_white(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

#endif
