/* bpe_words.c - splits a text into words by the published pattern; its first matching alternative
 * counts:
 *
 *     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * White space before other text is a word without its last character, which belongs to the next
 * word if it is a space. Bisection finds character classes, which are ranges; ASCII has a table. */
#include <string.h>

#include "bpe.h"

typedef enum class { OTHER, LETTER, NUMBER, SPACE } class;

static const struct {
    int32_t first, last;
    class class;
} ranges[] = {
#define L(first, last) { 0x##first, 0x##last, LETTER },
#define N(first, last) { 0x##first, 0x##last, NUMBER },
#define S(first, last) { 0x##first, 0x##last, SPACE },
#include "unicode_classes.inc"
#undef L
#undef N
#undef S
};
enum { RANGES = sizeof ranges / sizeof ranges[0] };

static class class_of(int32_t character)
{
    int low = 0, high = RANGES;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (ranges[middle].last < character)
            low = middle + 1;
        else
            high = middle;
    }
    return low < RANGES && ranges[low].first <= character ? ranges[low].class : OTHER;
}

int32_t tp__utf8(const uint8_t *p, size_t n, int *length)
{
    static const int32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
    const int size = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    *length = 1;
    if (size == 1) return p[0];
    if (size == 0 || p[0] > 0xf4 || n < (size_t)size) return -1;
    int32_t c = p[0] & (0x7f >> size);
    for (int i = 1; i < size; i++) {
        if ((p[i] & 0xc0) != 0x80) return -1;
        c = c << 6 | (p[i] & 0x3f);
    }
    if (c < least[size] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return -1;
    *length = size;
    return c;
}

int tp__utf8_write(int32_t c, char *to)
{
    const int size = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const uint8_t lead[] = { 0, 0, 0xc0, 0xe0, 0xf0 };
    for (int i = size - 1; i > 0; i--) {
        to[i] = (char)(0x80 | (c & 0x3f));
        c >>= 6;
    }
    to[0] = (char)(lead[size] | c);
    return size;
}

/* Returns the class of the character at p, and its length. */
static class class_at(const uint8_t *p, const uint8_t *end, int *length)
{
    static const char ascii[] = "00000000033333000000000000000000"
                                "30000000000000002222222222000000"
                                "01111111111111111111111111100000"
                                "01111111111111111111111111100000";
    *length = 1;
    if (*p < 0x80) return (class)(ascii[*p] - '0');
    const int32_t c = tp__utf8(p, (size_t)(end - p), length);
    return c < 0 ? OTHER : class_of(c);
}

/* Returns the length of the contraction at p, an apostrophe, or 0. */
static size_t contraction(const uint8_t *p, size_t n)
{
    if (n >= 2 && p[1] && strchr("stmd", p[1])) return 2;
    if (n < 3) return 0;
    const bool two =
        memcmp(p + 1, "re", 2) == 0 || memcmp(p + 1, "ve", 2) == 0 || memcmp(p + 1, "ll", 2) == 0;
    return two ? 3 : 0;
}

/* Returns the length of the white space at p, less its last character if text follows. */
static size_t white_space(const uint8_t *p, const uint8_t *end)
{
    const uint8_t *at = p, *last = p;
    int length;
    while (at < end && class_at(at, end, &length) == SPACE) {
        last = at;
        at += length;
    }
    return (size_t)((at < end && last > p ? last : at) - p);
}

size_t tp__bpe_word(const char *text, size_t n)
{
    const uint8_t *p = (const uint8_t *)text, *end = p + n, *at = p;
    const size_t contracted = *p == '\'' ? contraction(p, n) : 0;
    int length;
    if (contracted) return contracted;
    if (*p == ' ' && n > 1) at++;
    const class kind = class_at(at, end, &length);
    if (kind == SPACE) return white_space(p, end);
    do at += length;
    while (at < end && class_at(at, end, &length) == kind);
    return (size_t)(at - p);
}

bool tp_bpe_words(const char *text, size_t n, bool (*word)(void *, const char *, size_t), void *env)
{
    if (!text || !word) return false;
    while (n > 0) {
        const size_t length = tp__bpe_word(text, n);
        if (!word(env, text, length)) return false;
        text += length;
        n -= length;
    }
    return true;
}
