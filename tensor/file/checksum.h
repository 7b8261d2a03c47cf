/* checksum.h - the checksums of a safetensors file: XXH3-64, written as 16 hexadecimal digits.
 *
 *     {"__metadata__":{"xxh3.header":"0123456789abcdef","xxh3.tensors":"...", ...}, ...}
 *
 * xxh3.tensors holds a checksum for the bytes of each tensor, in data order, without separators.
 * xxh3.header is the checksum of the header, including bytes 0 to 7 and the padding, with 0 for
 * each of its own digits. It comes first, so that its digits are at the same offset in every file.
 * Each of the two keys requires the other: if either is damaged, the file is not mistaken for one
 * without checksums. */
#ifndef TP_CHECKSUM_H
#define TP_CHECKSUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TP_SUM_HEADER  "xxh3.header"
#define TP_SUM_TENSORS "xxh3.tensors"

/* The beginning of a header with checksums, up to the digits of the header's checksum. */
#define TP_SUM_BEGIN "{\"__metadata__\":{\"" TP_SUM_HEADER "\":\""

enum {
    TP_SUM_DIGITS = 16,
    TP_SUM_AT = sizeof TP_SUM_BEGIN - 1, /* position of the header's digits in the JSON text */
    TP_SUMS_AT = TP_SUM_AT + TP_SUM_DIGITS + sizeof "\",\"" TP_SUM_TENSORS "\":\"" - 1,
};

/* A checksum of bytes that arrive in pieces. */
typedef struct XXH3_state_s tp_sum;

tp_sum *tp__sum_new(void); /* NULL: no memory */
void tp__sum_free(tp_sum *s);
void tp__sum_begin(tp_sum *s);
void tp__sum_add(tp_sum *s, const void *bytes, size_t n);
uint64_t tp__sum_end(const tp_sum *s);

/* The checksum of n bytes that follow what `before` is the checksum of. */
uint64_t tp__sum_of(uint64_t before, const void *bytes, size_t n);

/* The checksum of a header. json: its JSON text with padding, beginning with TP_SUM_BEGIN and 16
 * digits. */
uint64_t tp__sum_header(tp_sum *s, const char *json, size_t length);

void tp__sum_print(uint64_t sum, char *digits);       /* writes 16 digits, no '\0' */
bool tp__sum_scan(const char *digits, uint64_t *sum); /* false: not 16 digits 0 to 9, a to f */

#endif
