/* device.h - where tensors live and ops run. */
#ifndef TAPEGRAD_DEVICE_H
#define TAPEGRAD_DEVICE_H

#include <tapegrad/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Instruction sets of the CPU kernels. A build has those of its architecture, or TAPEGRAD_ISA.
 * TP_ISA_AMX is TP_ISA_AVX512 with products of bf16 by the tiles of AMX-BF16. */
typedef enum tp_isa { TP_ISA_AUTO, TP_ISA_BASE, TP_ISA_AVX2, TP_ISA_AVX512, TP_ISA_AMX } tp_isa;

typedef struct tp_device_opts {
    int threads;        /* 0: the cores that this process may use, and a container's CPU quota */
    tp_isa isa;         /* TP_ISA_AUTO: the best one that this machine supports */
    size_t cache_limit; /* bytes of freed memory kept for reuse; 0: no limit */
    /* Most bytes of tensors and the cache, in slabs of 2 MiB: a request beyond is an error,
     * TP_E_MEMORY, where a system that promises more memory than it has would kill the process.
     * 0: no limit */
    size_t memory_limit;
    /* tests: backend allocations fail_at .. fail_at + fail_count - 1 (from 1) fail; a request makes
     * two, the second after returning the cache */
    size_t fail_at;
    size_t fail_count;
    bool dry; /* count memory without computing: see tp_device_open */
    /* tests: each buffer is an allocation of exactly its size, freed immediately, so that memory
     * checkers detect any access past its end */
    bool exact;
    bool tf32;       /* CUDA: f32 products use TF32 (10-bit mantissas) */
    bool debug_sync; /* CUDA: waits after each op, so that an error names the op that caused it */
    bool profile;    /* measures the time of each op: see tp_device_profile */
    bool keep_subnormals; /* CPU: computes with numbers below 1.2e-38 (f64: 2.2e-308): see below */
} tp_device_opts;

typedef struct tp_stats {
    size_t live_bytes;   /* in use now */
    size_t cached_bytes; /* freed, kept for reuse */
    size_t peak_bytes;   /* largest live_bytes since open or tp_device_reset_peak */
    /* largest live + cached bytes, not counting memory never handed out: what the process took from
     * the system */
    size_t held_peak_bytes;
    uint64_t allocs;   /* allocations requested from the backend */
    uint64_t launches; /* op kernels run, forward and backward */
    uint64_t syncs;    /* calls that waited for the device */
    /* CUDA: products whose bias or bias gradient cuBLASLt could not fuse: one more pass over
     * memory, different last bits */
    uint64_t unfused;
    int threads;
    const char *isa; /* "base", "avx2", "avx512", "amx"; "cuda" */
} tp_stats;

/* Opens a device: "cpu", or "cuda" and "cuda:1" in builds with CUDA; such builds also run on
 * machines without a GPU. o may be NULL. Never returns NULL: if the device cannot be opened, the
 * result is a failed object, tp_device_why returns the reason, and every object created on it fails
 * with that text. The first device that computes loads OpenBLAS (libopenblas.so.0), with one thread
 * for the whole process, because tapegrad splits the work itself; meanwhile the process's
 * environment has OPENBLAS_NUM_THREADS=1. OpenBLAS maps 128 MiB of address space for each thread of
 * the device. If it is not found, or an address-space limit (ulimit -v) leaves no room, the device
 * fails.
 *
 * The threads of a device start at the first op that is large enough and end with the device. They
 * spin briefly while they wait, then sleep; on a busy machine ops run on the calling thread where
 * that is faster. No environment variable matters. Threads of a program may use one CPU device at
 * the same time, each with its own tape; only one op at a time is then split. A CUDA device serves
 * one thread at a time: threads that use a GPU together open a device each.
 *
 * The default number of threads is that of the cores that the process may use (sched_getaffinity),
 * at most the CPU quota of its cgroup (a container's limit), rounded up.
 *
 * CPU kernels run in their own floating-point mode: results are rounded to nearest, nothing traps,
 * and subnormal numbers, which processors compute 10 to 100 times slower, count as 0 as operands
 * and become 0 as results. Copies keep their bits. keep_subnormals computes with them, except in
 * products of bf16 on processors with bf16 instructions, which have no other mode. Each call
 * restores the caller's mode. GPUs compute with subnormal numbers at full speed: CUDA keeps them,
 * except in exponentials of attention's tensor-core kernels.
 *
 * On a processor with AMX-BF16, TP_ISA_AUTO asks Linux for the tile registers
 * (ARCH_REQ_XCOMP_PERM). If it refuses, the kernels for AVX-512 run; tp_stats.isa tells which do.
 * The permission is the whole process's and lasts. The frame of a signal may then need 8 KB more,
 * and Linux refuses alternate signal stacks that are too small for it: take sysconf(_SC_SIGSTKSZ)
 * bytes, or open devices with TP_ISA_AVX512. Threads hold tiles only within a call.
 *
 * After fork(), the child of a process that has computed continues with one thread and the same
 * bits, because the other threads do not exist in it; devices that it opens have their own threads.
 * It may fork while other threads use devices: fork waits for the products that run in OpenBLAS.
 * What a thread of the parent was changing at that moment, such as its tape, is unusable in the
 * child. The threads of a loader do not exist in it either, and CUDA does not support fork: open
 * loaders and CUDA devices in the child.
 *
 * A dry device measures what a program needs without running it. It accepts the same calls, reports
 * the same shapes and errors, and gives the same statistics to the byte, but runs no kernel and
 * touches no memory, however much is requested. All values are undefined; the host reads zeros
 * (tp_item, tp_read, tp_param_get). Values are not checked (tp_tape_opts.check_finite, index
 * ranges), and nothing can be saved. A step takes milliseconds:
 *
 *     tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .dry = true });
 *     ... build the model and take two steps on D ...
 *     size_t peak = tp_device_stats(D).peak_bytes;
 *
 * Open it with as many threads as the real device, since some kernels need scratch memory per
 * thread. A dry "cuda" needs a build with CUDA, but no GPU. The memory of the GPU's own libraries
 * (hundreds of MB) is not counted. */
TP_API tp_device *tp_device_open(const char *name, const tp_device_opts *o);

/* Closes and frees the device. Every object created on it must be freed first. D may have
 * failed. */
TP_API void tp_device_close(tp_device *D);

/* Waits for all queued work. Synchronises. False if the device has failed, in that work or earlier:
 * see tp_device_why. */
TP_API bool tp_device_sync(tp_device *D);

/* Returns cached memory to the system. */
TP_API void tp_device_trim(tp_device *D);

/* Statistics since D was opened. tp_device_reset_peak sets both peaks to their present values. */
TP_API tp_stats tp_device_stats(const tp_device *D);
TP_API void tp_device_reset_peak(tp_device *D);

/* The kernel time of one op in one direction since D was opened or tp_device_reset_profile was
 * called. */
typedef struct tp_op_time {
    const char *op; /* the op's name, valid as long as the op */
    bool backward;
    uint64_t calls;
    double seconds;
} tp_op_time;

/* Fills list with at most n entries of D's profile, longest time first, and returns how many
 * entries there are: 0 unless D was opened with `profile`. Times cover only the kernels, on CUDA
 * measured by the GPU, so their sum is the time of a step with an infinitely fast host. Measuring
 * costs about a microsecond per op. Synchronises on CUDA. */
TP_API int tp_device_profile(tp_device *D, tp_op_time *list, int n);
TP_API void tp_device_reset_profile(tp_device *D);

/* Seconds of a monotonic clock: only differences are meaningful. */
TP_API double tp_seconds(void);

/* The error text of the device; an empty string while it is usable. */
TP_API const char *tp_device_why(const tp_device *D);
TP_API bool tp_device_ok(const tp_device *D);
TP_API const char *tp_device_name(const tp_device *D); /* "cpu", "cuda:0" */

/* A callback for errors: code, and the text that the object's `why` returns. */
typedef void (*tp_error_fn)(void *env, tp_code code, const char *text);

/* Calls fn for each error that D, or a tape, parameter set, optimiser or average on it, records, so
 * that a program that never checks still learns of the first one. A failed object records no
 * further errors: fn is called again after tp_clear, and for each tp_step that is refused. An error
 * that passes from one object to another, from parameters to the tape that uses them, is reported
 * by both. If D has failed already, fn is called at once. fn NULL (the default): no callback.
 *
 * fn runs inside the call that fails, in its thread: threads that share D may run it at the same
 * time. It may print, count, or end the process (exit, abort). It must not leave by longjmp or by a
 * C++ exception, nor call a function that changes D or an object on it. Set it before other threads
 * use D. */
TP_API void tp_device_on_error(tp_device *D, tp_error_fn fn, void *env);

/* True if this build has kernels for the instruction set and this machine runs them. TP_ISA_AUTO
 * and TP_ISA_AMX ask for tiles as tp_device_open does. */
TP_API bool tp_isa_runs(tp_isa isa);

#ifdef __cplusplus
}
#endif
#endif
