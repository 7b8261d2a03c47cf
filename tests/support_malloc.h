/* support_malloc.h - host memory that runs out at the n-th allocation, and a count of live blocks.
 *
 * A test program that links with MALLOC_WRAPS (tests/CMakeLists.txt) has every allocation of code
 * linked into it, that is of the static libraries, pass through here: the linker redirects the
 * names, which works with and without sanitizers. jansson, a shared library, is brought in by its
 * own hooks. The rest of the shared libraries (OpenMP, OpenBLAS, libarchive, libc inside) is not:
 * the first two end the process when they have no memory, whoever calls them. */
#ifndef TP_SUPPORT_MALLOC_H
#define TP_SUPPORT_MALLOC_H

#include <stddef.h>
#include <stdint.h>

/* From now on the allocations n .. n + count - 1 (counted from 1) fail, on any thread; n = 0: none. */
void malloc_fail(size_t n, size_t count);

/* Ends that; returns how many were asked for since. */
size_t malloc_heal(void);

/* Blocks allocated and not freed since the program began. */
int64_t malloc_live(void);

#endif
