/* capture.h - recording a step once and launching it as a whole (CUDA graphs).
 *
 * A small model on a fast GPU is limited by the time it takes to queue its kernels. If each step
 * queues the same kernels on the same shapes, they can be recorded once and launched together, the
 * whole step with clipping, optimiser and averages as one launch:
 *
 *     tp_capture *C = tp_capture_new(T);
 *     tp_tensor x = TP_NONE, y = TP_NONE, loss = TP_NONE;
 *     while (...) {
 *         tp_feed(T, &x, TP_I32, TP_SHAPE(B, N), tokens);
 *         tp_feed(T, &y, TP_I32, TP_SHAPE(B, N), targets);
 *         tp_next_rate(O, rate);
 *         if (tp_capture_begin(C)) {
 *             loss = tp_cross_entropy(T, model(T, x), y, TP_MEAN);
 *             tp_backward(T, loss);
 *             tp_clip_grad_norm(P, 1.0);
 *             tp_step(O, rate);
 *             tp_capture_end(C);
 *         }
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
 * step fails; meanwhile its thread must not use the device for anything else. (Other threads may
 * share a device of the CPU.) One thread begins, ends and frees a capture. False: the step has been
 * launched, and the tensors of the recorded step hold its results.
 *
 * Whatever the host decides inside a recorded step is frozen: shapes, branches, data from tp_from,
 * the limit of tp_clip_grad_norm. What changes must be given before begin: data by tp_feed, the
 * learning rate by tp_next_rate, a factor on the gradients by tp_grad_scale. The optimiser counts
 * its launched steps, and takes its options (tp_optim_set) as they are at each. tp_step may also
 * stand after end, with any rate. Between begin and end it is refused, on every device and whether
 * the step is recorded or not, if tp_next_rate was not given the same rate, or if processes
 * exchange gradients. Also refused there: tp_ema_swap, tp_optim_swap, tp_params_blend.
 *
 * Reading inside (tp_item, tp_read) fails the tape, and tp_device_sync returns false. A step that
 * fails while it is being recorded does not run: parameters, moments, counts, carried tensors,
 * gradients and the random stream stay as they were. If the step had called tp_backward, but not
 * tp_step, tp_step is refused until tp_grad_clear. The tape fails in the same way if the device
 * cannot make or launch a recording, for lack of memory, say; after tp_clear all steps run
 * normally. Carried tensors keep their memory and must keep their shapes: a step that changes one
 * is launched, discarded, and recorded again later, and so is one in which tp_step was refused.
 *
 * Steps run normally where a recording would behave differently: on the CPU, with
 * tp_tape_opts.check_finite, with the device options profile and debug_sync, and with a gradient
 * hook (tp_on_grad). A recording is also discarded, and replaced by a new one after two steps, if
 * something has changed: the tape was reset elsewhere or has another seed or mode, a slot has new
 * memory (tp_feed with another shape), or the set of gradients, or their memory, differs from that
 * before the recorded step; with tp_step inside also if no usable rate was given (tp_step then says
 * so), averages are swapped in, a parameter has been frozen or unfrozen, or an option has added a
 * moment. The recording keeps the memory of the gradients that it uses. To accumulate gradients
 * over several batches, run all of them between begin and end, each from slots of its own; call
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
