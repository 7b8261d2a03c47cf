/* nearest.h - finds the known name nearest to a mistyped one. */
#ifndef TAPEGRAD_NEAREST_H
#define TAPEGRAD_NEAREST_H

#include <tapegrad/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The nearest of the names tried so far. A name is near if few letters are wrong, missing,
 * superfluous or exchanged for its length, or else if it shares a word with the typed one
 * ("batch-size", "batch") or begins with it. Case does not matter, and _ equals -. */
typedef struct tp_nearest {
    const char *typed;
    char name[64]; /* "" if no name is near */
    double cost;   /* of name; the first of equals stays */
} tp_nearest;

TP_API tp_nearest tp_nearest_to(const char *typed); /* borrowed while names are tried */

/* Tries each of the names, which are separated by blanks or |. NULL: none. */
TP_API void tp_nearest_try(tp_nearest *n, const char *names);

#ifdef __cplusplus
}
#endif
#endif
