/* emulated_device.cpp - runs blocks one after another, and the threads of a block on fibers.
 *
 * A fiber runs threads of the block one by one, in the chosen order. A waiting thread keeps its
 * fiber, and the next thread gets another, so kernels without barriers run on one fiber without
 * switching. If no thread can proceed, the kernel has deadlocked: the launch fails where a GPU
 * would hang. */
#include "counts.h"
#include "cuda_runtime.h"
#include "emulated_memory.h"
#include "emulation.h"
#include "races.h"

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <ucontext.h>
#include <vector>

#ifdef TP_ASAN /* this file itself is not instrumented */
#include <sanitizer/common_interface_defs.h>
#else
#define __sanitizer_start_switch_fiber(save, base, n)  ((void)(save), (void)(base), (void)(n))
#define __sanitizer_finish_switch_fiber(save, base, n) ((void)(save), (void)(base), (void)(n))
#endif

uint3 threadIdx, blockIdx;
int race_thread = -1;
dim3 blockDim, gridDim;
extern "C" {
emulation_settings emulation = {
    FORWARD,     1, cudaSuccess, cudaSuccess, 1,           13000, 9, 2, size_t(1) << 30,
    cudaSuccess, 0, cudaSuccess, cudaSuccess, cudaSuccess, 0,     0, 0, 0
};
}

namespace
{

constexpr size_t STACK = 256 << 10;
constexpr size_t SHARED = 99 << 10;  /* per block; the minimum, of 8.6 and 8.9 */
constexpr size_t UNASKED = 48 << 10; /* without cudaFuncSetAttribute and for declared arrays */

/* ---- fibers ---- */

struct Fiber {
    ucontext_t first;
    void *jump[5];
    bool begun = false;
    char *stack;
    void *fake; /* the address sanitizer's fake stack */
};

enum State { NEW, READY, AT_BARRIER, AT_WARP, DONE };

struct Copy {
    void *to;
    const void *from;
    size_t bytes;
    int group;
};

struct Thread {
    State state = NEW;
    Fiber *fiber = nullptr;
    int groups = 0; /* committed groups of asynchronous copies */
    std::vector<Copy> copies;
};

struct Warp {
    uint64_t slot[2][32];
    uint32_t words[2][32][6]; /* fragments of the round, in addition to the slots */
    int arrived[2], round[32];
};

struct Block {
    emulated_body body;
    const void *env;
    std::vector<Thread> threads;
    std::vector<Warp> warps;
    std::vector<unsigned> order;
    size_t next = 0, end = 0; /* positions in `order`: the next thread, and the end */
    bool moved = false;       /* a thread ran */
    int now = 0;
    struct Array {
        char *at;
        size_t bytes;
        bool used; /* by this block; the memory serves all blocks of a launch */
    };
    std::map<const void *, Array> shared;
    size_t dynamic_bytes = 0, declared_bytes = 0;
    bool misaligned = false, unfinished = false; /* a misaligned copy; one never waited for */
    bool not_global = false;                     /* address of a store to global memory */
};

Block *B;
std::vector<Fiber *> idle;
/* All fibers, even of deadlocked blocks. Never destroyed, so nothing leaks. */
std::vector<Fiber *> &made = *new std::vector<Fiber *>();
Fiber scheduler;
const void *scheduler_stack;
size_t scheduler_size;
bool from_scheduler; /* the last switch left the scheduler */
uint64_t started;

void select_thread(int i)
{
    const unsigned u = unsigned(i);
    B->now = race_thread = i;
    threadIdx = { u % blockDim.x, u / blockDim.x % blockDim.y, u / blockDim.x / blockDim.y };
}

/* Switches from one fiber to another. swapcontext makes a system call for the signal mask each
 * time, which would dominate the run time; only a fiber's first entry uses setcontext. */
__attribute__((noinline, no_sanitize_address)) void change(Fiber &from, Fiber &to)
{
    from.begun = true;
    if (__builtin_setjmp(from.jump)) return;
    if (to.begun) __builtin_longjmp(to.jump, 1);
    setcontext(&to.first);
}

void fiber_main();

Fiber *take_fiber()
{
    if (!idle.empty()) {
        Fiber *f = idle.back();
        idle.pop_back();
        return f;
    }
    Fiber *f = new Fiber();
    made.push_back(f);
    f->stack = static_cast<char *>(std::malloc(STACK));
    getcontext(&f->first);
    f->first.uc_stack.ss_sp = f->stack;
    f->first.uc_stack.ss_size = STACK;
    f->first.uc_link = nullptr;
    makecontext(&f->first, fiber_main, 0);
    return f;
}

/* Selects the next thread in order that can run. False if there is none before the end. */
bool select_next()
{
    while (B->next < B->end) {
        const unsigned i = B->order[B->next++];
        const State s = B->threads[i].state;
        if (s != NEW && s != READY) continue;
        B->moved = true;
        select_thread(int(i));
        return true;
    }
    return false;
}

/* On a fiber that has arrived: notes where the scheduler's stack is if that was left. */
void arrive(void *fake)
{
    const void *stack = nullptr;
    size_t size = 0;
    __sanitizer_finish_switch_fiber(fake, &stack, &size);
    if (!from_scheduler) return;
    scheduler_stack = stack;
    scheduler_size = size;
}

/* Switches to the selected thread. */
void run_selected(Fiber &from)
{
    Thread &t = B->threads[size_t(B->now)];
    if (t.state == NEW) t.fiber = take_fiber();
    from_scheduler = &from == &scheduler;
    __sanitizer_start_switch_fiber(&from.fake, t.fiber->stack, STACK);
    change(from, *t.fiber);
}

/* Leaves the fiber of a thread that waits or has ended: for the next thread that can run, else for
 * the scheduler. */
void leave_fiber(Fiber &me)
{
    if (select_next()) {
        run_selected(me);
    } else {
        __sanitizer_start_switch_fiber(&me.fake, scheduler_stack, scheduler_size);
        change(me, scheduler);
    }
    arrive(me.fake);
}

/* The body of every fiber: runs threads until the next in order has already started. */
void fiber_main()
{
    arrive(nullptr);
    for (;;) {
        Fiber *me = B->threads[size_t(B->now)].fiber;
        started++;
        B->body(B->env);
        B->unfinished |= !B->threads[size_t(B->now)].copies.empty();
        B->threads[size_t(B->now)].state = DONE;
        idle.push_back(me);
        if (B->next < B->end && B->threads[B->order[B->next]].state == NEW) {
            select_next();
            B->threads[size_t(B->now)].fiber = take_fiber(); /* this one again */
        } else {
            leave_fiber(*me);
        }
    }
}

void suspend(State s)
{
    Thread &t = B->threads[size_t(B->now)];
    t.state = s;
    leave_fiber(*t.fiber);
    t.state = READY; /* running; only the scheduler reads this */
}

/* ---- a block ---- */

std::vector<unsigned> chosen_order(size_t n)
{
    uint64_t s = emulation.seed * 2654435761u + 1;
    std::vector<unsigned> order(n);
    for (size_t i = 0; i < n; i++) order[i] = unsigned(emulation.order == BACKWARD ? n - 1 - i : i);
    for (size_t i = n; emulation.order == SHUFFLED && i > 1; i--) {
        s = s * 6364136223846793005u + 1442695040888963407u;
        std::swap(order[i - 1], order[size_t(s >> 33) % i]);
    }
    return order;
}

int count(State s)
{
    int n = 0;
    for (const Thread &t : B->threads) n += t.state == s;
    return n;
}

/* Runs threads order[first .. end - 1] as far as possible. False if none ran. */
bool run_some(size_t first, size_t end)
{
    bool moved = false;
    B->end = end;
    do {
        B->next = first;
        B->moved = false;
        while (select_next()) {
            run_selected(scheduler);
            __sanitizer_finish_switch_fiber(scheduler.fake, nullptr, nullptr);
        }
        moved |= B->moved;
    } while (B->moved);
    return moved;
}

/* False on a deadlock. A warp runs up to the next barrier before another begins, to get as far
 * ahead as possible; shuffled order interleaves all warps. */
bool run_threads()
{
    const size_t n = B->threads.size(), step = emulation.order == SHUFFLED ? n : 32;
    for (;;) {
        bool moved = false;
        for (size_t i = 0; i < n; i += step) moved = run_some(i, i + step) || moved;
        if (count(DONE) == int(n)) return true;
        if (count(AT_BARRIER) == int(n)) {
            for (Thread &t : B->threads) t.state = READY;
            race_barrier();
            moved = true;
        }
        if (!moved) {
            std::fprintf(stderr,
                         "emulation: block %u,%u,%u: %d threads wait at a barrier, %d in a warp, "
                         "%d have ended\n",
                         blockIdx.x, blockIdx.y, blockIdx.z, count(AT_BARRIER), count(AT_WARP),
                         count(DONE));
            return false;
        }
    }
}

bool run_block(Block &b)
{
    B = &b;
    for (Thread &t : b.threads) {
        t.state = NEW;
        t.groups = 0;
        t.copies.clear();
    }
    for (Warp &w : b.warps) {
        std::fill_n(w.arrived, 2, 0);
        std::fill_n(w.round, 32, 0);
    }
    for (auto &s : b.shared) s.second.used = false;
    b.declared_bytes = 0;
    race_block();
    const bool ok = run_threads();
    B = nullptr;
    race_thread = -1;
    return ok;
}

/* The result of a call: the fault of an earlier kernel, which persists, else the call's own. */
cudaError_t said(cudaError_t e)
{
    if (e != cudaSuccess) last_error = e;
    return emulation.fault ? emulation.fault : e;
}

cudaError_t faulted()
{
    return emulation.fault;
}

int refused()
{
    return emulation.refusals > 0 && emulation.refusals--;
}

/* The first of each GPU; then those of high priority, one each. */
CUstream_st streams[EMULATION_STREAMS] = {
    { 0, 0, enter, leave, emulated_queue_copied, faulted, refused },
    { 1, 1, enter, leave, emulated_queue_copied, faulted, refused },
    { 0, 2, enter, leave, emulated_queue_copied, faulted, refused },
    { 1, 3, enter, leave, emulated_queue_copied, faulted, refused },
};

/* Runs all queued work of a GPU. */
void finish(int gpu)
{
    for (const CUstream_st &s : streams)
        if (s.gpu == gpu) emulated_finish(s.line, emulated_place(s.line));
}

cudaError_t waited(cudaStream_t s)
{
    if (emulated_recording(s)) return said(cudaErrorStreamCaptureUnsupported);
    counts_note(COUNT_WAIT, "", 0);
    emulated_finish(s->line, emulated_place(s->line));
    return said(cudaSuccess);
}

} // namespace

/* ---- what kernels call ---- */

cudaError_t emulated_current(cudaStream_t s)
{
    return s->gpu == current ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

void emulated_refuse(cudaError_t e)
{
    last_error = e;
}

cudaError_t emulated_accepted(const void *kernel, cudaStream_t s, dim3 grid, dim3 block,
                              size_t shared)
{
    const unsigned n = block.x * block.y * block.z;
    if (n == 0 || n > 1024 || n % 32 || grid.x == 0 || grid.y == 0 || grid.z == 0 ||
        grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535 || shared > SHARED)
        return cudaErrorInvalidConfiguration;
    const cudaError_t e = emulated_current(s);
    if (!e && emulated_recording(s)) emulated_note_launch(kernel, shared);
    if (!e) counts_launch(kernel, uint64_t(grid.x) * grid.y * grid.z);
    return e;
}

size_t emulated_asked(const void *kernel, cudaStream_t s)
{
    const auto more = asked[s->gpu].find(kernel);
    return more == asked[s->gpu].end() ? 0 : more->second;
}

void emulated_batch(int change)
{
    batches += change;
    leave();
}

/* A kernel's declared shared memory is known only when it runs. Too much is a fault here; a GPU
 * would refuse the launch. */
void emulated_run(cudaStream_t s, dim3 grid, dim3 block, size_t shared, size_t asked_for,
                  emulated_body body, const void *env)
{
    if (emulation.counting) return;
    const unsigned n = block.x * block.y * block.z;
    Block b;
    b.body = body;
    b.env = env;
    b.dynamic_bytes = shared;
    b.threads.resize(n);
    b.warps.resize(n / 32);
    b.order = chosen_order(n);
    gridDim = grid;
    blockDim = block;
    enter(s);
    race_launch();
    bool ok = true;
    for (const unsigned i : chosen_order(size_t(grid.x) * grid.y * grid.z)) {
        blockIdx = { i % grid.x, i / grid.x % grid.y, i / grid.x / grid.y };
        ok = ok && run_block(b);
    }
    for (const auto &a : b.shared) free_shared(a.second.at);
    leave();
    const size_t all = b.declared_bytes + shared;
    const bool fits = b.declared_bytes <= UNASKED && all <= SHARED &&
                      (asked_for ? shared <= asked_for : all <= UNASKED);
    if (!fits) emulation.fault = cudaErrorInvalidValue;
    if (b.misaligned || race_misaligned()) emulation.fault = cudaErrorMisalignedAddress;
    if (b.not_global) emulation.fault = cudaErrorIllegalAddress;
    if (b.unfinished) std::fprintf(stderr, "emulation: a thread ended before its copies arrived\n");
    if (!ok || b.unfinished || race_found()) emulation.fault = cudaErrorLaunchFailure;
}

void emulated_barrier()
{
    suspend(AT_BARRIER);
}

unsigned emulated_lane()
{
    return unsigned(B->now) % 32;
}

const uint64_t *emulated_exchange(unsigned mask, uint64_t value)
{
    const size_t first = size_t(B->now) / 32 * 32;
    Warp &w = B->warps[first / 32];
    const unsigned lane = emulated_lane();
    const int g = w.round[lane]++ & 1;
    w.slot[g][lane] = value;
    if (mask != 0xffffffffu) {
        std::fprintf(stderr, "emulation: a warp collective with mask %08x; only whole warps\n",
                     mask);
        std::abort();
    }
    if (++w.arrived[g] < 32) {
        suspend(AT_WARP);
    } else {
        w.arrived[g] = 0;
        for (size_t i = first; i < first + 32; i++)
            if (B->threads[i].state == AT_WARP) B->threads[i].state = READY;
    }
    return w.slot[g];
}

void emulated_syncwarp(unsigned mask)
{
    emulated_exchange(mask, 0);
    race_warp();
}

void emulated_atomic(const void *at, size_t bytes)
{
    race_touch(at, bytes, RACE_ATOMIC, __builtin_return_address(0));
}

void *emulated_shared(const void *key, size_t bytes)
{
    Block::Array &a = B->shared[key];
    if (!a.used) {
        if (!a.at) a = { static_cast<char *>(new_shared(bytes)), bytes, false };
        poisoned(a.at, bytes);
        a.used = true;
        B->declared_bytes += key ? bytes : 0;
    }
    return a.at;
}

void *emulated_dynamic_shared()
{
    return emulated_shared(nullptr, B->dynamic_bytes);
}

void emulated_expect_aligned(const void *p)
{
    B->misaligned |= reinterpret_cast<uintptr_t>(p) % 16 != 0;
}

void emulated_expect_global(const void *p)
{
    for (const auto &s : B->shared)
        B->not_global |= s.second.used && p >= s.second.at && p < s.second.at + s.second.bytes;
}

void emulated_copy(void *to, const void *from, size_t bytes)
{
    Thread &t = B->threads[size_t(B->now)];
    emulated_expect_aligned(to);
    emulated_expect_aligned(from);
    race_touch(to, bytes, RACE_WRITE, __builtin_return_address(0));
    std::memset(to, POISON, bytes);
    t.copies.push_back({ to, from, bytes, t.groups });
}

void emulated_commit()
{
    B->threads[size_t(B->now)].groups++;
}

void emulated_wait(int groups_left)
{
    Thread &t = B->threads[size_t(B->now)];
    std::vector<Copy> later;
    for (const Copy &c : t.copies) {
        if (c.group >= t.groups - groups_left) {
            later.push_back(c);
            continue;
        }
        race_touch(c.from, c.bytes, RACE_READ, __builtin_return_address(0));
        race_touch(c.to, c.bytes, RACE_WRITE, __builtin_return_address(0));
        std::memcpy(c.to, c.from, c.bytes);
    }
    t.copies = later;
}

const uint32_t (*emulated_gather(const uint32_t a[4], const uint32_t b[2]))[6]
{
    Warp &w = B->warps[size_t(B->now) / 32];
    const unsigned lane = emulated_lane();
    const int g = w.round[lane] & 1;
    for (int k = 0; k < 6; k++) w.words[g][lane][k] = k < 4 ? a[k] : b[k - 4];
    emulated_exchange(0xffffffffu, 0);
    return w.words[g];
}

/* ---- the runtime ---- */

extern "C" {

uint64_t emulation_threads(void)
{
    for (int gpu = 0; gpu < EMULATION_GPUS; gpu++) finish(gpu);
    return started;
}

size_t emulation_pinned(void)
{
    size_t sum = 0;
    for (const auto &p : pinned) sum += p.second;
    return sum;
}

/* Bytes from the environment; 0: not set. */
static size_t bytes_of(const char *name)
{
    const char *text = getenv(name);
    return text ? std::strtoull(text, nullptr, 10) : 0;
}

/* A program's first call. */
cudaError_t cudaGetDeviceCount(int *n)
{
    if (bytes_of("EMULATION_MEMORY")) emulation.memory = bytes_of("EMULATION_MEMORY");
    if (bytes_of("EMULATION_FAULT_BYTES"))
        emulation.fault_bytes = bytes_of("EMULATION_FAULT_BYTES");
    *n = emulation.open_error ? 0 : emulation.gpus;
    return emulation.open_error;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = emulation.driver;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    *p = cudaDeviceProp();
    std::snprintf(p->name, sizeof p->name, "emulated device");
    p->totalGlobalMem = emulation.memory;
    p->sharedMemPerBlockOptin = SHARED;
    p->major = emulation.major;
    p->multiProcessorCount = emulation.counting ? COUNTED_PROCESSORS : emulation.processors;
    return device < emulation.gpus ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaSetDevice(int device)
{
    if (device >= emulation.gpus) return said(cudaErrorInvalidDevice);
    current = device;
    return said(emulation.set_error);
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total)
{
    *total = emulation.memory;
    *free = emulation.memory > in_use[current] ? emulation.memory - in_use[current] : 0;
    return said(cudaSuccess);
}

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    *p = nullptr;
    if (emulation.fault_bytes && in_use[current] + bytes > emulation.fault_bytes)
        emulation.fault = cudaErrorLaunchFailure;
    if (emulation.fault) return emulation.fault;
    if (bytes <= emulation.memory && in_use[current] <= emulation.memory - bytes)
        *p = counts_note(COUNT_ALLOCATION, "", bytes) ? counts_memory(bytes)
                                                      : poisoned(new_memory(bytes), bytes);
    if (!*p) return said(cudaErrorMemoryAllocation);
    const Allocation a = { bytes, current };
    allocations[static_cast<char *>(*p)] = a;
    in_use[current] += bytes;
    if (marked(a) && opened != current && !emulation.counting)
        __asan_poison_memory_region(*p, bytes);
    return said(cudaSuccess);
}

/* Runs the GPU's queued work first: CUDA's cudaFree waits for it. */
cudaError_t cudaFree(void *p)
{
    const auto a = allocations.find(static_cast<char *>(p));
    if (a == allocations.end()) return said(p ? cudaErrorInvalidValue : cudaSuccess);
    finish(a->second.gpu);
    in_use[a->second.gpu] -= a->second.bytes;
    if (counts_note(COUNT_RELEASE, "", a->second.bytes)) {
        counts_free(p, a->second.bytes);
    } else {
        __asan_unpoison_memory_region(p, a->second.bytes);
        free_memory(p, a->second.bytes);
    }
    allocations.erase(a);
    return said(cudaSuccess);
}

cudaError_t cudaMallocHost(void **p, size_t bytes)
{
    const bool full = emulation.pinned && emulation_pinned() + bytes > emulation.pinned;
    *p = emulation.fault || full ? nullptr : std::malloc(bytes);
    if (*p) pinned[*p] = bytes;
    return said(*p ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaFreeHost(void *p)
{
    pinned.erase(p);
    std::free(p);
    return said(cudaSuccess);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t s)
{
    if (kind == cudaMemcpyDeviceToHost && emulated_recording(s))
        return said(cudaErrorStreamCaptureUnsupported); /* tapegrad never does this */
    if (elsewhere(to, s) || elsewhere(from, s)) return said(cudaErrorInvalidValue);
    if (counts_copy(to, bytes, kind)) return said(cudaSuccess);
    emulated_queue(s, [=] {
        enter(s);
        if (bytes) std::memmove(to, from, bytes);
        leave();
    });
    return said(cudaSuccess);
}

cudaError_t cudaMemsetAsync(void *to, int byte, size_t bytes, cudaStream_t s)
{
    if (emulated_current(s)) return said(emulated_current(s));
    if (elsewhere(to, s)) return said(cudaErrorInvalidValue);
    if (counts_note(COUNT_FILL, "", bytes)) return said(cudaSuccess);
    emulated_queue(s, [=] {
        enter(s);
        std::memset(to, byte, bytes);
        leave();
    });
    return said(cudaSuccess);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags)
{
    (void)flags;
    *s = &streams[current];
    return said(cudaSuccess);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return said(cudaSuccess);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int priority)
{
    (void)flags;
    *s = &streams[current + (priority < 0 ? EMULATION_GPUS : 0)];
    return said(cudaSuccess);
}

/* The environment variable EMULATION_BUS gives each process a GPU of its own. */
cudaError_t cudaDeviceGetPCIBusId(char *id, int size, int device)
{
    const char *bus = std::getenv("EMULATION_BUS");
    std::snprintf(id, size_t(size), "%s:%02x:00.0", bus ? bus : "0000", unsigned(device));
    return said(cudaSuccess);
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    (void)s;
    return said(cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    return waited(s);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags)
{
    const int line = e->line;
    const unsigned long long place = e->place;
    (void)flags;
    emulated_queue(s, [=] { emulated_finish(line, place); });
    return said(cudaSuccess);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags)
{
    (void)flags;
    *e = emulation.fault ? nullptr : static_cast<cudaEvent_t>(calloc(1, sizeof **e));
    if (*e) (*e)->gpu = (*e)->line = current;
    return said(*e ? cudaSuccess : cudaErrorMemoryAllocation);
}

/* Runs the queue first: it may still hold the event's recording. */
cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    emulated_finish(e->line, e->place);
    free(e);
    return said(cudaSuccess);
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    if (e->gpu != s->gpu || emulated_recording(s)) /* tapegrad never does this */
        return said(cudaErrorInvalidResourceHandle);
    emulated_queue(s, [=] {
        timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        e->seconds = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    });
    e->line = s->line;
    e->place = emulated_place(s->line);
    return said(cudaSuccess);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    if (!emulated_passed(from->line, from->place) || !emulated_passed(to->line, to->place))
        return said(cudaErrorNotReady);
    *ms = (float)(1e3 * (to->seconds - from->seconds));
    return said(cudaSuccess);
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    if (!emulated_passed(e->line, e->place)) counts_note(COUNT_WAIT, "", 0);
    emulated_finish(e->line, e->place);
    return said(cudaSuccess);
}

/* A host that asks repeatedly has waited long enough: what it asks for runs, unless busy. */
cudaError_t cudaEventQuery(cudaEvent_t e)
{
    if (emulation.busy && !emulated_passed(e->line, e->place)) return said(cudaErrorNotReady);
    emulated_finish(e->line, e->place);
    return said(cudaSuccess);
}

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute what, int value)
{
    if (what != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 || size_t(value) > SHARED)
        return said(cudaErrorInvalidValue);
    asked[current][kernel] = size_t(value);
    return said(cudaSuccess);
}

cudaError_t cudaGetLastError(void)
{
    const cudaError_t e = last_error;
    last_error = cudaSuccess;
    return emulation.fault ? emulation.fault : e;
}
}
