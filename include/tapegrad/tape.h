/* tape.h - the tape: it owns what ops make, records what backward needs, and keeps the first error.
 *
 * A step:  tp_reset, forward ops, tp_backward(loss), tp_step(O, lr).  One tape belongs to one
 * thread at a time. Each public function that takes a tape has a macro of its own name that notes
 * the caller's file and line for error messages; define TP_NO_SITE before including to do without.
 */
#ifndef TAPEGRAD_TAPE_H
#define TAPEGRAD_TAPE_H

#include <tapegrad/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tp_tape_opts {
    uint64_t seed;     /* key of all random ops                                          */
    tp_dtype compute;  /* of matmul, linear, convolution, attention: TP_F32 (default),
                          TP_BF16 (f32 accumulation), TP_F64 (wants TP_F64 parameters)   */
    bool train;        /* dropout, drop path, batch statistics                           */
    bool check_finite; /* fail at the first op whose result, or in backward whose gradient of
                          an input, holds NaN or infinity: names op, element and place (slow)  */
} tp_tape_opts;

/* A function that tp_checkpoint can run again: the forward of a module. */
typedef tp_tensor (*tp_fn)(tp_tape *T, const void *self, tp_tensor x);
typedef tp_tensor (*tp_fn_n)(tp_tape *T, const void *self, int nx, const tp_tensor *x);

/* Never NULL: on a failed device or without memory the tape is born failed. o may be NULL. */
TP_API tp_tape *tp_tape_new(tp_device *D, const tp_tape_opts *o);
TP_API void tp_tape_free(tp_tape *T);

/* Ends the step: every tensor of the tape but carried ones is released, open scopes are closed,
 * the graph is dropped. The error, if any, stays. */
TP_API void tp_reset(tp_tape *T);

TP_API void tp_train(tp_tape *T, bool on);  /* training mode from here on                 */
TP_API bool tp_record(tp_tape *T, bool on); /* off: no graph; returns the former setting  */
TP_API bool tp_is_training(const tp_tape *T);
TP_API tp_dtype tp_compute_dtype(const tp_tape *T);
TP_API tp_device *tp_device_of(const tp_tape *T);

/* The position in the random stream: (seed, offset) determines every later random op. */
TP_API void tp_random_state(const tp_tape *T, uint64_t *seed, uint64_t *offset);
TP_API void tp_set_random_state(tp_tape *T, uint64_t seed, uint64_t offset);

/* Scopes. tp_leave releases every tensor made since the matching tp_enter but `result` (which moves
 * to the enclosing scope) and kept ones, and returns result. path names the place in messages; the
 * string must live as long as the scope. `return tp_leave(T, y);` */
TP_API void tp_enter(tp_tape *T, const char *path);
TP_API tp_tensor tp_leave(tp_tape *T, tp_tensor result);
TP_API void tp_leave_n(tp_tape *T, int n, const tp_tensor *results);

TP_API tp_tensor tp_keep(tp_tape *T, tp_tensor x);   /* survives scope and backward, until reset */
TP_API tp_tensor tp_detach(tp_tape *T, tp_tensor x); /* the same data, no gradient through it    */

/* Makes *slot a detached tensor with the data of x (shared, not copied) that survives resets: it
 * lives until the slot is carried again or the tape is freed; the former content stays valid until
 * the next reset. x = TP_NONE empties the slot; a failed tape leaves it as it was; a replay by
 * tp_checkpoint does not carry. Returns *slot. */
TP_API tp_tensor tp_carry(tp_tape *T, tp_tensor *slot, tp_tensor x);

/* Writes the rows of src [n,...] over rows row .. row+n-1 of the carried tensor dst [m,...], in
 * place. For decoders: allowed only while not recording. Fails unless the row shapes agree. */
TP_API void tp_write_rows(tp_tape *T, tp_tensor dst, int64_t row, tp_tensor src);

/* Gradients of the scalar loss: into the parameters it used (added to those of earlier backwards
 * since the last tp_step) and, until reset, into inputs and kept tensors. What only backward needed
 * is released. A second backward over the same nodes is TP_E_STATE. */
TP_API void tp_backward(tp_tape *T, tp_tensor loss);

/* The gradient of an input or a kept tensor after tp_backward, or of a parameter; owned by the tape
 * (or P). TP_E_STATE if there is none. */
TP_API tp_tensor tp_grad(tp_tape *T, tp_tensor x);

/* Runs f without recording and saves only x, self and the random offset; backward runs it again.
 * self must live until then. A tensor of the tape that wants a gradient and reaches f other than
 * through x is an error. */
TP_API tp_tensor tp_checkpoint(tp_tape *T, tp_fn f, const void *self, tp_tensor x);
TP_API tp_tensor tp_checkpoint_n(tp_tape *T, tp_fn_n f, const void *self, int nx,
                                 const tp_tensor *x);

/* Errors stick: the first one is kept, later calls do nothing, tensors made meanwhile are failed.
 * Check once, at the end of a step or of the program. */
TP_API bool tp_ok(const tp_tape *T);
TP_API const char *tp_why(const tp_tape *T); /* full text; "" if ok; lives until tp_clear */
TP_API tp_code tp_code_of(const tp_tape *T);
TP_API void tp_clear(tp_tape *T); /* forget the error (a failed birth cannot be forgotten) */

/* Fails the tape as an op would: for readers and other code that hands tensors to a tape. Does
 * nothing if it has failed already. Returns TP_NONE's failed counterpart, to be passed on. */
TP_API tp_tensor tp_raise(tp_tape *T, tp_code code, const char *fmt, ...) TP_PRINTF(3, 4);

/* Notes the caller's place; used by the macros below. Returns T. */
TP_API tp_tape *tp_at(tp_tape *T, const char *file, int line);

#ifndef TP_NO_SITE
#define tp_keep(T, ...)         tp_keep(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_detach(T, ...)       tp_detach(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_carry(T, ...)        tp_carry(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_write_rows(T, ...)   tp_write_rows(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_backward(T, ...)     tp_backward(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_grad(T, ...)         tp_grad(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_checkpoint(T, ...)   tp_checkpoint(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_checkpoint_n(T, ...) tp_checkpoint_n(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#endif

#ifdef __cplusplus
}
#endif
#endif
