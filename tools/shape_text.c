/* shape_text.c - see the header. */
#include "shape_text.h"

#include <stdio.h>

const char *shape_text(const tp_shape *s, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "[");
    for (int i = 0; i < s->ndim && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%lld", i ? "," : "",
                                 (long long)s->dim[i]);
    if (used < size) snprintf(text + used, size - used, "]");
    return text;
}
