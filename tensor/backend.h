/* backend.h - the backend interface, the device, its heap, and reference-counted buffers. */
#ifndef TP_BACKEND_H
#define TP_BACKEND_H

#include <pthread.h>
#include <tapegrad/device.h>
#include <tapegrad/op.h>

#include "tensor/error.h"
#include "tensor/lock.h"
#include "tensor/together.h"

/* The instruction set of the only kernels in this build (CMake's TAPEGRAD_ISA); TP_ISA_AUTO: all
 * sets have theirs. Those for AMX are among those of AVX-512. */
#define tp__kernels_of(isa) ((isa) == TP_ISA_AMX ? TP_ISA_AVX512 : (isa))
#ifndef TP_ISA_ALONE
#define TP_ISA_ALONE TP_ISA_AUTO
#endif
#define TP_HAS_ISA(isa) (TP_ISA_ALONE == TP_ISA_AUTO || TP_ISA_ALONE == tp__kernels_of(isa))

/* A backend allocates memory and moves bytes. Offsets and sizes are in bytes. */
typedef struct tp_backend {
    int kind;                                   /* TP_CPU, TP_CUDA */
    void *(*alloc)(tp_device *D, size_t bytes); /* NULL: out of memory */
    void (*free)(tp_device *D, void *p, size_t bytes);
    void (*upload)(tp_device *D, void *dst, const void *host, size_t bytes);
    void (*download)(tp_device *D, void *host, const void *src, size_t bytes); /* synchronises */
    void (*copy)(tp_device *D, void *dst, const void *src, size_t bytes);
    void (*zero)(tp_device *D, void *dst, size_t bytes);
    void (*fill)(tp_device *D, void *dst, size_t bytes, const void *value); /* 16 bytes, repeated */
    void (*sync)(tp_device *D);
    /* The rest may be NULL. ran is called after each op; later errors name that op. */
    tp_code (*ran)(tp_device *D, const char *op, bool backward);
    /* Profiling of a queue: mark(D, TP_OP_BEGINS, 0) marks the beginning of an op, mark(D, line,
     * slice) the end of the op of that profile line and slice of a trace (-1: none); mark(D,
     * TP_TRACE_BEGINS, 0) marks where the slices' times begin. read_marks waits and adds up the
     * times. NULL: the CPU's clock is used. */
    void (*mark)(tp_device *D, int line, int slice);
    void (*read_marks)(tp_device *D);
    /* Recorded steps (autograd/capture.c). Between begin and end, work goes only into the
     * recording, which launch runs. begin may refuse. If end returns NULL or launch false, nothing
     * has run, and either the device has failed or why[TP_WHY] has the reason. */
    bool (*capture_begin)(tp_device *D);
    void *(*capture_end)(tp_device *D, char *why);
    bool (*graph_launch)(tp_device *D, void *graph, char *why);
    void (*graph_free)(tp_device *D, void *graph);
    void (*close)(tp_device *D);  /* before the heap's memory is returned */
    void (*forget)(tp_device *D); /* after the heap's memory is returned */
} tp_backend;

enum { TP_OP_BEGINS = -1, TP_TRACE_BEGINS = -2 };

typedef struct tp_slab tp_slab;
typedef struct tp_block { /* a piece of a slab, free or in use */
    tp_slab *slab;
    size_t at, size;
    bool free;
    struct tp_block *prev, *next; /* neighbours in the slab */
} tp_block;

typedef struct tp_heap {
    tp_lock lock;
    tp_slab *slabs;
    tp_block **idle; /* free blocks by (size, age) */
    size_t nidle, idle_cap, nblocks;
    size_t live, cached, peak, limit;
    size_t most;            /* live + cached; 0: no limit */
    size_t held, held_peak; /* bytes of slabs up to the last byte ever given to a buffer */
    uint64_t allocs, fail_at, fail_count;
    bool exact;        /* no cache, no rounding */
    int owner, owners; /* owner of new slabs; the last number given to one */
} tp_heap;

/* The measurements behind tp_device_profile (profile.c). */
typedef struct tp_profile {
    bool on;
    double began; /* when the running op began */
    int n, cap;
    tp_op_time *at;
} tp_profile;

struct tp_device {
    const tp_backend *be; /* NULL: the device never opened */
    char name[16];
    int threads;
    struct tp_pool *pool; /* NULL: loops run on the calling thread */
    tp_isa isa;           /* of kernels: not TP_ISA_AMX, which is TP_ISA_AVX512 and amx */
    bool dry;             /* memory is counted, never touched; check this before running a kernel */
    bool keep_subnormals;
    bool amx; /* products of bf16 use the tiles of AMX */
    tp_heap heap;
    uint64_t launches, syncs, unfused;
    tp_profile profile;
    struct tp_trace *trace;    /* NULL: none was begun */
    const uint64_t *capturing; /* not NULL while a step is recorded: device memory with how far the
                                  random stream has advanced since */
    void *gpu;                 /* CUDA backend state */
    struct tp_left *left;      /* outlives the device's objects (tensor/left.h) */
    uint64_t next_gen;         /* for parameter handles */
    tp_together together;      /* for batch norms in training */
    tp_error_fn on_error;      /* NULL: none */
    void *on_error_env;
    tp_err err;
};

/* Device memory; refs counts owners, of which exported ones (dlpack.h) may leave on any thread.
 * Freed memory goes back to the device's heap or to its owner. */
typedef struct tp_buf {
    tp_device *dev;
    tp_block *block; /* NULL for an empty buffer and for memory of others */
    void *data;      /* never NULL */
    size_t bytes;
    int refs;
    void (*give_back)(struct tp_buf *b); /* memory of others; else NULL */
    void *owner;
} tp_buf;

/* A buffer with one owner, 64-byte aligned and not cleared; NULL if out of memory (see
 * tp__heap_text). bytes may be 0. */
tp_buf *tp__buf_new(tp_device *D, size_t bytes);
tp_buf *tp__buf_ref(tp_buf *b);
/* The same for memory that belongs to others, which give_back returns when the last owner leaves;
 * NULL if out of memory. */
tp_buf *tp__buf_of_others(tp_device *D, void *data, size_t bytes, void (*give_back)(tp_buf *b),
                          void *owner);
void tp__buf_unref(tp_buf *b); /* b may be NULL */
/* Has b one owner, so that it may be written? */
static inline bool tp__buf_alone(const tp_buf *b)
{
    return __atomic_load_n(&b->refs, __ATOMIC_ACQUIRE) == 1;
}

/* Host memory that stale handles may still read. A returned piece is reused by the next take of
 * that size and freed only when D closes. take returns a piece zeroed except for its first 8 bytes,
 * a number unique in D; NULL if out of memory. */
void *tp__left_take(tp_device *D, size_t bytes);
void tp__left_give(tp_device *D, void *p);
void tp__left_free(tp_device *D);

void tp__heap_init(tp_heap *h, const tp_device_opts *o);
void tp__heap_free(tp_device *D); /* all slabs; blocks in use become invalid */
void tp__heap_trim(tp_device *D);
/* Makes memory come from slabs of a new owner and returns its number. Until tp__heap_release its
 * freed blocks are neither reused by others nor returned to the system. */
int tp__heap_own(tp_device *D);
void tp__heap_own_nothing(tp_device *D);
void tp__heap_release(tp_device *D, int owner);
/* "requested 2.0 GiB, live ..., cached ..., peak ..." */
void tp__heap_text(tp_device *D, size_t request, char *text, size_t size);

/* Splits [0,n) into chunks of `grain` and runs body on them, on D's threads. The result for an
 * index must not depend on the chunk; then it does not depend on the number of threads. */
typedef void (*tp_body)(const void *ctx, int64_t begin, int64_t end, int thread);
void tp__parallel(const tp_device *D, int64_t n, int64_t grain, tp_body body, const void *ctx);

/* tp__max_threads: the number of cores this process may use, at most its CPU quota. tp__cpu_quota:
 * its cgroup's quota in CPUs, rounded up; 0: unknown. root replaces "/" in tests. */
int tp__max_threads(void);
int tp__cpu_quota(const char *root);

/* What tells whether this process may use the tiles of AMX: CPUID, XCR0, and the request to Linux,
 * which returns 0 if it grants them. */
typedef struct tp_amx_source {
    void (*cpuid)(uint32_t leaf, uint32_t part, uint32_t to[4]); /* eax, ebx, ecx, edx */
    uint64_t (*xcr0)(void);
    long (*permit)(void);
} tp_amx_source;
bool tp__amx_runs(const tp_amx_source *s); /* NULL: of this machine */

/* Runs a kernel in the floating-point mode of its device. */
tp_code tp__call(tp_kernel k, const tp_call *c);

/* Sets the calling thread's floating-point mode to that of D's kernels (include/tapegrad/device.h)
 * and restores the returned one. Used by tp__parallel and tp__call. */
uint64_t tp__float_begin(const tp_device *D);
void tp__float_end(uint64_t before);

/* D's threads. They start at the first loop that needs them and end in tp__pool_free, which accepts
 * NULL. tp__pool_new returns NULL if out of memory. A pool runs one loop at a time: other loops
 * begun meanwhile, nested or from another thread, run on the calling thread, as do all loops in a
 * child after fork(). The child may open its own devices. */
struct tp_pool *tp__pool_new(const tp_device *D);
void tp__pool_free(struct tp_pool *p);

int64_t tp__nanoseconds(void); /* the clock of tp_seconds */

/* Called around every kernel: count it, and time it if D is profiled. tp__op_ends returns the error
 * code if it finds that the device failed. op must live as long as D. */
void tp__op_begins(tp_device *D);
tp_code tp__op_ends(tp_device *D, const char *op, bool backward);
void tp__profile_add(tp_device *D, int line, double seconds);
void tp__profile_free(tp_device *D);
void tp__read_marks(tp_device *D); /* if D is profiled; synchronises */

/* trace.c: notes what ran, while D is traced (D->trace). op: an op that has just ended; returns its
 * slice, -1 if memory ran out. call: the path and the tensors of this thread's last op. span: a
 * scope that ends now. device: the time of a slice on the device, in seconds since the trace
 * began. */
int tp__trace_op(tp_device *D, const char *op, bool backward, double began, double ended);
void tp__trace_call(tp_device *D, const char *path, const tp_call *c);
void tp__trace_span(tp_device *D, const char *path, double began);
void tp__trace_device(tp_device *D, int slice, double began, double seconds);
void tp__trace_free(tp_device *D);

/* Sets every element of a whole buffer to x, converted to its dtype. */
void tp__fill(tp_device *D, const tp_view *v, double x);

/* Copies device memory to the host and waits. False: D has failed; host is undefined. */
bool tp__device_read(tp_device *D, void *host, const void *from, size_t bytes);

extern const tp_backend tp__cpu_backend, tp__dry_backend[TP_NBACKENDS];
/* cuda/: opens GPU `index` for D, or fails D. */
void tp__cuda_open(tp_device *D, int index, const tp_device_opts *o);

/* Loads OpenBLAS and makes it map its memory for products on `threads` of our threads, which costs
 * address space only. Fails D on error. */
void tp__blas_prepare(tp_device *D, int threads);
/* Waits until no thread is inside OpenBLAS and keeps threads out until tp__blas_release. */
void tp__blas_hold(void);
void tp__blas_release(bool in_child);

/* Add to and read a count that several threads may change. */
#define tp__count(n, by) __atomic_fetch_add(&(n), by, __ATOMIC_RELAXED)
#define tp__counted(n)   __atomic_load_n(&(n), __ATOMIC_RELAXED)

#endif
