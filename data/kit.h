/* kit.h - shared by the files of the data library: failing objects, growing arrays, white space. */
#ifndef TP_KIT_H
#define TP_KIT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <tapegrad/base.h>
#include <tapegrad/file.h>

/* ---- failing ---- */

/* An object keeps the reason of its first failure in `why`, which is "" while the object is ok. */
enum { TP_WHY = 1400 };

/* Writes the reason of a failure to why unless there is an earlier one. Returns false. */
TP_PRINTF(3, 4)
static inline bool tp__first_reason(char *why, size_t size, const char *fmt, ...)
{
    va_list ap;
    if (why[0]) return false;
    va_start(ap, fmt);
    vsnprintf(why, size, fmt, ap);
    va_end(ap);
    return false;
}

/* Fails an object: tp__fail(X, "table %s: ...", name). Returns false. */
#define tp__fail(X, ...) tp__first_reason((X)->why, sizeof(X)->why, __VA_ARGS__)

/* Defines TYPE_ok, TYPE_why with its answer to NULL, and `nil`, the failed object that constructors
 * return when out of memory. */
#define TP_FAILS(TYPE, nil, no_memory, no_object)                                                  \
    static TYPE nil = { .why = no_memory };                                                        \
    bool TYPE##_ok(const TYPE *X)                                                                  \
    {                                                                                              \
        return X && !X->why[0];                                                                    \
    }                                                                                              \
    const char *TYPE##_why(const TYPE *X)                                                          \
    {                                                                                              \
        return X ? X->why : no_object;                                                             \
    }

/* ---- shares ---- */

/* Whether a share is possible; the message about one that is not, for its rank and ranks. */
static inline bool tp__share_ok(tp_share s)
{
    return s.rank >= 0 && s.ranks >= 0 && s.rank < (s.ranks ? s.ranks : 1);
}
#define TP_NO_SHARE                                                                                \
    "the share is that of rank %d of %d; ranks are numbered from 0, so give one below their number"

/* ---- arrays and texts ---- */

static inline bool tp__is_white(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Strips leading and trailing blanks, which are not part of a text8 split. */
static inline void tp__strip_blanks(const uint8_t **text, int64_t *n)
{
    while (*n > 0 && (**text == ' ' || **text == '\n')) (*text)++, (*n)--;
    while (*n > 0 && ((*text)[*n - 1] == ' ' || (*text)[*n - 1] == '\n')) (*n)--;
}

#endif
