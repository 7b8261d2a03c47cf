/* crc32.c - CRC-32, eight bytes at a time ("slicing by 8", Kounavis and Berry 2005). */
#include "tensor/file/crc32.h"

void tp__crc32_init(tp_crc32 *t)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t x = i;
        for (int bit = 0; bit < 8; bit++) x = x >> 1 ^ (x & 1 ? UINT32_C(0xedb88320) : 0);
        t->at[0][i] = x;
    }
    for (int k = 1; k < 8; k++)
        for (int i = 0; i < 256; i++)
            t->at[k][i] = t->at[0][t->at[k - 1][i] & 255] ^ t->at[k - 1][i] >> 8;
}

uint32_t tp__crc32(const tp_crc32 *t, uint32_t before, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    uint32_t x = ~before;
    for (; n >= 8; n -= 8, p += 8) {
        x ^= (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        x = t->at[7][x & 255] ^ t->at[6][x >> 8 & 255] ^ t->at[5][x >> 16 & 255] ^
            t->at[4][x >> 24] ^ t->at[3][p[4]] ^ t->at[2][p[5]] ^ t->at[1][p[6]] ^ t->at[0][p[7]];
    }
    for (; n > 0; n--, p++) x = t->at[0][(x ^ *p) & 255] ^ x >> 8;
    return ~x;
}
