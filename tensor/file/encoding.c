/* encoding.c - tells whether the content of a file is text in UTF-8, before anything reads it.
 *
 *     UTF-8 EF BB BF    UTF-16LE FF FE    UTF-16BE FE FF    UTF-32LE FF FE 00 00    UTF-32BE 00 00 FE FF
 *
 * Without such a mark, the places of zero bytes tell UTF-16 and UTF-32 from other content. Text without
 * letters, digits and spaces of ASCII shows none; readers then find what is not UTF-8. */
#include <stdio.h>
#include <string.h>

#include <tapegrad/file.h>

enum { LOOKED_AT = 4096 };

static const struct mark {
    const char *encoding;
    size_t length;
    char bytes[4];
} marks[] = {
    { "UTF-32", 4, { '\xff', '\xfe', 0, 0 } }, { "UTF-32", 4, { 0, 0, '\xfe', '\xff' } },
    { "UTF-16", 2, { '\xff', '\xfe' } },       { "UTF-16", 2, { '\xfe', '\xff' } },
    { "", 3, { '\xef', '\xbb', '\xbf' } }, /* UTF-8 */
};

static const struct mark *mark_of(const char *text, size_t n)
{
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (n >= marks[i].length && memcmp(text, marks[i].bytes, marks[i].length) == 0)
            return &marks[i];
    return NULL;
}

/* The third byte of a character in UTF-32: a plane of Unicode in use. None is the code of a line end. */
static bool is_plane(char byte)
{
    const unsigned char plane = (unsigned char)byte;
    return plane <= 3 || (plane >= 14 && plane <= 16);
}

/* In UTF-32 every character has a zero beside its plane. In UTF-16 the zeros of ASCII characters stand all on one side,
 * half of the characters, or one in eight beside letters of other scripts. One zero alone says nothing. NULL: neither. */
static const char *encoding_without_mark(const char *text, size_t n)
{
    size_t zeros[4] = { 0 }, planes[4] = { 0 }, side[2] = { 0 }, others = 0;
    const size_t seen = n < LOOKED_AT ? n : LOOKED_AT, quads = seen / 4, pairs = seen / 2;
    for (size_t i = 0; i < seen; i++) {
        zeros[i % 4] += i < 4 * quads && text[i] == 0;
        planes[i % 4] += i < 4 * quads && is_plane(text[i]);
        side[i % 2] += text[i] == 0;
        others += (unsigned char)text[i] >= 0x80;
    }
    const size_t weight = others ? 8 : 2;
    if (quads && zeros[3] == quads && planes[2] == quads) return "UTF-32LE";
    if (quads && zeros[0] == quads && planes[1] == quads) return "UTF-32BE";
    if (side[1] > 1 && weight * side[1] >= pairs && !side[0]) return "UTF-16LE";
    if (side[0] > 1 && weight * side[0] >= pairs && !side[1]) return "UTF-16BE";
    return NULL;
}

bool tp_file_text(const char **text, size_t *n, char *why, size_t size)
{
    const struct mark *mark = mark_of(*text, *n);
    const size_t passed = mark && !*mark->encoding ? mark->length : 0;
    const char *begin = passed ? *text + passed : *text;
    const size_t left = *n - passed;
    const char *zero = left ? memchr(begin, 0, left) : NULL;
    const char *encoding = mark && *mark->encoding ? mark->encoding
                           : zero && !mark         ? encoding_without_mark(begin, left)
                                                   : NULL;
    if (encoding)
        snprintf(why, size, "is %s; convert it to UTF-8, for example with iconv -f %s -t UTF-8",
                 encoding, encoding);
    else if (zero)
        snprintf(why, size, "has a zero byte at offset %zu: it is not text in UTF-8",
                 (size_t)(zero - *text));
    if (encoding || zero) return false;
    *text = begin;
    *n = left;
    return true;
}

const char *tp_json_reason(const char *text)
{
    return strstr(text, "JSON_ALLOW_NUL")
               ? "a text has the character \\u0000, which no text may have"
               : text;
}
