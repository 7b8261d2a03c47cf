/* parity_exceptions.h - reasons that several tables of exceptions share. */
#ifndef PARITY_EXCEPTIONS_H
#define PARITY_EXCEPTIONS_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "parity_audit.h"

static inline bool is(parity *p, const char *key, const char *value)
{
    const char *text = par_text(p, key);
    return text && strcmp(text, value) == 0;
}

static inline int64_t number(parity *p, const char *key)
{
    const char *text = par_text(p, key);
    return text ? strtoll(text, NULL, 10) : 0;
}

/* True if one value is `a` and the other `b`. */
static inline bool are(const char *from, const char *to, const char *a, const char *b)
{
    return (strcmp(from, a) == 0 && strcmp(to, b) == 0) ||
           (strcmp(from, b) == 0 && strcmp(to, a) == 0);
}

/* Changes this small are lost in the rounding of the reference next to variances of 10 and more. Ten
 * times the usual 1e-5, or adding 1, is not. */
static inline bool small_change(parity *p, const char *from, const char *to)
{
    static const double lost = 2.1e-5;
    (void)p;
    return fabs(strtod(from, NULL) - strtod(to, NULL)) <= lost;
}

static inline bool one_side(parity *p, const char *from, const char *to)
{
    const size_t n = strlen(to);
    (void)p;
    return strlen(from) == 2 * n + 1 && strncmp(from, to, n) == 0 && strcmp(from + n + 1, to) == 0;
}

#endif
