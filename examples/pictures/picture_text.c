/* picture_text.c - texts of pictures: any bytes become a gnuplot string that shows them as they are.
 * Widths are estimates for a sans-serif font. */
#include <ctype.h>
#include <stdint.h>
#include <string.h>
#include <tapegrad/file.h>

#include "picture_inner.h"

static const double EM = 0.57; /* the usual width of a letter, in font sizes */
static const char unknown[] = "\xef\xbf\xbd", cut[] = "\xe2\x80\xa6";

/* In letters: characters of East Asian scripts have the width of two. */
static int width_of(uint32_t c)
{
    return 1 + ((c >= 0x1100 && c <= 0x115f) || (c >= 0x2e80 && c <= 0xd7a3) ||
                (c >= 0xf900 && c <= 0xfaff) || (c >= 0xff00 && c <= 0xff60) || c >= 0x1f300);
}

/* The character at s, where control characters are blanks; returns its bytes. *shown is what stands for
 * it, of *size bytes. */
static size_t shown_as(const char *s, const char **shown, size_t *size, int *width)
{
    uint32_t c = 0;
    size_t n = tp_utf8_at(s, &c);
    if (c == 0xfffe || c == 0xffff) n = 0; /* XML cannot hold them */
    *shown = n ? s : unknown;
    *size = n ? n : strlen(unknown);
    if (n && (c < 0x20 || (c >= 0x7f && c < 0xa0))) {
        *shown = " ";
        *size = 1;
    }
    *width = n ? width_of(c) : 1;
    return n ? n : 1;
}

static double letters_in(const char *s, size_t bytes)
{
    const char *const end = s + bytes, *shown;
    size_t size;
    int width;
    double sum = 0;
    while (s < end && *s) {
        s += shown_as(s, &shown, &size, &width);
        sum += width;
    }
    return sum;
}

double text_width(const char *text, double font)
{
    return text ? letters_in(text, strlen(text)) * EM * font : 0;
}

/* A character in a double-quoted string of gnuplot. Punctuation becomes an octal number, so that none
 * can be an escape, a command to substitute or the end of the string; so do digits, which would prolong
 * such a number. */
static void put_character(FILE *f, const char *s, size_t bytes)
{
    if (bytes > 1 || isalpha((unsigned char)*s) || *s == ' ')
        fwrite(s, 1, bytes, f);
    else
        fprintf(f, "\\%03o", (unsigned)(unsigned char)*s);
}

void put_text(sheet *s, const char *text, size_t bytes, double font, double width, bool tic)
{
    const char *const end = text + bytes;
    const double most = width / (EM * font);
    const bool whole = letters_in(text, bytes) <= most;
    double used = whole ? 0 : 1;
    fputc('"', s->f);
    while (text < end && *text) {
        const char *shown;
        size_t size;
        int letters;
        text += shown_as(text, &shown, &size, &letters);
        used += letters;
        if (!whole && used > most) break;
        if (*shown == '%' && tic) put_character(s->f, shown, size);
        put_character(s->f, shown, size);
    }
    if (!whole) fputs(cut, s->f);
    fputc('"', s->f);
}

size_t next_line(const char **text, double font, double width)
{
    *text += strspn(*text, " \n");
    size_t line = strcspn(*text, " \n");
    while ((*text)[line] && (*text)[line] != '\n') {
        const size_t more = line + 1 + strcspn(*text + line + 1, " \n");
        if (letters_in(*text, more) * EM * font > width) break;
        line = more;
    }
    return line;
}
