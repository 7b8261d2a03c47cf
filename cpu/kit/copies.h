/* copies.h - moves runs of bytes of compile-time lengths: memcpy calls cost more. */
#ifndef TP_COPIES_H
#define TP_COPIES_H

#include <stdint.h>
#include <string.h>

/* ---- one element, many times ---- */

/* Repeats an element of constant size, moved in registers: short runs take a few cycles. */
static inline __attribute__((always_inline)) void tp__repeat_fixed(char *restrict to,
                                                                   const void *restrict element,
                                                                   size_t bytes, int64_t n)
{
    char one[8];
    memcpy(one, element, bytes);
    for (int64_t i = 0; i < n; i++) memcpy(to + (size_t)i * bytes, one, bytes);
}

/* to[0..n) = *element, n > 0; other sizes by doubling. */
static inline void tp__repeat(char *restrict to, const void *restrict element, int64_t size,
                              int64_t n)
{
    switch (size) {
    case 2: tp__repeat_fixed(to, element, 2, n); return;
    case 4: tp__repeat_fixed(to, element, 4, n); return;
    case 8: tp__repeat_fixed(to, element, 8, n); return;
    default: break;
    }
    memcpy(to, element, (size_t)size);
    for (int64_t done = 1, more; done < n; done += more) {
        more = done < n - done ? done : n - done;
        memcpy(to + done * size, to, (size_t)(more * size));
    }
}
/* ---- rows ---- */

static inline __attribute__((always_inline)) void tp__copy_fixed_rows(char *to, int64_t to_step,
                                                                      const char *from,
                                                                      int64_t from_step,
                                                                      int64_t rows, size_t n)
{
    for (int64_t r = 0; r < rows; r++) memcpy(to + r * to_step, from + r * from_step, n);
}

/* Copies rows of n bytes at constant steps. Rows of heads or few channels have a listed length. */
static inline void tp__copy_rows(char *to, int64_t to_step, const char *from, int64_t from_step,
                                 int64_t rows, int64_t n)
{
    switch (n) {
    case 1: tp__copy_fixed_rows(to, to_step, from, from_step, rows, 1); break;
    case 2: tp__copy_fixed_rows(to, to_step, from, from_step, rows, 2); break;
    case 4: tp__copy_fixed_rows(to, to_step, from, from_step, rows, 4); break;
    case 8: tp__copy_fixed_rows(to, to_step, from, from_step, rows, 8); break;
    case 16: tp__copy_fixed_rows(to, to_step, from, from_step, rows, 16); break;
    case 32: tp__copy_fixed_rows(to, to_step, from, from_step, rows, 32); break;
    case 64: tp__copy_fixed_rows(to, to_step, from, from_step, rows, 64); break;
    case 96: tp__copy_fixed_rows(to, to_step, from, from_step, rows, 96); break;
    case 128: tp__copy_fixed_rows(to, to_step, from, from_step, rows, 128); break;
    case 160: tp__copy_fixed_rows(to, to_step, from, from_step, rows, 160); break;
    case 192: tp__copy_fixed_rows(to, to_step, from, from_step, rows, 192); break;
    case 256: tp__copy_fixed_rows(to, to_step, from, from_step, rows, 256); break;
    default: tp__copy_fixed_rows(to, to_step, from, from_step, rows, (size_t)n);
    }
}

#endif
