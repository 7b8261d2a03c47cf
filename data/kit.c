/* kit.c - see the header. */
#include "kit.h"

#include <stdarg.h>
#include <stdio.h>

bool tp__first_reason(char *why, size_t size, const char *fmt, ...)
{
    va_list ap;
    if (why[0]) return false;
    va_start(ap, fmt);
    vsnprintf(why, size, fmt, ap);
    va_end(ap);
    return false;
}
