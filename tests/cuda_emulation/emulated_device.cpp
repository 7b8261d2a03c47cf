/* emulated_device.cpp - blocks one after another, the threads of a block as fibers.
 *
 * A fiber runs threads of the block one by one, in the chosen order; a thread that waits keeps the
 * fiber it is on, and the next thread gets another. So kernels without barriers run on one fiber
 * without a switch. Whoever waits for what can never come is a deadlock: the launch fails, as a
 * card would hang. */
#include "cuda_runtime.h"
#include "emulation.h"

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <ucontext.h>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n)                ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n)              ((void)(p), (void)(n))
#define __sanitizer_start_switch_fiber(save, base, n)  ((void)(save), (void)(base), (void)(n))
#define __sanitizer_finish_switch_fiber(save, base, n) ((void)(save), (void)(base), (void)(n))
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;
extern "C" {
emulation_settings emulation = { FORWARD, 1, cudaSuccess,     cudaSuccess,
                                 13000,   9, size_t(1) << 30, cudaSuccess };
}

namespace
{

constexpr size_t STACK = 256 << 10;
constexpr size_t SHARED = 99 << 10;  /* of a block: 8.6 and 8.9 have the least */
constexpr size_t UNASKED = 48 << 10; /* without cudaFuncSetAttribute, and of declared arrays */
constexpr int POISON = 0xff;         /* NaN in every floating type, -1 in integers */

/* ---- device memory ---- */

std::map<char *, size_t> allocations;
size_t in_use;
std::map<const void *, size_t> asked; /* dynamic shared memory that a kernel may have */
int inside; /* device memory is out of bounds for the host between launches and copies */
cudaError_t last_error;

void enter()
{
    if (inside++ == 0)
        for (const auto &a : allocations) ASAN_UNPOISON_MEMORY_REGION(a.first, a.second);
}

void leave()
{
    if (--inside == 0)
        for (const auto &a : allocations) ASAN_POISON_MEMORY_REGION(a.first, a.second);
}

void *poisoned(size_t bytes)
{
    void *p = nullptr;
    if (posix_memalign(&p, 256, bytes ? bytes : 1)) return nullptr;
    std::memset(p, POISON, bytes);
    return p;
}

/* ---- fibers ---- */

struct Fiber {
    ucontext_t first;
    void *jump[5];
    bool begun = false;
    char *stack;
    void *fake; /* of the address sanitizer */
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
    int groups = 0; /* of asynchronous copies, committed */
    std::vector<Copy> copies;
};

struct Warp {
    uint64_t slot[2][32];
    uint32_t words[2][32][6]; /* fragments of the round, beside the slots */
    int arrived[2] = { 0, 0 }, round[32] = { 0 };
};

struct Block {
    emulated_body body;
    const void *env;
    std::vector<Thread> threads;
    std::vector<Warp> warps;
    std::vector<int> order;
    size_t next = 0, end = 0; /* in order: the thread after the one that runs, the last of these */
    int now = 0;
    std::map<const void *, void *> shared;
    size_t dynamic_bytes = 0, declared_bytes = 0;
    bool misaligned = false;
};

Block *B;
std::vector<Fiber *> idle;
/* All of them, also those of blocks that hang; never destroyed, so no leak. */
std::vector<Fiber *> &made = *new std::vector<Fiber *>();
Fiber scheduler;
const void *scheduler_stack;
size_t scheduler_size;
uint64_t started;

void select_thread(int i)
{
    const unsigned u = unsigned(i);
    B->now = i;
    threadIdx = { u % blockDim.x, u / blockDim.x % blockDim.y, u / blockDim.x / blockDim.y };
}

/* Leaves one fiber for another. swapcontext would ask the kernel for the signal mask each time,
 * which costs most of a run; only the first entry of a fiber needs it. */
__attribute__((noinline, no_sanitize_address)) void change(Fiber &from, Fiber &to)
{
    from.begun = true;
    if (__builtin_setjmp(from.jump)) return;
    if (to.begun) __builtin_longjmp(to.jump, 1);
    setcontext(&to.first);
}

/* The body of every fiber: runs new threads until the next in order is not a new one. */
void fiber_main()
{
    __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_size);
    for (;;) {
        Fiber *me = B->threads[size_t(B->now)].fiber;
        started++;
        B->body(B->env);
        B->threads[size_t(B->now)].state = DONE;
        if (B->next < B->end) {
            Thread &t = B->threads[size_t(B->order[B->next])];
            if (t.state == NEW) {
                t.fiber = me;
                select_thread(B->order[B->next++]);
                continue;
            }
        }
        idle.push_back(me);
        __sanitizer_start_switch_fiber(&me->fake, scheduler_stack, scheduler_size);
        change(*me, scheduler);
        __sanitizer_finish_switch_fiber(me->fake, &scheduler_stack, &scheduler_size);
    }
}

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

void resume(int i)
{
    Thread &t = B->threads[size_t(i)];
    if (t.state == NEW) t.fiber = take_fiber();
    select_thread(i);
    __sanitizer_start_switch_fiber(&scheduler.fake, t.fiber->stack, STACK);
    change(scheduler, *t.fiber);
    __sanitizer_finish_switch_fiber(scheduler.fake, nullptr, nullptr);
}

void suspend(State s)
{
    const int me = B->now;
    Thread &t = B->threads[size_t(me)];
    t.state = s;
    __sanitizer_start_switch_fiber(&t.fiber->fake, scheduler_stack, scheduler_size);
    change(*t.fiber, scheduler);
    __sanitizer_finish_switch_fiber(t.fiber->fake, &scheduler_stack, &scheduler_size);
    t.state = READY; /* it runs; only the scheduler reads this */
}

/* ---- a block ---- */

void set_order(std::vector<int> &order, int n)
{
    uint64_t s = emulation.seed * 2654435761u + 1;
    order.resize(size_t(n));
    for (int i = 0; i < n; i++) order[size_t(i)] = emulation.order == BACKWARD ? n - 1 - i : i;
    for (int i = n - 1; emulation.order == SHUFFLED && i > 0; i--) {
        s = s * 6364136223846793005u + 1442695040888963407u;
        std::swap(order[size_t(i)], order[size_t(s >> 33) % size_t(i + 1)]);
    }
}

int count(State s)
{
    int n = 0;
    for (const Thread &t : B->threads) n += t.state == s;
    return n;
}

/* Threads first .. end - 1 in order, as far as they get; false: nowhere. */
bool run_some(size_t first, size_t end)
{
    bool moved = false;
    for (bool again = true; again;) {
        again = false;
        B->end = end;
        for (B->next = first; B->next < end;) {
            const int i = B->order[B->next++];
            const State s = B->threads[size_t(i)].state;
            if (s != NEW && s != READY) continue;
            resume(i);
            again = moved = true;
        }
    }
    return moved;
}

/* False: some threads wait for others that never come. A warp runs up to the next barrier before
 * another begins, so that it is as far ahead as it can be; if shuffled, all run side by side. */
bool run_threads()
{
    const size_t n = B->threads.size(), step = emulation.order == SHUFFLED ? n : 32;
    for (;;) {
        bool moved = false;
        for (size_t i = 0; i < n; i += step) moved = run_some(i, i + step) || moved;
        if (count(DONE) == int(n)) return true;
        if (count(AT_BARRIER) == int(n)) {
            for (Thread &t : B->threads) t.state = READY;
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

bool run_block(Block &b, int threads)
{
    B = &b;
    b.threads.assign(size_t(threads), Thread());
    b.warps.assign(size_t(threads / 32), Warp());
    b.declared_bytes = 0;
    const bool ok = run_threads();
    for (const auto &s : b.shared) std::free(s.second);
    b.shared.clear();
    B = nullptr;
    return ok;
}

void expect_aligned(const void *p)
{
    B->misaligned |= reinterpret_cast<uintptr_t>(p) % 16 != 0;
}

void copy_bytes(void *to, const void *from, size_t bytes)
{
    enter();
    if (bytes) std::memmove(to, from, bytes);
    leave();
}

CUstream_st stream = { enter, leave, emulated_record };

cudaError_t waited()
{
    if (emulated_recording()) return cudaErrorStreamCaptureUnsupported;
    const cudaError_t e = emulation.async;
    emulation.async = cudaSuccess;
    return e;
}

} // namespace

/* ---- what kernels call ---- */

void emulated_run(const void *kernel, dim3 grid, dim3 block, size_t shared, emulated_body body,
                  const void *env)
{
    const unsigned n = block.x * block.y * block.z;
    if (n == 0 || n > 1024 || n % 32 || grid.x == 0 || grid.y == 0 || grid.z == 0 ||
        grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535 || shared > SHARED) {
        last_error = cudaErrorInvalidConfiguration;
        return;
    }
    Block b;
    b.body = body;
    b.env = env;
    b.dynamic_bytes = shared;
    set_order(b.order, int(n));
    gridDim = grid;
    blockDim = block;
    enter();
    bool ok = true;
    for (unsigned z = 0; ok && z < grid.z; z++)
        for (unsigned y = 0; ok && y < grid.y; y++)
            for (unsigned x = 0; ok && x < grid.x; x++) {
                blockIdx = { x, y, z };
                ok = run_block(b, int(n));
            }
    leave();
    const auto more = asked.find(kernel);
    const bool fits =
        b.declared_bytes <= UNASKED && b.declared_bytes + shared <= SHARED &&
        (b.declared_bytes + shared <= UNASKED || (more != asked.end() && shared <= more->second));
    if (!fits) last_error = cudaErrorInvalidValue;
    if (b.misaligned) last_error = cudaErrorMisalignedAddress;
    if (!ok) last_error = cudaErrorLaunchFailure;
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

void *emulated_shared(const void *key, size_t bytes)
{
    void *&p = B->shared[key];
    if (!p) {
        p = poisoned(bytes);
        B->declared_bytes += key ? bytes : 0;
    }
    return p;
}

void *emulated_dynamic_shared()
{
    return emulated_shared(nullptr, B->dynamic_bytes);
}

void emulated_copy(void *to, const void *from, size_t bytes)
{
    Thread &t = B->threads[size_t(B->now)];
    expect_aligned(to);
    expect_aligned(from);
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
        if (c.group < t.groups - groups_left)
            std::memcpy(c.to, c.from, c.bytes);
        else
            later.push_back(c);
    }
    t.copies = later;
}

/* ---- tensor cores ---- */

namespace
{

float low(uint64_t pair)
{
    return emulated_value<float>(uint64_t(uint32_t(pair) << 16));
}
float high(uint64_t pair)
{
    return emulated_value<float>(uint64_t(uint32_t(pair) & 0xffff0000u));
}

/* The words of all lanes: all[lane][k], in one round. */
const uint32_t (*gather(const uint32_t a[4], const uint32_t b[2]))[6]
{
    Warp &w = B->warps[size_t(B->now) / 32];
    const unsigned lane = emulated_lane();
    const int g = w.round[lane] & 1;
    for (int k = 0; k < 6; k++) w.words[g][lane][k] = k < 4 ? a[k] : b[k - 4];
    emulated_exchange(0xffffffffu, 0);
    return w.words[g];
}

} // namespace

void emulated_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2], const float c[4])
{
    const uint32_t(*all)[6] = gather(a, b);
    const int g = int(emulated_lane()) / 4, t = int(emulated_lane()) % 4;
    for (int i = 0; i < 4; i++) {
        const int row = g, half = i / 2, col = 2 * t + i % 2;
        float sum = 0.0f;
        for (int k = 0; k < 8; k++) { /* pairs of k: words half and half + 2 of lane row, k % 4 */
            const uint32_t x = all[row * 4 + k % 4][half + 2 * (k / 4)];
            const uint32_t y = all[col * 4 + k % 4][4 + k / 4];
            sum += low(x) * low(y) + high(x) * high(y);
        }
        d[i] = c[i] + sum;
    }
}

void emulated_mma_tf32(float d[4], const uint32_t a[4], const uint32_t b[2], const float c[4])
{
    const uint32_t(*all)[6] = gather(a, b);
    const int g = int(emulated_lane()) / 4, t = int(emulated_lane()) % 4;
    const auto tf32 = [](uint32_t u) { return __uint_as_float(u & 0xffffe000u); };
    for (int i = 0; i < 4; i++) {
        const int half = i / 2, col = 2 * t + i % 2;
        float sum = 0.0f;
        for (int k = 0; k < 8; k++)
            sum += tf32(all[g * 4 + k % 4][half + 2 * (k / 4)]) *
                   tf32(all[col * 4 + k % 4][4 + k / 4]);
        d[i] = c[i] + sum;
    }
}

void emulated_ldmatrix(uint32_t r[4], const void *row, bool transposed)
{
    const unsigned lane = emulated_lane();
    expect_aligned(row);
    const uint64_t *rows = emulated_exchange(0xffffffffu, emulated_bits(row));
    for (unsigned m = 0; m < 4; m++) {
        uint16_t e[2];
        for (unsigned i = 0; i < 2; i++) {
            const unsigned across = 2 * (lane % 4) + i, along = lane / 4;
            const unsigned from = transposed ? across : along, at = transposed ? along : across;
            e[i] = emulated_value<const uint16_t *>(rows[8 * m + from])[at];
        }
        r[m] = uint32_t(e[0]) | uint32_t(e[1]) << 16;
    }
    emulated_exchange(0xffffffffu, 0); /* nobody overwrites what others still read */
}

/* ---- the runtime ---- */

extern "C" {

uint64_t emulation_threads(void)
{
    return started;
}

cudaError_t cudaGetDeviceCount(int *n)
{
    *n = emulation.open_error ? 0 : 1;
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
    p->multiProcessorCount = 2; /* few, so that grid-stride loops go round */
    return device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaSetDevice(int device)
{
    return device == 0 ? emulation.set_error : cudaErrorInvalidDevice;
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total)
{
    *total = emulation.memory;
    *free = emulation.memory > in_use ? emulation.memory - in_use : 0;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    *p =
        bytes <= emulation.memory && in_use <= emulation.memory - bytes ? poisoned(bytes) : nullptr;
    if (!*p) return last_error = cudaErrorMemoryAllocation;
    allocations[static_cast<char *>(*p)] = bytes;
    in_use += bytes;
    if (!inside) ASAN_POISON_MEMORY_REGION(*p, bytes);
    return cudaSuccess;
}

cudaError_t cudaFree(void *p)
{
    const auto a = allocations.find(static_cast<char *>(p));
    if (a == allocations.end()) return p ? cudaErrorInvalidValue : cudaSuccess;
    in_use -= a->second;
    ASAN_UNPOISON_MEMORY_REGION(p, a->second);
    allocations.erase(a);
    std::free(p);
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **p, size_t bytes)
{
    *p = std::malloc(bytes);
    return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFreeHost(void *p)
{
    std::free(p);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t s)
{
    (void)s;
    if (kind == cudaMemcpyDeviceToHost && emulated_recording())
        return cudaErrorStreamCaptureUnsupported; /* tapegrad never does */
    emulated_queue([=] { copy_bytes(to, from, bytes); });
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int byte, size_t bytes, cudaStream_t s)
{
    (void)s;
    emulated_queue([=] {
        enter();
        std::memset(to, byte, bytes);
        leave();
    });
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags)
{
    (void)flags;
    *s = &stream;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    (void)s;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    (void)s;
    return waited();
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags)
{
    (void)s;
    (void)e;
    (void)flags;
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags)
{
    (void)flags;
    *e = static_cast<cudaEvent_t>(calloc(1, sizeof **e));
    return *e ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    free(e);
    return cudaSuccess;
}

/* Streams run at once, so the time of the record is that of the work before it. */
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    (void)s;
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    e->seconds = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    *ms = (float)(1e3 * (to->seconds - from->seconds));
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    (void)e;
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute what, int value)
{
    if (what != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 || size_t(value) > SHARED)
        return last_error = cudaErrorInvalidValue;
    asked[kernel] = size_t(value);
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    const cudaError_t e = last_error;
    last_error = cudaSuccess;
    return e;
}

const char *cudaGetErrorName(cudaError_t e)
{
    return e == cudaErrorLaunchFailure          ? "cudaErrorLaunchFailure"
           : e == cudaErrorMemoryAllocation     ? "cudaErrorMemoryAllocation"
           : e == cudaErrorInvalidConfiguration ? "cudaErrorInvalidConfiguration"
           : e == cudaErrorMisalignedAddress    ? "cudaErrorMisalignedAddress"
           : e == cudaErrorInvalidValue         ? "cudaErrorInvalidValue"
           : e == cudaErrorDevicesUnavailable   ? "cudaErrorDevicesUnavailable"
           : e == cudaErrorInsufficientDriver   ? "cudaErrorInsufficientDriver"
                                                : "cudaError";
}

const char *cudaGetErrorString(cudaError_t e)
{
    return e == cudaErrorLaunchFailure          ? "unspecified launch failure"
           : e == cudaErrorMemoryAllocation     ? "out of memory"
           : e == cudaErrorInvalidConfiguration ? "invalid configuration argument"
           : e == cudaErrorMisalignedAddress    ? "misaligned address"
           : e == cudaErrorInvalidValue         ? "invalid argument"
                                                : "emulated error";
}
}
