/* text.c - text utilities: endings, UTF-8, safe display on a terminal, growing arrays, numbers in
 * files, and whether the content of a file is text. */
#include <locale.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/file.h>

bool tp_ends_in(const char *text, const char *end)
{
    if (!text || !end) return false;
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* The length of the UTF-8 sequence that begins with this byte; 0 if none does. */
static int length_of(unsigned char first)
{
    if (first < 0x80) return 1;
    if (first >= 0xc2 && first < 0xe0) return 2;
    if (first >= 0xe0 && first < 0xf0) return 3;
    return first >= 0xf0 && first < 0xf5 ? 4 : 0;
}

size_t tp_utf8_at(const char *text, uint32_t *character)
{
    const unsigned char *s = (const unsigned char *)text;
    if (!text || !character) return 0;
    const int n = length_of(*s);
    uint32_t letter = n > 1 ? *s & (0x7fu >> n) : *s;
    for (int k = 1; k < n; k++) {
        if ((s[k] & 0xc0) != 0x80) return 0; /* also catches the final zero */
        letter = letter << 6 | (s[k] & 0x3fu);
    }
    const bool surrogate = letter >= 0xd800 && letter < 0xe000;
    const bool longer = (n == 3 && letter < 0x800) || (n == 4 && letter < 0x10000);
    *character = letter;
    return surrogate || longer || letter > 0x10ffff ? 0 : (size_t)n;
}

bool tp_is_utf8(const char *text)
{
    uint32_t letter;
    if (!text) return false;
    while (*text) {
        const size_t n = tp_utf8_at(text, &letter);
        if (n == 0) return false;
        text += n;
    }
    return true;
}

/* Terminal controls, and characters that reverse or hide what follows them. */
static bool commands(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || (c >= 0x200b && c <= 0x200f) ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || c == 0xfeff;
}

size_t tp_plain_at(const char *text, char shown[TP_PLAIN])
{
    uint32_t c;
    if (!text || !shown) return 0;
    const size_t n = tp_utf8_at(text, &c), bytes = !*text ? 0 : n ? n : 1;
    shown[0] = '\0';
    if (bytes && n && !commands(c)) {
        memcpy(shown, text, n);
        shown[n] = '\0';
    } else if (*text == '\n' || *text == '\t')
        snprintf(shown, TP_PLAIN, "\\%c", *text == '\n' ? 'n' : 't');
    else
        for (size_t i = 0; i < bytes; i++)
            snprintf(shown + 4 * i, TP_PLAIN - 4 * i, "\\x%02x", (unsigned char)text[i]);
    return bytes;
}

const char *tp_plain(const char *text, char *shown, size_t size)
{
    char one[TP_PLAIN];
    size_t used = 0, n, length;
    if (!shown) return "";
    if (size) *shown = '\0';
    while ((n = tp_plain_at(text, one)) > 0 && used + (length = strlen(one)) < size) {
        memcpy(shown + used, one, length + 1);
        used += length;
        text += n;
    }
    return shown;
}

/* ---- arrays that grow ---- */

bool tp_reserve(void *array, size_t *room, size_t used, size_t n, size_t size)
{
    void *at;
    size_t want;
    if (!array || !room) return false;
    memcpy(&at, array, sizeof at);
    if (at && n <= *room && used <= *room - n) return true;
    if (size == 0 || n > SIZE_MAX / 8 || used > SIZE_MAX / 8) return false;
    want = 2 * (used + n) + 64;
    at = want <= SIZE_MAX / 2 / size ? realloc(at, want * size) : NULL;
    if (!at) return false;
    memcpy(array, &at, sizeof at);
    *room = want;
    return true;
}

/* ---- numbers ---- */

/* Numbers in files follow C's rules in any locale of the program. Only the calling thread's locale
 * is set; glibc and musl keep C's locale as a constant, so nothing is allocated. */
void *tp_c_locale_begin(void)
{
    const locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    return uselocale(c);
}

void tp_c_locale_end(void *before)
{
    uselocale(before);
}

double tp_number_read(const char *text, char **end)
{
    if (end) *end = NULL;
    if (!text) return 0.0;
    void *before = tp_c_locale_begin();
    const double x = strtod(text, end);
    tp_c_locale_end(before);
    return x;
}

int tp_number_write(char *text, size_t size, double x, int digits)
{
    int length;
    char own[64];
    if (!text || size == 0) {
        text = own;
        size = sizeof own;
    }
    void *before = tp_c_locale_begin();
    do {
        length = snprintf(text, size, "%.*g", digits, x);
    } while (digits++ < 17 && strtod(text, NULL) != x);
    tp_c_locale_end(before);
    return length;
}

/* ---- content of files ---- */

/* Checks that a file's content is UTF-8 text before anything reads it.
 *
 *     UTF-8 EF BB BF         UTF-16LE FF FE    UTF-16BE FE FF
 *     UTF-32LE FF FE 00 00   UTF-32BE 00 00 FE FF
 *
 * Without such a mark, the positions of zero bytes distinguish UTF-16 and UTF-32 from other
 * content. UTF-16 without ASCII letters, digits and spaces is not detected; readers then find
 * invalid UTF-8. */

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

/* The third byte of a UTF-32 character: a Unicode plane in use, and never a line end. */
static bool is_plane(char byte)
{
    const unsigned char plane = (unsigned char)byte;
    return plane <= 3 || (plane >= 14 && plane <= 16);
}

/* In UTF-32 every character has a zero beside its plane; zeros only are not UTF-32. In UTF-16 the
 * zeros of ASCII characters are all on one side: half of the characters, or one in eight beside
 * other scripts. A single zero proves nothing. NULL: neither. */
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
    const bool empty = zeros[0] + zeros[1] + zeros[2] + zeros[3] == 4 * quads;
    if (!empty && zeros[3] == quads && planes[2] == quads) return "UTF-32LE";
    if (!empty && zeros[0] == quads && planes[1] == quads) return "UTF-32BE";
    if (side[1] > 1 && weight * side[1] >= pairs && !side[0]) return "UTF-16LE";
    if (side[0] > 1 && weight * side[0] >= pairs && !side[1]) return "UTF-16BE";
    return NULL;
}

bool tp_skip_bom(const char **text, size_t *n, char *why, size_t size)
{
    if (!why) size = 0;
    if (!text || !n || (!*text && *n)) {
        snprintf(why, size, "NULL was given in place of a text");
        return false;
    }
    const struct mark *mark = *text ? mark_of(*text, *n) : NULL;
    const size_t passed = mark && !*mark->encoding ? mark->length : 0;
    const char *begin = passed ? *text + passed : *text;
    const size_t left = *n - passed;
    const char *zero = begin && left ? memchr(begin, 0, left) : NULL;
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
    if (!text) return "";
    return strstr(text, "JSON_ALLOW_NUL")
               ? "a text has the character \\u0000, which no text may have"
               : text;
}
