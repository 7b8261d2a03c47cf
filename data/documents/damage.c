/* damage.c - inserts punctuation marks into texts, and deletes them.
 *
 * The places come from the values v_0 ... v_19 of the stream lra.insert.test.SAMPLE.DOCUMENT:
 *
 *     mark j = floor(32 v_2j), place j = floor(v_2j+1 (n + j + 1)), j = 0 ... 9 */
#include <stdio.h>
#include <string.h>
#include <tapegrad/documents.h>
#include <tapegrad/random.h>

enum { INSERTED = 10 };
static const char marks[] = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";

/* Returns value i of the stream with this hash: a multiple of 2^-24 in [0, 1). */
static double value(uint64_t hash, int i)
{
    uint64_t z = hash + ((uint64_t)i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (double)(z >> 40) / (1 << 24);
}

/* Does a character of UTF-8 begin with this byte? */
static bool begins(uint8_t byte)
{
    return (byte & 0xc0) != 0x80;
}

/* Returns the byte at which character `wanted` of the text begins; n for the end of the text. */
static size_t character(const uint8_t *text, size_t n, size_t wanted)
{
    size_t at = 0;
    for (size_t seen = 0; at < n; at++)
        if (begins(text[at]) && seen++ == wanted) break;
    return at;
}

size_t tp_insert_marks(const uint8_t *text, size_t n, int64_t sample, int document, bool whole,
                       uint8_t *out)
{
    if (!text) return 0;
    char name[64];
    size_t places = 0;
    snprintf(name, sizeof name, "lra.insert.test.%lld.%d", (long long)sample, document);
    const uint64_t hash = tp_hash_text(TP_HASH, name);
    if (n) memmove(out, text, n);
    for (size_t i = 0; i < n; i++) places += !whole || begins(out[i]);
    for (int j = 0; j < INSERTED; j++, n++, places++) {
        const char mark = marks[(int)(32 * value(hash, 2 * j))];
        size_t at = (size_t)(value(hash, 2 * j + 1) * (double)(places + 1));
        if (whole) at = character(out, n, at);
        memmove(out + at + 1, out + at, n - at);
        out[at] = (uint8_t)mark;
    }
    return n;
}

size_t tp_delete_marks(const uint8_t *text, size_t n, uint8_t *out)
{
    if (!text) return 0;
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (!text[i] || !strchr(marks, text[i])) out[kept++] = text[i];
    return kept;
}
