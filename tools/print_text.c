/* print_text.c - see the header. */
#include "print_text.h"

#include <stdio.h>
#include <string.h>
#include <tapegrad/file.h>

void print_text(const char *s, int width)
{
    char shown[TP_PLAIN];
    int columns = 0;
    for (size_t n; (n = tp_plain_at(s, shown)) > 0; s += n) {
        fputs(shown, stdout);
        columns += *shown == '\\' ? (int)strlen(shown) : 1;
    }
    printf("%*s", columns < width ? width - columns : 0, "");
}
