/* emulated_memory.h - the memory of the emulated GPUs: who owns it, and when the host may read it.
 * Part of emulated_device.cpp. */
#ifndef EMULATED_MEMORY_H
#define EMULATED_MEMORY_H

#include <cstdlib>
#include <cstring>
#include <map>

#include "cuda_runtime.h"
#include "emulation.h"
#include "races.h"

#ifdef TP_ASAN
#include <sanitizer/asan_interface.h>
#else
#define __asan_poison_memory_region(p, n)   ((void)(p), (void)(n))
#define __asan_unpoison_memory_region(p, n) ((void)(p), (void)(n))
#endif

namespace
{

constexpr int POISON = 0xff; /* NaN in every floating type, -1 in integers */

struct Allocation {
    size_t bytes;
    int gpu;
};

std::map<char *, Allocation> allocations;
std::map<void *, size_t> pinned; /* host memory and its bytes */
size_t in_use[EMULATION_GPUS];
thread_local int current; /* the GPU */
/* The dynamic shared memory that cudaFuncSetAttribute granted each kernel, per GPU. */
std::map<const void *, size_t> asked[EMULATION_GPUS];
int opened = -1; /* the GPU whose memory is open; -1: the host runs, which must not access any */
int batches;     /* runs of queued work, one within the other */
cudaError_t last_error;

/* cuBLAS's workspace of 32 MiB stays open: to mark it would take longer than most launches. */
bool marked(const Allocation &a)
{
    return a.bytes < size_t(16) << 20;
}

/* Opens the memory of this GPU, and closes that of the one before; -1: of none. */
void open_memory(int gpu)
{
    if (gpu == opened) return;
    for (const auto &a : allocations)
        if (!marked(a.second))
            continue;
        else if (a.second.gpu == gpu)
            __asan_unpoison_memory_region(a.first, a.second.bytes);
        else if (a.second.gpu == opened)
            __asan_poison_memory_region(a.first, a.second.bytes);
    opened = gpu;
}

/* Opens the memory of the stream's GPU, but of no other GPU. */
void enter(cudaStream_t s)
{
    open_memory(s->gpu);
}

/* Marking all memory costs more than a small launch, so queued work leaves it open for the next. */
void leave()
{
    if (batches == 0) open_memory(-1);
}

/* True if the address is on another GPU. */
bool elsewhere(const void *p, cudaStream_t s)
{
    const char *at = static_cast<const char *>(p);
    auto a = allocations.upper_bound(const_cast<char *>(at));
    if (a == allocations.begin()) return false;
    --a;
    return at < a->first + a->second.bytes && a->second.gpu != s->gpu;
}

void *poisoned(void *p, size_t bytes)
{
    return p ? std::memset(p, POISON, bytes) : nullptr;
}

#ifdef TP_RACES
void *new_memory(size_t bytes)
{
    return race_memory(bytes);
}
void free_memory(void *p, size_t bytes)
{
    race_release(p, bytes);
}
void *new_shared(size_t bytes)
{
    return race_shared(bytes);
}
void free_shared(void *) {}
#else
void *new_memory(size_t bytes)
{
    void *p = nullptr;
    return posix_memalign(&p, 256, bytes ? bytes : 1) ? nullptr : p;
}
void free_memory(void *p, size_t)
{
    std::free(p);
}
void *new_shared(size_t bytes)
{
    return new_memory(bytes);
}
void free_shared(void *p)
{
    std::free(p);
}
#endif

} /* namespace */

#endif
