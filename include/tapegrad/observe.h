/* observe.h - observing a model while it runs: a callback after every op, for figures and analyses;
 * traces of when everything ran. Not part of tapegrad.h; unstable until 1.0. */
#ifndef TAPEGRAD_OBSERVE_H
#define TAPEGRAD_OBSERVE_H

#include <tapegrad/op.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An op that has run, with its inputs (TP_NONE: absent) and outputs. attr points to the op's
 * attributes, such as a tp_window_attn_cfg. */
typedef struct tp_seen {
    const tp_op *op;
    const void *attr;
    const char *path; /* of the innermost scope; "" outside all */
    int nx, ny;       /* ny: visible outputs */
    const tp_tensor *x, *y;
} tp_seen;
typedef void (*tp_observer)(void *env, tp_tape *T, const tp_seen *s);

/* Calls f after every op that T applies; f NULL ends it. f may read the tensors (tp_read) and apply
 * ops. It is called neither for those nor for ops that tp_checkpoint recomputes or a recorded step
 * repeats. */
TP_API void tp_observe(tp_tape *T, tp_observer f, void *env);

/* The multiply-adds of an op's forward call (tp_op.macs); 0 for ops without products. Valid only
 * inside the observer that received s. */
TP_API double tp_seen_macs(const tp_seen *s);

/* ---- traces ---- */

/* A trace says when each op ran: JSON in the Trace Event Format, for https://ui.perfetto.dev and
 * chrome://tracing. Training programs write that of one update with --trace. A program's own:
 *
 *     tp_trace_begin(D);
 *     ... forward, backward, tp_step ...
 *     if (!tp_trace_end(D, "step.json", why, sizeof why)) fprintf(stderr, "%s\n", why);
 *
 * Each op has a slice of the thread that called it, with its direction, module, and the dtypes and
 * shapes of its inputs and outputs; so have what backward adds up and what optimisers do. Scopes
 * (tp_enter) are slices around the ops in them. A slice covers the kernel on the CPU. On CUDA it
 * covers the call that queues the kernel; if D was opened with `profile`, a second process of the
 * trace has the kernel on the GPU, as measured there. A step that is launched as a recorded one
 * (capture.h) shows no ops; `profile` keeps steps from being recorded.
 *
 * Tracing costs 2 or 3 microseconds and 100 bytes of memory for each op and scope. */

/* Begins a trace of D, which drops one that was begun before and synchronises. It is freed by
 * tp_trace_end or with D. No other thread may use D during this call or tp_trace_end; in between
 * any number may. */
TP_API void tp_trace_begin(tp_device *D);

/* Begin and end a slice of the calling thread, around what it does in between. The name is copied.
 * Without a trace they do nothing. */
TP_API void tp_trace_enter(tp_device *D, const char *name);
TP_API void tp_trace_leave(tp_device *D);

/* Ends the trace and writes it to path, replacing the file as a whole; path NULL: drops it.
 * Synchronises. False with the reason in why, which may be NULL: no trace was begun, memory ran out
 * during it, or the file cannot be written. The trace has ended in any case. */
TP_API TP_CHECKED bool tp_trace_end(tp_device *D, const char *path, char *why, size_t size);

#ifdef __cplusplus
}
#endif
#endif
