/* malloc.h - makes the n-th host allocation fail and counts live blocks.
 *
 * In a test program that links with MALLOC_WRAPS (tests/CMakeLists.txt), the linker redirects every
 * allocation of statically linked code to this file, with and without sanitizers. The shared
 * library jansson is redirected by its own hooks. The other shared libraries (OpenBLAS, libarchive,
 * libc itself) are not: the first two end the process when out of memory. */
#ifndef TP_SUPPORT_MALLOC_H
#define TP_SUPPORT_MALLOC_H

#include <stddef.h>
#include <stdint.h>

/* Makes allocations n .. n + count - 1, counted from 1, fail on any thread; n = 0: none. */
void malloc_fail(size_t n, size_t count);

/* Ends the shortage and returns the number of allocations requested since malloc_fail. */
size_t malloc_heal(void);

/* Blocks allocated and not freed since the program began. */
int64_t malloc_live(void);

#endif
