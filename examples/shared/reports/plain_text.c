/* plain_text.c - escapes names and paths for each kind of output. */
#include "plain_text.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/file.h>

char *plain_line(const char *text, char *buf, size_t size)
{
    char shown[TP_PLAIN];
    size_t used = 0, n;
    for (; (n = tp_plain_at(text, shown)) > 0; text += n) {
        const size_t length = strlen(shown);
        if (used + length >= size) break;
        memcpy(buf + used, shown, length);
        used += length;
    }
    buf[used] = '\0';
    return buf;
}

int plain_columns(const char *line)
{
    int n = 0;
    for (; *line; line++) n += ((unsigned char)*line & 0xc0) != 0x80;
    return n;
}

char *plain_utf8(const char *text)
{
    char *copy = malloc(3 * strlen(text) + 1), *at = copy;
    while (copy && *text) {
        uint32_t c;
        const size_t n = tp_utf8_at(text, &c);
        memcpy(at, n ? text : "\xef\xbf\xbd", n ? n : 3);
        at += n ? n : 3;
        text += n ? n : 1;
    }
    if (copy) *at = '\0';
    return copy;
}

void plain_csv(FILE *out, const char *text)
{
    static const char blanks[] = "\t\r\n", formula[] = "=+-@\t\r\n";
    char shown[TP_PLAIN];
    const bool quoted = strpbrk(text, ",\"\r\n\t") != NULL;
    if (quoted) fputc('"', out);
    if (*text && strchr(formula, *text)) fputc('\'', out);
    for (size_t n; (n = tp_plain_at(text, shown)) > 0; text += n) {
        if (*text == '"') fputc('"', out);
        if (strchr(blanks, *text))
            fputc(*text, out);
        else
            fputs(shown, out);
    }
    if (quoted) fputc('"', out);
}

char *plain_file_name(const char *text, char *buf, size_t size)
{
    size_t n = 0;
    for (; *text && n + 1 < size; text++) {
        const char c = *text;
        const bool kept =
            (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        if (kept)
            buf[n++] = c;
        else if (n > 0 && buf[n - 1] != '-')
            buf[n++] = '-';
    }
    if (n > 0 && buf[n - 1] == '-') n--;
    if (n == 0) buf[n++] = 'x';
    buf[n] = '\0';
    return buf;
}

char *plain_read(FILE *in, size_t *n)
{
    size_t room = 4096, used = 0, got;
    char *text = malloc(room + 1);
    while (text && (got = fread(text + used, 1, room - used, in)) > 0) {
        used += got;
        if (used < room) continue;
        char *larger = realloc(text, 2 * room + 1);
        if (!larger) free(text);
        text = larger;
        room *= 2;
    }
    if (text) text[used] = '\0';
    *n = used;
    return text;
}
