/* limit.h - limits the memory of this process. */
#ifndef TP_SUPPORT_LIMIT_H
#define TP_SUPPORT_LIMIT_H

#include <stddef.h>
#include <sys/resource.h>

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__ /* they map more than any limit */
enum { MEMORY_IS_LIMITED = 0 };
#else
enum { MEMORY_IS_LIMITED = 1 };
#endif

/* Limits the process to `room` more bytes of address space where possible, and sets *before for
 * setrlimit(RLIMIT_AS, before). */
void limit_memory(size_t room, struct rlimit *before);

#endif
