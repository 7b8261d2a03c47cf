/* text.c - properties of texts: how they end, whether JSON in a checkpoint can hold them, and how a
 * terminal may show them. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <tapegrad/file.h>

bool tp_ends_in(const char *text, const char *end)
{
    if (!text || !end) return false;
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* Length of a UTF-8 sequence that begins with this byte; 0 if the byte cannot begin one. */
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

/* Characters that a terminal obeys, or that reverse or hide what follows them. */
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
    if (size) *shown = '\0';
    while ((n = tp_plain_at(text, one)) > 0 && used + (length = strlen(one)) < size) {
        memcpy(shown + used, one, length + 1);
        used += length;
        text += n;
    }
    return shown;
}
