/* copy_rows.h - copies rows of n bytes at constant steps. Rows of heads and of few channels have one of the
 * listed lengths; they are copied inline, since calls of memcpy would take longer than the copies. */
#ifndef TP_COPY_ROWS_H
#define TP_COPY_ROWS_H

#include <stdint.h>
#include <string.h>

#define TP_COPY_ROWS(bytes)                                                                        \
    case bytes:                                                                                    \
        for (int64_t r = 0; r < rows; r++) memcpy(to + r * to_step, from + r * from_step, bytes);  \
        break

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
