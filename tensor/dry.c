/* dry.c - the memory of a dry device: address ranges that must not be accessed.
 *
 * A dry device answers "how much memory would this take". The caching allocator works normally, so
 * its statistics equal those of a real run. But a slab is a range of addresses that no process has,
 * which costs nothing, kernels are skipped, and reads return zeros. A kernel run by mistake faults
 * at once. */
#include <stdatomic.h>
#include <string.h>

#include "tensor/backend.h"

/* Addresses with bits 48 to 54, which x86-64 and ARM64 give to a process only on request. They
 * repeat after 2^54 bytes, which is harmless because nothing reads them. */
#define FIRST (UINT64_C(1) << 48)
#define RANGE (UINT64_C(1) << 54)
#define MOST  (UINT64_C(1) << 47)
#define PAGE  UINT64_C(4096)

static void *reserve(tp_device *D, size_t bytes)
{
    static _Atomic uint64_t used;
    (void)D;
    if (bytes > MOST) return NULL;
    const uint64_t size = (bytes + PAGE - 1) / PAGE * PAGE;
    return (void *)(uintptr_t)(FIRST + atomic_fetch_add(&used, size) % RANGE);
}

static void release(tp_device *D, void *p, size_t bytes)
{
    (void)D;
    (void)p;
    (void)bytes;
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
