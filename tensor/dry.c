/* dry.c - the memory of a dry device: address ranges that must not be accessed.
 *
 * A dry device answers "how much memory would this take". The caching allocator works normally, so
 * its statistics equal those of a real run. But a slab is a reserved range without pages, kernels
 * are skipped, and reads return zeros. A kernel that runs by mistake faults at once. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, MAP_NORESERVE */
#include <string.h>
#include <sys/mman.h>

#include "tensor/backend.h"

static void *reserve(tp_device *D, size_t bytes)
{
    (void)D;
    void *p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static void release(tp_device *D, void *p, size_t bytes)
{
    (void)D;
    munmap(p, bytes);
}

static void drop(tp_device *D, void *dst, const void *src, size_t bytes)
{
    (void)D;
    (void)dst;
    (void)src;
    (void)bytes;
}

static void read_zeros(tp_device *D, void *host, const void *src, size_t bytes)
{
    (void)D;
    (void)src;
    if (bytes) memset(host, 0, bytes);
}

static void skip_zero(tp_device *D, void *dst, size_t bytes)
{
    (void)D;
    (void)dst;
    (void)bytes;
}

static void skip_fill(tp_device *D, void *dst, size_t bytes, const void *value)
{
    (void)value;
    skip_zero(D, dst, bytes);
}

static void skip_sync(tp_device *D)
{
    (void)D;
}

#define DRY(of)                                                                                    \
    {                                                                                              \
        .kind = of, .alloc = reserve, .free = release, .upload = drop, .download = read_zeros,     \
        .copy = drop, .zero = skip_zero, .fill = skip_fill, .sync = skip_sync                      \
    }

const tp_backend tp__dry_backend[TP_NBACKENDS] = {
    [TP_CPU] = DRY(TP_CPU), [TP_CUDA] = DRY(TP_CUDA)
};
