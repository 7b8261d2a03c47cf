/* print_text.c - names of files and texts from them, which may hold anything, and shapes. */
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

const char *shape_text(const tp_shape *s, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "[");
    for (int i = 0; i < s->ndim && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%lld", i ? "," : "",
                                 (long long)s->dim[i]);
    if (used < size) snprintf(text + used, size - used, "]");
    return text;
}
