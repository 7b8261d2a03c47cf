/* bf16_rows.h - m rows of n bf16 numbers, ld apart, to f32 and back, on the calling thread (bf16.c). */
#ifndef TP_BF16_ROWS_H
#define TP_BF16_ROWS_H

#include <stdint.h>
#include <tapegrad/device.h>

void tp__widen_rows(const tp_device *D, const uint16_t *from, int64_t ld, float *to, int64_t ldt,
                    int64_t m, int64_t n);

/* Rounds to nearest even. */
void tp__round_rows(const tp_device *D, const float *from, int64_t ld, uint16_t *to, int64_t ldt,
                    int64_t m, int64_t n);

#endif
