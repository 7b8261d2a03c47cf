/* print_text.c - see the header. */
#include "print_text.h"

#include <stdio.h>

void print_text(const char *s, int width)
{
    int n = 0;
    for (; *s; s++) {
        const unsigned char c = (unsigned char)*s;
        if (c < 0x20 || c == 0x7f)
            n += printf("\\x%02x", c);
        else
            n += putchar(c) >= 0 && (c & 0xc0) != 0x80; /* columns of UTF-8 */
    }
    printf("%*s", n < width ? width - n : 0, "");
}
