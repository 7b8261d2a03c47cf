/* checked.h - AddressSanitizer in inner loops: ranges are checked as a whole before the loop, whose
 * function is not instrumented (TP_CHECKED_BEFORE), since a check of each access makes the loops of
 * products several times as long. Without the sanitizer nothing is left of it. */
#ifndef TP_CHECKED_H
#define TP_CHECKED_H

#include <stddef.h>

#ifdef __SANITIZE_ADDRESS__
#define TP_CHECKED_BEFORE __attribute__((no_sanitize("address"), noinline))
/* The sanitizer's own, which report a bad byte in the range like a bad access. */
void __asan_loadN(const void *at, size_t bytes);
void __asan_storeN(void *at, size_t bytes);
#define TP_CHECK_READ(at, bytes)  __asan_loadN(at, bytes)
#define TP_CHECK_WRITE(at, bytes) __asan_storeN(at, bytes)
#else
#define TP_CHECKED_BEFORE
#define TP_CHECK_READ(at, bytes)  ((void)(at), (void)(bytes))
#define TP_CHECK_WRITE(at, bytes) ((void)(at), (void)(bytes))
#endif

#endif
