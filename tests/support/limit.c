/* limit.c - limits the address space of the process. */
#include "support/limit.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <unistd.h>

void limit_memory(size_t room, struct rlimit *before)
{
    unsigned long pages = 0;
    cr_assert_eq(getrlimit(RLIMIT_AS, before), 0);
    if (!MEMORY_IS_LIMITED) return;
    FILE *f = fopen("/proc/self/statm", "r");
    cr_assert(f && fscanf(f, "%lu", &pages) == 1 && fclose(f) == 0);
    struct rlimit most = *before;
    most.rlim_cur = pages * (rlim_t)sysconf(_SC_PAGESIZE) + room;
    cr_assert_eq(setrlimit(RLIMIT_AS, &most), 0);
}
