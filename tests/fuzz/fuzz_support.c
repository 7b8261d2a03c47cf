/* fuzz_support.c - files in memory and demands for the fuzzers. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

void fuzz_demand(bool holds, const char *text)
{
    if (holds) return;
    dprintf(STDERR_FILENO, "demand broken: %s\n", text); /* a target may have turned stderr away */
    abort();
}

void fuzz_demand_reason(bool ok, const char *why)
{
    fuzz_demand(ok == !why[0], ok ? "a good object gives no reason" : "a bad object gives one");
}

const char *fuzz_path(const void *bytes, size_t size)
{
    static int fd = -1;
    static char path[40];
    if (fd < 0) fd = memfd_create("fuzz", MFD_CLOEXEC);
    fuzz_demand(fd >= 0 && ftruncate(fd, 0) == 0, "a file in memory can be made");
    for (size_t done = 0; done < size;) {
        const ssize_t n = pwrite(fd, (const char *)bytes + done, size - done, (off_t)done);
        fuzz_demand(n > 0, "a file in memory can be written");
        done += (size_t)n;
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return path;
}
