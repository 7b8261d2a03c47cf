/* repeat.h - fills memory with copies of one element of any dtype. */
#ifndef TP_REPEAT_H
#define TP_REPEAT_H

#include <stdint.h>
#include <string.h>

/* to[0..n) = *element, n > 0, by doubling. */
static inline void tp__repeat(char *to, const void *element, int64_t size, int64_t n)
{
    memcpy(to, element, (size_t)size);
    for (int64_t done = 1, more; done < n; done += more) {
        more = done < n - done ? done : n - done;
        memcpy(to + done * size, to, (size_t)(more * size));
    }
}

#endif
