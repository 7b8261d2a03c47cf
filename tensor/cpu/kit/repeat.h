/* repeat.h - fills memory with copies of one element of any dtype. */
#ifndef TP_REPEAT_H
#define TP_REPEAT_H

#include <stdint.h>
#include <string.h>

/* Elements of a fixed size, which the compiler moves in registers: short runs take a few cycles. */
#define TP_REPEAT(bytes)                                                                           \
    case bytes: {                                                                                  \
        char one[bytes];                                                                           \
        memcpy(one, element, bytes);                                                               \
        for (int64_t i = 0; i < n; i++) memcpy(to + i * bytes, one, bytes);                        \
        return;                                                                                    \
    }

/* to[0..n) = *element, n > 0; other sizes by doubling. */
static inline void tp__repeat(char *restrict to, const void *restrict element, int64_t size,
                              int64_t n)
{
    switch (size) {
        TP_REPEAT(4)
        TP_REPEAT(8)
    default: break;
    }
    memcpy(to, element, (size_t)size);
    for (int64_t done = 1, more; done < n; done += more) {
        more = done < n - done ? done : n - done;
        memcpy(to + done * size, to, (size_t)(more * size));
    }
}

#endif
