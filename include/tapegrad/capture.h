/* capture.h - steps recorded once and launched as a whole (CUDA graphs).
 *
 * A small model on a fast GPU is bound by the time that queuing its kernels takes. If each step
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
 * The first steps run as ever, one is recorded and launched, and from then on tp_capture_begin
 * launches the recording and returns false. Results are those of steps without capture, bit for
 * bit, random numbers included. On the CPU every step runs as ever. */
#ifndef TAPEGRAD_CAPTURE_H
#define TAPEGRAD_CAPTURE_H

#include <tapegrad/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tp_capture tp_capture;

/* For the steps of one tape, which must live longer. Never NULL: without memory an object whose
 * steps all run as ever. */
TP_API tp_capture *tp_capture_new(tp_tape *T);
TP_API void tp_capture_free(tp_capture *C);

/* Resets the tape. True: the caller runs the step and ends it with tp_capture_end, even if it
 * fails, and does nothing else with the device in between. False: the step was launched; the
 * tensors of the recorded step hold its results.
 *
 * What the host decides inside a recorded step stays as it was: shapes, branches, data from
 * tp_from. So data come in by tp_feed, and tp_step stands outside. Reading (tp_item, tp_read)
 * inside fails the tape, and tp_device_sync is false; a step that fails while it is recorded does
 * not run, and carried tensors are what they were. Carried tensors keep their memory, so they must
 * keep their shapes: a step that changes one is launched, forgotten, and recorded anew later.
 *
 * Steps run as ever where a recording would not do the same: on the CPU, with
 * tp_tape_opts.check_finite, with the device options profile and debug_sync, with a gradient hook
 * (tp_on_grad). A recording is also forgotten, and made anew after two steps, when something has
 * changed since: the tape was reset elsewhere or has another seed or mode, a slot got other memory
 * (tp_feed of another shape), or gradients stand otherwise than before the recorded step. So where
 * gradients are accumulated over several batches, all of them belong between begin and end. */
TP_API bool tp_capture_begin(tp_capture *C);
TP_API void tp_capture_end(tp_capture *C);

/* How many steps were launched from a recording. */
TP_API int64_t tp_capture_launches(const tp_capture *C);

/* Makes *slot a carried tensor (see tp_carry) with the bytes at host, in the memory that it had
 * before if dtype and shape are still the same. Returns *slot. */
TP_API tp_tensor tp_feed(tp_tape *T, tp_tensor *slot, tp_dtype dt, tp_shape s, const void *host);

#ifndef TP_NO_SITE
#define tp_feed(T, ...) tp_feed(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#endif

#ifdef __cplusplus
}
#endif
#endif
