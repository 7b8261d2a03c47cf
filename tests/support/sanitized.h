/* sanitized.h - what tests leave out in builds with the address sanitizer, which makes updates and
 * kernels several times as long. */
#ifndef TP_SUPPORT_SANITIZED_H
#define TP_SUPPORT_SANITIZED_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __SANITIZE_ADDRESS__
#define TP_SANITIZED true
#else
#define TP_SANITIZED false
#endif

/* True in such a build: there a run need not learn anything. */
static inline bool sanitized(void)
{
    return TP_SANITIZED;
}

/* True if case i of a list is run: every one, or every third in such a build. For lists whose cases
 * take different numbers through the same code. */
static inline bool case_is_taken(size_t i)
{
    return !sanitized() || i % 3 == 0;
}

#endif
