/* tape.h - the tape owns the results of ops, records what backward needs, and keeps the first
 * error.
 *
 * A step is tp_reset, forward ops, tp_backward(loss), tp_step(O, lr). A tape may be used by one
 * thread at a time. Public functions that take a tape are wrapped in macros of the same name that
 * record the caller's file and line for error messages. The build makes the macros of most headers
 * from their prototypes (tapegrad/sites/). Define TP_NO_SITE before including to omit them. */
#ifndef TAPEGRAD_TAPE_H
#define TAPEGRAD_TAPE_H

#include <tapegrad/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Marks functions of those headers without such a macro: errors name no line, or that of the
 * enclosing call. */
#define TP_NO_LINE

typedef struct tp_tape_opts {
    uint64_t seed; /* key of all random ops */
    /* dtype of matmul, linear, convolution, attention: TP_F32 (default), TP_F64 (needs TP_F64
     * parameters), or TP_BF16: f32 accumulation, and f32 parameters and data without casts
     * (docs/guide/mixed-precision.md) */
    tp_dtype compute;
    bool train; /* training mode: dropout, drop path, batch statistics */
    /* fail at the first op whose result or input gradient contains NaN or infinity, naming the op,
     * the element and the source line (slow) */
    bool check_finite;
} tp_tape_opts;

/* A function that tp_checkpoint can recompute: the forward pass of a module. */
typedef tp_tensor (*tp_fn)(tp_tape *T, const void *self, tp_tensor x);
typedef tp_tensor (*tp_fn_n)(tp_tape *T, const void *self, int nx, const tp_tensor *x);

/* Creates a tape on D. Never NULL: if D has failed or memory runs out, the tape is a failed object.
 * o may be NULL. Free it before D is closed. */
TP_API tp_tape *tp_tape_new(tp_device *D, const tp_tape_opts *o);
TP_API TP_NO_LINE void tp_tape_free(tp_tape *T);

/* Ends the step: releases every tensor of the tape except carried ones, closes open scopes and
 * drops the graph. Errors remain. */
TP_API TP_NO_LINE void tp_reset(tp_tape *T);

/* Switches training mode. Like tp_freeze, which decides what gets a gradient, it may be switched
 * around parts of a recorded forward pass: an op keeps the mode in which it was applied. */
TP_API TP_NO_LINE void tp_train(tp_tape *T, bool on);
/* Sets recording (off: no graph). Returns the old setting. */
TP_API TP_NO_LINE bool tp_record(tp_tape *T, bool on);

/* The mode, the dtype of products, and the device of a tape. */
TP_API bool tp_is_training(const tp_tape *T);
TP_API tp_dtype tp_compute_dtype(const tp_tape *T);
TP_API tp_device *tp_device_of(const tp_tape *T);

/* Gets or sets the position in the random stream: (seed, offset) determines every later random
 * op. */
TP_API void tp_random_state(const tp_tape *T, uint64_t *seed, uint64_t *offset);
TP_API TP_NO_LINE void tp_set_random_state(tp_tape *T, uint64_t seed, uint64_t offset);

/* Scopes. tp_leave releases every tensor created since the matching tp_enter, except kept ones and
 * `result`, which moves to the enclosing scope and is returned: `return tp_leave(T, y);`. Messages
 * name the path, a string that must outlive the scope. */
TP_API void tp_enter(tp_tape *T, const char *path);
TP_API tp_tensor tp_leave(tp_tape *T, tp_tensor result);
TP_API void tp_leave_n(tp_tape *T, int n, const tp_tensor *results);

TP_API tp_tensor tp_keep(tp_tape *T, tp_tensor x); /* x survives scope and backward, until reset */
TP_API tp_tensor tp_detach(tp_tape *T, tp_tensor x); /* the data of x; no gradient flows through */

/* Makes *slot a detached tensor that shares the data of x and survives resets. It lives until the
 * slot is carried again or the tape is freed; the previous content stays valid until the next
 * reset. x = TP_NONE empties the slot. A failed tape leaves the slot unchanged, and so does a
 * replay by tp_checkpoint. Returns *slot. */
TP_API tp_tensor tp_carry(tp_tape *T, tp_tensor *slot, tp_tensor x);

/* Overwrites rows row .. row+n-1 of the carried tensor dst [m,...] with src [n,...], in place.
 * Meant for decoders: allowed only while not recording. Fails unless the row shapes agree. */
TP_API void tp_write_rows(tp_tape *T, tp_tensor dst, int64_t row, tp_tensor src);

/* Computes the gradients of the scalar loss. Those of parameters add to the gradients of earlier
 * backward passes since the last tp_step; those of inputs and kept tensors last until reset. Data
 * saved only for backward is released. A second backward over the same nodes is TP_E_STATE. A
 * backward that fails midway drops the gradients of all tensors of the tape. */
TP_API void tp_backward(tp_tape *T, tp_tensor loss);

/* The gradient of an input or a kept tensor after tp_backward, or of a parameter between
 * tp_backward and tp_step. TP_E_STATE if there is none. The result belongs to T and is a constant:
 * there are no second derivatives, and tp_backward refuses a loss that is made of it while
 * recording. For a penalty on gradients, write them with ops, which takes a few lines for a network
 * of known layers (docs/guide/second-derivatives.md); if a constant is meant, pass it through
 * tp_detach. A parameter's gradient reflects later backward passes and clipping until
 * tp_step or tp_grad_clear releases the gradient; after that it keeps those values, and their
 * memory, until T is reset or a recorded step writes them again. */
TP_API tp_tensor tp_grad(tp_tape *T, tp_tensor x);

/* Runs f without recording and saves only x, self and the random offset; backward runs f again.
 * self must live until then. It is an error if a tensor of the tape that needs a gradient reaches f
 * other than through x. */
TP_API tp_tensor tp_checkpoint(tp_tape *T, tp_fn f, const void *self, tp_tensor x);
TP_API tp_tensor tp_checkpoint_n(tp_tape *T, tp_fn_n f, const void *self, int nx,
                                 const tp_tensor *x);

/* Makes backward recompute x where it needs its data instead of keeping it: for large results of
 * cheap ops on tensors that are kept anyway, such as scaled weights. Views of all of x and its
 * casts are recomputed, too. Memory is saved once x is no longer live: leave its scope. x must be
 * the only result of an op that does not read the compute dtype, and its inputs must be live or
 * saved; else the tape fails. A parameter, an unrecorded tensor or a view of a part of a tensor
 * stays as it is. Returns x. */
TP_API tp_tensor tp_transient(tp_tape *T, tp_tensor x);

/* Errors are sticky: the tape keeps the first one, later calls do nothing, and tensors they return
 * are failed. Check once, at the end of a step or of the program. */
TP_API bool tp_ok(const tp_tape *T);
TP_API const char *tp_why(const tp_tape *T); /* full text; "" if ok; valid until tp_clear */
TP_API tp_code tp_code_of(const tp_tape *T);
TP_API TP_NO_LINE void tp_clear(tp_tape *T); /* clears the error, except one from tp_tape_new */

/* True if T's device is dry (tp_device_open): a module may then replace a table that it computes on
 * the host by tp_full, which takes no memory of the host. */
TP_API bool tp_dry(const tp_tape *T);

/* Fails the tape as an op does, for readers and other code that creates tensors. Does nothing if
 * the tape has failed already. Returns a failed tensor, which the caller can pass on. */
TP_API TP_NO_LINE tp_tensor tp_raise(tp_tape *T, tp_code code, const char *fmt, ...)
    TP_PRINTF(3, 4);

/* The same with the caller's place, the scopes and the op count, as in an op's message, for
 * modules. */
TP_API TP_NO_LINE tp_tensor tp_raise_here(tp_tape *T, tp_code code, const char *fmt, ...)
    TP_PRINTF(3, 4);

/* Records the caller's file and line; the macros use it. Returns T. */
TP_API TP_NO_LINE tp_tape *tp_at(tp_tape *T, const char *file, int line);

#ifndef TP_NO_SITE
#include <tapegrad/sites/tape.h>
#endif

#ifdef __cplusplus
}
#endif
#endif
