/* capture.h - recording a step once and launching it as a whole (CUDA graphs).
 *
 * A small model on a fast GPU is limited by the time it takes to queue its kernels. If each step
 * queues the same kernels on the same shapes, they can be recorded once and launched together:
 *
 *     tp_capture *C = tp_capture_new(T);
 *     tp_tensor x = TP_NONE, y = TP_NONE, loss = TP_NONE;
 *     while (...) {
 *         tp_feed(T, &x, TP_I32, TP_SHAPE(B, N), tokens);
 *         tp_feed(T, &y, TP_I32, TP_SHAPE(B, N), targets);
 *         if (tp_capture_begin(C)) {
 *             loss = tp_cross_entropy(T, model(T, x), y, TP_MEAN);
 *             tp_backward(T, loss);
 *             tp_capture_end(C);
 *         }
 *         tp_step(O, rate);
 *     }
 *
 * The first steps run normally, without capture; one step is recorded and launched; from then on
 * tp_capture_begin launches the recording and returns false. Results equal those without capture
 * bit for bit, including random numbers. On the CPU every step runs normally. */
#ifndef TAPEGRAD_CAPTURE_H
#define TAPEGRAD_CAPTURE_H

#include <tapegrad/tape.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tp_capture tp_capture;

/* Records steps of T, which must outlive the object. Never NULL: if memory runs out, all steps run
 * normally. */
TP_API TP_NO_LINE tp_capture *tp_capture_new(tp_tape *T);
TP_API void tp_capture_free(tp_capture *C);

/* Resets the tape. True: the caller must run the step and end it with tp_capture_end, even if the
 * step fails, and must not use the device for anything else in between. False: the step has been
 * launched, and the tensors of the recorded step hold its results.
 *
 * Whatever the host decides inside a recorded step is frozen: shapes, branches, data from tp_from.
 * Therefore feed data with tp_feed and call tp_step outside. Reading inside (tp_item, tp_read)
 * fails the tape, and tp_device_sync returns false. A step that fails while it is being recorded
 * does not run: carried tensors, gradients and the random stream stay as they were. If the step had
 * called tp_backward, tp_step is refused until tp_grad_clear. The tape fails in the same way if the
 * device cannot make or launch a recording, for lack of memory, say; after tp_clear all steps run
 * normally. Carried tensors keep their memory and must keep their shapes: a step that changes one
 * is launched, discarded, and recorded again later.
 *
 * Steps run normally where a recording would behave differently: on the CPU, with
 * tp_tape_opts.check_finite, with the device options profile and debug_sync, and with a gradient
 * hook (tp_on_grad). A recording is also discarded, and replaced by a new one after two steps, if
 * something has changed: the tape was reset elsewhere or has another seed or mode, a slot has new
 * memory (tp_feed with another shape), or the set of gradients, or their memory, differs from that
 * before the recorded step. The recording keeps the memory of the gradients that it uses. To
 * accumulate gradients over several batches, run all of them between begin and end; call
 * tp_grad_clear, if no tp_step does, before begin. */
TP_API bool tp_capture_begin(tp_capture *C);
TP_API void tp_capture_end(tp_capture *C);

/* The number of steps launched from a recording. */
TP_API int64_t tp_capture_launches(const tp_capture *C);

/* Makes *slot a carried tensor (see tp_carry) with the data at host. It reuses the slot's memory if
 * dtype and shape are unchanged. Returns *slot. */
TP_API tp_tensor tp_feed(tp_tape *T, tp_tensor *slot, tp_dtype dt, tp_shape s, const void *host);

/* A hash of all that tp_feed has copied on T while hashing was on; 0: nothing. Switching it on
 * begins anew. Processes that train on different rows have different ones. */
TP_API void tp_hash_feeds(tp_tape *T, bool on);
TP_API uint64_t tp_feeds_hash(const tp_tape *T);

#ifndef TP_NO_SITE
#include <tapegrad/sites/capture.h>
#endif

#ifdef __cplusplus
}
#endif
#endif
