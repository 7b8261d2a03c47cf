/* crc32.h - the CRC-32 of ZIP archives (polynomial 0xedb88320, reflected). */
#ifndef TP_CRC32_H
#define TP_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* Tables: at[0][b] is the remainder of byte b, at[k] of b with k zero bytes after it. */
typedef struct tp_crc32 {
    uint32_t at[8][256];
} tp_crc32;

void tp__crc32_init(tp_crc32 *t);
/* The sum of n bytes that follow those of which `before` is the sum; 0: none. */
uint32_t tp__crc32(const tp_crc32 *t, uint32_t before, const void *bytes, size_t n);

#endif
