/* races.cpp - a race detector for emulated kernels.
 *
 * Every byte of device and shared memory has a cell that records its last write and the reads since
 * then. Time is counted in periods: a new one starts when a launch or a block begins, and at each
 * __syncthreads. Blocks run one after another. A record of this launch from before this block
 * belongs to another block, so it is unordered. A record from an earlier period of this block is
 * ordered by a barrier. Within a period only __syncwarp orders accesses, between lanes of a warp.
 * Collectives such as __shfl_sync order nothing, as CUDA does not promise it. */
#ifdef TP_RACES

#include "races.h"

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <set>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "cuda_runtime.h"

namespace
{

/* ---- watched memory: the block's shared memory, then device memory ---- */

constexpr size_t ARENA = size_t(8) << 30, ZONE = size_t(1) << 20, PAGE = 4096;

/* The last accesses to a byte, by one thread or several. */
struct Record {
    uint32_t period;
    uint16_t who; /* the last thread and flags */
    uint16_t warp_step;
};
enum : uint16_t {
    THREAD = 1023,
    LANES = 1 << 10,  /* also other lanes of the warp since its last __syncwarp */
    WARPS = 1 << 11,  /* also other warps in this period                  */
    BLOCKS = 1 << 12, /* also other blocks in this launch                 */
    ATOMIC = 1 << 13  /* all accesses are atomic                          */
};

struct Cell {
    Record write, read; /* atomic operations are reads that do not race with each other */
};

char *arena; /* ARENA bytes */
Cell *cells; /* one per byte; never cleared, as periods only grow */
size_t shared_used, device_used = ZONE;
std::map<size_t, std::vector<void *>> &released = *new std::map<size_t, std::vector<void *>>();

void *reserve(size_t bytes)
{
    void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        std::fprintf(stderr, "emulation: no address space for the race detector\n");
        std::abort();
    }
    return p;
}

void open_arena()
{
    if (arena) return;
    arena = static_cast<char *>(reserve(ARENA));
    cells = static_cast<Cell *>(reserve(ARENA * sizeof(Cell)));
}

size_t whole_pages(size_t bytes)
{
    return (bytes + PAGE) / PAGE * PAGE; /* at least one byte between neighbours */
}

/* ---- order ---- */

uint32_t period = 1, launch_began = 1, block_began = 1;
uint16_t warp_steps[THREAD + 1]; /* calls of __syncwarp by each thread of this block */
bool found, misaligned;

/* True if the access is unordered with this thread's. Records before `since` are ordered. */
bool disturbs(const Record &r, uint32_t since)
{
    if (r.period < since) return false;
    if (r.period < block_began || r.who & BLOCKS) return true;
    if (r.period < period) return false;
    if (r.who & WARPS) return true;
    const int other = r.who & THREAD;
    if (other / 32 != race_thread / 32) return true;
    return r.warp_step == warp_steps[race_thread] && (other != race_thread || r.who & LANES);
}

/* Adds this thread's access to the record. */
void join(Record &r, uint32_t since, uint16_t flags)
{
    const int other = r.who & THREAD;
    if (r.period >= since && (r.period < block_began || r.who & BLOCKS)) flags |= BLOCKS;
    if (r.period == period) {
        flags |= r.who & WARPS;
        if (other / 32 != race_thread / 32)
            flags |= WARPS;
        else if (r.warp_step == warp_steps[race_thread])
            flags |= other != race_thread ? LANES : r.who & LANES;
    }
    r = { period, uint16_t(race_thread | flags), warp_steps[race_thread] };
}

/* Records an access, or returns the record of a write or read that it races with. */
const Record *touch(Cell &c, uint32_t since, race_access how)
{
    const bool atomic = c.read.who & ATOMIC;
    const Record *met =
        disturbs(c.write, since)                                                         ? &c.write
        : how != RACE_READ && !(how == RACE_ATOMIC && atomic) && disturbs(c.read, since) ? &c.read
        : how == RACE_READ && atomic && disturbs(c.read, since)                          ? &c.read
                                                                                         : nullptr;
    if (met) return met;
    if (how == RACE_WRITE)
        c.write = { period, uint16_t(race_thread), warp_steps[race_thread] };
    else if ((how == RACE_ATOMIC) == atomic)
        join(c.read, since, how == RACE_ATOMIC ? ATOMIC : 0);
    else
        c.read = { period, uint16_t(race_thread | (how == RACE_ATOMIC ? ATOMIC : 0)),
                   warp_steps[race_thread] };
    return nullptr;
}

/* ---- reports, one per place in the code ---- */

constexpr size_t MOST_REPORTS = 20;

bool first_time(const void *from)
{
    static std::set<const void *> &told = *new std::set<const void *>();
    return told.size() < MOST_REPORTS && told.insert(from).second;
}

/* Prints the source lines of the call that returns to `from`. */
void print_place(const void *from)
{
    Dl_info in;
    if (!dladdr(from, &in) || !in.dli_fname) return;
    char name[PATH_MAX] = "", command[PATH_MAX + 64];
    if (readlink("/proc/self/exe", name, sizeof name - 1) < 0) return;
    std::snprintf(
        command, sizeof command, "addr2line -Cfpie '%s' %#zx >&2",
        access(in.dli_fname, R_OK) ? name : in.dli_fname, /* argv[0] may be no path */
        size_t(static_cast<const char *>(from) - 1 - static_cast<const char *>(in.dli_fbase)));
    std::fflush(stderr);
    if (std::system(command)) std::fprintf(stderr, "%s\n", command);
}

void report_race(const Record &r, bool of_write, size_t at, race_access how, const void *from)
{
    static const char *const names[] = { "reads", "writes", "changes" };
    found = true;
    if (!first_time(from)) return;
    const int other = r.who & THREAD;
    const bool block = r.period < block_began || r.who & BLOCKS;
    std::fprintf(stderr,
                 "emulation: race: thread %d of block %u,%u,%u %s byte %zu of %s memory, which ",
                 race_thread, blockIdx.x, blockIdx.y, blockIdx.z, names[how],
                 at < ZONE ? at : at - ZONE, at < ZONE ? "shared" : "device");
    std::fprintf(stderr,
                 block                     ? "another block %s%s"
                 : r.who & (LANES | WARPS) ? "several threads %s%s"
                                           : "thread %3$d %1$s%2$s",
                 of_write         ? "wrote"
                 : r.who & ATOMIC ? "changed"
                                  : "read",
                 block ? " in this launch"
                 : other / 32 == race_thread / 32 && !(r.who & WARPS)
                     ? " without __syncwarp between them"
                     : " without __syncthreads between them",
                 other);
    std::fprintf(stderr, "\n");
    print_place(from);
}

void report_misaligned(const void *at, size_t bytes, const void *from)
{
    misaligned = true;
    if (!first_time(from)) return;
    std::fprintf(stderr, "emulation: %p is not aligned to %zu bytes\n", at, bytes);
    print_place(from);
}

} // namespace

/* ---- calls from the emulation ---- */

void race_launch()
{
    shared_used = 0;
    open_arena();
    launch_began = block_began = ++period;
    found = misaligned = false;
}

void race_block()
{
    block_began = ++period;
    std::memset(warp_steps, 0, sizeof warp_steps);
}

void race_barrier()
{
    period++;
}

void race_warp()
{
    warp_steps[race_thread]++;
}

bool race_found()
{
    return found;
}

bool race_misaligned()
{
    return misaligned;
}

void race_touch(const void *at, size_t bytes, race_access how, const void *from)
{
    const size_t first = size_t(static_cast<const char *>(at) - arena);
    if (race_thread < 0 || first >= ARENA) return;
    const uint32_t since = first < ZONE ? block_began : launch_began;
    for (size_t i = first; i < first + bytes; i++) {
        const Record *met = touch(cells[i], since, how);
        if (met) return report_race(*met, met == &cells[i].write, i, how, from);
    }
}

void *race_memory(size_t bytes)
{
    open_arena();
    const size_t size = whole_pages(bytes);
    std::vector<void *> &list = released[size];
    void *p = nullptr;
    if (!list.empty()) {
        p = list.back();
        list.pop_back();
    } else if (size <= ARENA - device_used) {
        p = arena + device_used;
        device_used += size;
    }
    return p;
}

/* Frees the cells of large allocations, which are many times larger. */
void race_release(void *p, size_t bytes)
{
    const size_t size = whole_pages(bytes);
    if (size > ZONE)
        madvise(cells + (static_cast<char *>(p) - arena), size * sizeof(Cell), MADV_DONTNEED);
    released[size].push_back(p);
}

void *race_shared(size_t bytes)
{
    char *p = arena + shared_used;
    shared_used += (bytes + 1 + 255) / 256 * 256;
    return p;
}

/* ---- calls that the compiler inserts ---- */

#define HERE __builtin_return_address(0)
/* The compiler also merges two 8-byte accesses into a 16-byte one, so 8-byte alignment suffices. */
#define HOOK(name, bytes, how, aligned)                                                            \
    void name(void *at)                                                                            \
    {                                                                                              \
        if (aligned && race_thread >= 0 && reinterpret_cast<uintptr_t>(at) % (bytes) % 8)          \
            report_misaligned(at, bytes, HERE);                                                    \
        race_touch(at, bytes, how, HERE);                                                          \
    }
#define HOOKS(bytes)                                                                               \
    HOOK(__tsan_read##bytes, bytes, RACE_READ, true)                                               \
    HOOK(__tsan_write##bytes, bytes, RACE_WRITE, true)                                             \
    HOOK(__tsan_unaligned_read##bytes, bytes, RACE_READ, false)                                    \
    HOOK(__tsan_unaligned_write##bytes, bytes, RACE_WRITE, false)

struct Mismatch { /* the compiler's layout */
    const char *file;
    uint32_t line, column;
    const void *type;
    uint8_t log_alignment, kind;
};

extern "C" {

HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

void __tsan_read_range(void *at, size_t bytes)
{
    race_touch(at, bytes, RACE_READ, HERE);
}
void __tsan_write_range(void *at, size_t bytes)
{
    race_touch(at, bytes, RACE_WRITE, HERE);
}
void __tsan_init(void) {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit(void) {}
void __tsan_vptr_update(void **, void *) {}
void __tsan_vptr_read(void **) {}

/* Called by -fsanitize=alignment for an address less aligned than its type requires, including
 * types of 16 bytes. */
void __ubsan_handle_type_mismatch_v1(Mismatch *what, void *at)
{
    if (race_thread >= 0) report_misaligned(at, size_t(1) << what->log_alignment, HERE);
}
}

#endif
