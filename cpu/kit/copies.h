/* copies.h - moves bytes by lengths that the compiler knows: calls of memcpy would take longer than short copies. */
#ifndef TP_COPIES_H
#define TP_COPIES_H

#include <stdint.h>
#include <string.h>

/* ---- one element, many times ---- */

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

#undef TP_REPEAT

/* ---- rows ---- */

#define TP_COPY_ROWS(bytes)                                                                        \
    case bytes:                                                                                    \
        for (int64_t r = 0; r < rows; r++) memcpy(to + r * to_step, from + r * from_step, bytes);  \
        break

/* Copies rows of n bytes at constant steps. Rows of heads and of few channels have one of the listed lengths. */
static inline void tp__copy_rows(char *to, int64_t to_step, const char *from, int64_t from_step,
                                 int64_t rows, int64_t n)
{
    switch (n) {
        TP_COPY_ROWS(1);
        TP_COPY_ROWS(4);
        TP_COPY_ROWS(8);
        TP_COPY_ROWS(16);
        TP_COPY_ROWS(32);
        TP_COPY_ROWS(64);
        TP_COPY_ROWS(96);
        TP_COPY_ROWS(128);
        TP_COPY_ROWS(160);
        TP_COPY_ROWS(192);
        TP_COPY_ROWS(256);
    default:
        for (int64_t r = 0; r < rows; r++)
            memcpy(to + r * to_step, from + r * from_step, (size_t)n);
    }
}

#undef TP_COPY_ROWS

#endif
