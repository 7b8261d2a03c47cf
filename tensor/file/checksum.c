/* checksum.c - XXH3 sums of tensors and headers; the only use of xxHash. */
#include "tensor/file/checksum.h"

#include <string.h>
#include <xxhash.h>

static const char hex[] = "0123456789abcdef";

tp_sum *tp__sum_new(void)
{
    return XXH3_createState();
}

void tp__sum_free(tp_sum *s)
{
    XXH3_freeState(s);
}

void tp__sum_begin(tp_sum *s)
{
    XXH3_64bits_reset(s);
}

void tp__sum_add(tp_sum *s, const void *bytes, size_t n)
{
    XXH3_64bits_update(s, bytes, n);
}

uint64_t tp__sum_end(const tp_sum *s)
{
    return XXH3_64bits_digest(s);
}

uint64_t tp__sum_of(uint64_t before, const void *bytes, size_t n)
{
    return XXH3_64bits_withSeed(bytes, n, before);
}

uint64_t tp__sum_header(tp_sum *s, const char *json, size_t length)
{
    static const char zeros[] = "0000000000000000";
    const uint64_t n = length;
    const size_t after = TP_SUM_AT + TP_SUM_DIGITS;
    tp__sum_begin(s);
    tp__sum_add(s, &n, sizeof n);
    tp__sum_add(s, json, TP_SUM_AT);
    tp__sum_add(s, zeros, TP_SUM_DIGITS);
    tp__sum_add(s, json + after, length - after);
    return tp__sum_end(s);
}

void tp__sum_print(uint64_t sum, char *digits)
{
    for (int i = 0; i < TP_SUM_DIGITS; i++) digits[i] = hex[sum >> (60 - 4 * i) & 15];
}

bool tp__sum_scan(const char *digits, uint64_t *sum)
{
    *sum = 0;
    for (int i = 0; i < TP_SUM_DIGITS; i++) {
        const char *d = digits[i] ? strchr(hex, digits[i]) : NULL;
        if (!d) return false;
        *sum = *sum << 4 | (uint64_t)(d - hex);
    }
    return true;
}
