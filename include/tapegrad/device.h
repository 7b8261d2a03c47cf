/* device.h - where tensors live and ops run. */
#ifndef TAPEGRAD_DEVICE_H
#define TAPEGRAD_DEVICE_H

#include <tapegrad/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Instruction sets of the CPU kernels. One binary holds all that its architecture has. */
typedef enum tp_isa { TP_ISA_AUTO, TP_ISA_BASE, TP_ISA_AVX2, TP_ISA_AVX512 } tp_isa;

typedef struct tp_device_opts {
    int threads;        /* 0: OMP_NUM_THREADS, else the cores of this process               */
    tp_isa isa;         /* TP_ISA_AUTO: the best that this machine runs                     */
    size_t cache_limit; /* bytes of freed memory kept for reuse; 0: no limit                */
    size_t fail_at; /* tests: backend allocations fail_at .. fail_at + fail_count - 1 (from 1)  */
    size_t fail_count; /* fail; a request makes two, the second after returning the cache */
    bool dry;          /* count, do not compute: see tp_device_open */
    bool exact; /* tests: every buffer is an allocation of its own size, returned when freed, so  */
                /* that memory checkers see each access past its end                          */
    bool tf32;  /* CUDA: products of f32 with ten-bit mantissas                               */
    bool debug_sync; /* CUDA: waits after each op, so that a fault names its op                */
    bool profile;    /* measures the time of each op, see tp_device_profile                    */
} tp_device_opts;

typedef struct tp_stats {
    size_t live_bytes;      /* in use now                                   */
    size_t cached_bytes;    /* freed, kept for reuse                        */
    size_t peak_bytes;      /* largest live_bytes since open or tp_device_reset_peak */
    size_t held_peak_bytes; /* the same of live and cached, without what was never handed out: the
                               memory that the process had from the system */
    uint64_t allocs;        /* allocations asked of the backend             */
    uint64_t launches;      /* op kernels run, forward and backward         */
    uint64_t syncs;         /* calls that waited for the device             */
    uint64_t unfused;       /* CUDA: products whose bias, or its gradient, cuBLASLt could not make
                               part of them: a pass over memory more, and other last bits */
    int threads;
    const char *isa; /* "base", "avx2", "avx512"; "cuda"             */
} tp_stats;

/* Opens a device: "cpu"; "cuda", "cuda:1" in builds with CUDA, which work on machines without too.
 * o may be NULL. Never returns NULL: a device that could not be opened is a failed object,
 * tp_device_why says why, and whatever is made on it fails with that text. Opening the CPU sets
 * OpenBLAS to one thread, process-wide: tapegrad splits the work itself. OpenBLAS maps 128 MiB of
 * addresses for each thread of the device then; where a limit leaves no room (ulimit -v), the
 * device fails, for OpenBLAS would wait for ever later.
 *
 * After fork() the child of a process that has computed goes on with one thread, and the same bits:
 * the others do not exist there. A loader's do not either, and CUDA knows no fork: open those anew
 * in a process of its own.
 *
 * A dry device tells what a program would need before it is run: the same calls, the
 * same shapes and errors, the same statistics to the byte, but no kernel runs and no memory is
 * touched, however much is asked for. All values are undefined, and zero where the host reads them
 * (tp_item, tp_read, tp_param_get); checks of values (tp_tape_opts.check_finite, indices in range)
 * do not take place, and nothing can be saved. A step takes milliseconds:
 *
 *     tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .dry = true });
 *     ... build the model and take two steps on D, as ever ...
 *     size_t peak = tp_device_stats(D).peak_bytes;
 *
 * Give it the threads of the real device: some kernels want scratch memory for each. A dry "cuda"
 * needs no GPU; what the GPU's own libraries take (some hundred MB) is not counted. */
TP_API tp_device *tp_device_open(const char *name, const tp_device_opts *o);

/* Frees the device. Everything made on it must have been freed before. D may be failed. */
TP_API void tp_device_close(tp_device *D);

/* Waits until all queued work is done. Synchronises. False: the device has failed, by that work or
 * before; tp_device_why says how. */
TP_API bool tp_device_sync(tp_device *D);

/* Returns cached memory to the system. */
TP_API void tp_device_trim(tp_device *D);

TP_API tp_stats tp_device_stats(const tp_device *D);
TP_API void tp_device_reset_peak(tp_device *D);

/* The time that the kernels of an op took, in one direction, since D was opened or
 * tp_device_reset_profile. */
typedef struct tp_op_time {
    const char *op; /* a name that lives as long as the op */
    bool backward;
    uint64_t calls;
    double seconds;
} tp_op_time;

/* Fills list with the first n lines of D's profile, longest time first, and returns how many there
 * are: 0 unless D was opened with `profile`. Times are those of the kernels alone, on CUDA measured
 * by the GPU, so their sum is what a step would take if the host were infinitely fast. Measuring
 * costs about a microsecond an op. Synchronises on CUDA. */
TP_API int tp_device_profile(tp_device *D, tp_op_time *list, int n);
TP_API void tp_device_reset_profile(tp_device *D);

/* Empty string while the device is usable, else why it is not. */
TP_API const char *tp_device_why(const tp_device *D);
TP_API bool tp_device_ok(const tp_device *D);
TP_API const char *tp_device_name(const tp_device *D); /* "cpu", "cuda:0" */

/* A callback for errors: code, and the text that the object's `why` returns. */
typedef void (*tp_error_fn)(void *env, tp_code code, const char *text);

/* Calls fn for each error that D, or a tape, parameter set, optimiser or average on it, records, so
 * that a program which never checks still hears of the first one. An object that has failed records
 * nothing more: fn is called again after tp_clear, and by each tp_step that is refused. An error that
 * passes from one object to another, from parameters to the tape that uses them, is reported by both.
 * If D has failed already, fn is called at once. fn NULL (the default): no callback.
 *
 * fn runs inside the call that fails, in its thread: threads that share D may run it at the same
 * time. It may print, count, or end the process (exit, abort). It must not leave by longjmp or by a
 * C++ exception, nor call a function that changes D or an object on it. Set it before other threads
 * use D. */
TP_API void tp_device_on_error(tp_device *D, tp_error_fn fn, void *env);

/* Does this machine run the instruction set? */
TP_API bool tp_isa_runs(tp_isa isa);

#ifdef __cplusplus
}
#endif
#endif
