/* params.h - the named parameters and buffers of a model: one flat block of values. Each
 * gradient is a separate buffer.
 *
 * Names are PyTorch's state-dict names, built by tp_push(P, "layers.3") ... tp_pop(P) around
 * tp_param calls. A tp_params is complete at its first use by an op, a load, a save or an
 * optimiser; declaring more after that is TP_E_STATE. Like a tape it keeps its first error
 * (tp_params_why), until tp_params_clear, and a tape that uses it or what it could not declare
 * fails with that text.
 *
 * A refusal is not such an error. A file that cannot be read or written, or a buffer of the wrong
 * size, leaves P as it was: the call returns false, tp_params_why says why, and P can be used,
 * saved elsewhere and trained further. To continue from weights if they exist:
 *
 *     if (!tp_load(P, "weights.safetensors", NULL)) fprintf(stderr, "%s\n", tp_params_why(P));
 *
 * Compilers warn if the result is ignored (TP_CHECKED).
 *
 * Threads may run forward passes over one set at the same time, each with its own tape. A backward,
 * a step and whatever else changes values, gradients or what is frozen need the set alone. */
#ifndef TAPEGRAD_PARAMS_H
#define TAPEGRAD_PARAMS_H

#include <tapegrad/base.h>
#include <tapegrad/file.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tp_init_kind {
    TP_INIT_ZERO,
    TP_INIT_CONST,   /* a */
    TP_INIT_NORMAL,  /* mean b, standard deviation a */
    TP_INIT_UNIFORM, /* in [-a, a) */
    TP_INIT_TRUNC,   /* normal(0, a) truncated at 2 a */
    /* As torch.nn.init, for at least two axes. a is the gain; 0 means 1, for Kaiming sqrt(2)
     * (ReLU). The fans are in = dim[1] r, out = dim[0] r, r the product of the further sizes;
     * Kaiming's fan is in, with b = 1 out. */
    TP_INIT_XAVIER_UNIFORM,  /* in [-s, s), s = a sqrt(6 / (in + out)) */
    TP_INIT_XAVIER_NORMAL,   /* standard deviation a sqrt(2 / (in + out)) */
    TP_INIT_KAIMING_UNIFORM, /* in [-s, s), s = a sqrt(3 / fan) */
    TP_INIT_KAIMING_NORMAL,  /* standard deviation a / sqrt(fan) */
    TP_INIT_ORTHOGONAL /* dim[0] rows: the vectors of the shorter side are orthonormal, times a */
} tp_init_kind;

/* How to draw initial values. They are drawn on the CPU in double, from Philox with the key seed ^
 * fnv1a64(full name), and depend neither on the order of declaration nor on the device. */
typedef struct tp_init {
    tp_init_kind kind;
    double a, b;
} tp_init;

/* Called for each parameter with its full name, its shape and the module's default; returns the
 * initialisation to use. */
typedef tp_init (*tp_init_rule)(const char *name, tp_shape s, tp_init dflt, void *env);

typedef struct tp_params_opts {
    uint64_t seed;
    tp_dtype dtype; /* of values and gradients: TP_F32 (default) or TP_F64 (CPU) */
    bool blank;     /* zeros instead of random values: for weights that will be loaded */
} tp_params_opts;

enum { TP_FROZEN = 1, TP_BUFFER = 2, TP_TABLE = 4 }; /* tp_param flags */

/* Creates an empty set on D. Never NULL. o may be NULL. Free it after the optimisers and tapes that
 * use it. */
TP_API tp_params *tp_params_new(tp_device *D, const tp_params_opts *o);
TP_API void tp_params_free(tp_params *P);
TP_API bool tp_params_ok(const tp_params *P); /* P is usable; refusals do not matter */
/* The error of P, else why the last call that may refuse did so, else "". */
TP_API const char *tp_params_why(const tp_params *P);
/* Clears the error and the refusal, except an error from tp_params_new, and leaves all prefixes.
 * What P holds stays as it is: values of a file that could be read only in part, or a module whose
 * declaration stopped. */
TP_API void tp_params_clear(tp_params *P);

/* Fails P unless it has failed already, for modules and models that refuse a configuration. */
TP_API void tp_params_raise(tp_params *P, tp_code code, const char *fmt, ...) TP_PRINTF(3, 4);
/* Refuses a call without failing P, for readers that have not changed it: tp_params_why says why.
 * Returns false. */
TP_API bool tp_params_refuse(tp_params *P, tp_code code, const char *fmt, ...) TP_PRINTF(3, 4);

/* Enters a name prefix and returns the full path for the module's scope name. An empty name adds
 * nothing but must also be popped. The string lives as long as the device. */
TP_API const char *tp_push(tp_params *P, const char *name);
TP_API void tp_pop(tp_params *P);

/* Zeroed memory that lives as long as P, for modules whose size is known only when they are
 * declared. NULL: P has failed. */
TP_API void *tp_params_alloc(tp_params *P, size_t bytes);

/* Sets the rule that may replace the default initialisation of parameters declared later. */
TP_API void tp_params_init_rule(tp_params *P, tp_init_rule rule, void *env);

/* Initial values by name: the first row whose pattern matches a parameter's full name replaces its
 * initialisation, whatever declared it. In a pattern, * matches any characters, even dots, and ?
 * matches one: "*.weight", "encoder.*.fc1.weight". A row with the pattern NULL ends the table,
 * which must live until P is complete; a pattern that matches no parameter fails P then. Buffers
 * are unaffected. */
typedef struct tp_init_row {
    const char *pattern;
    tp_init init;
} tp_init_row;
TP_API void tp_init_by_name(tp_params *P, const tp_init_row *rows);

/* Declares a parameter; its name must not be empty. TP_FROZEN: it gets no gradient. TP_BUFFER: it
 * is saved and loaded but is not a parameter, and is never decayed, clipped or counted. TP_TABLE:
 * its rows are looked up (tp_embedding), so that bf16 tapes keep no bf16 copy of it until a product
 * reads it. The handle lives as long as P. */
TP_API tp_tensor tp_param(tp_params *P, const char *name, tp_shape s, tp_init init, int flags);

/* Declares a buffer of any dtype with the row-major content at host; NULL: zeros. */
TP_API tp_tensor tp_buffer(tp_params *P, const char *name, tp_dtype dt, tp_shape s,
                           const void *host);

/* Gives the parameter `same` a second name; they share value and gradient. Files store it once and
 * note the alias. */
TP_API void tp_tie(tp_params *P, const char *name, tp_tensor same);

/* Freezes or unfreezes the parameter named prefix and all below it: "layers.1" includes
 * "layers.1.bias", not "layers.10.bias"; "" means all. Counts from the next op on: frozen around a
 * part of a recorded forward pass, parameters get no gradient through that part only. Returns how
 * many there are; if none matches, P fails. */
TP_API int tp_freeze(tp_params *P, const char *prefix, bool frozen);

typedef struct tp_param_info {
    int index; /* starts at 0; tp_next_param advances it */
    const char *name;
    const char *alias_of; /* not NULL: a tied second name of that parameter */
    tp_shape shape;
    tp_dtype dtype;
    tp_tensor tensor;
    bool buffer, frozen;
    bool has_grad; /* a backward since the last step reached it */
} tp_param_info;

/* Iterates in order of declaration: for (tp_param_info it = { 0 }; tp_next_param(P, &it);) ... */
TP_API bool tp_next_param(const tp_params *P, tp_param_info *it);
TP_API tp_tensor tp_find(const tp_params *P, const char *name); /* TP_NONE if there is none */
TP_API int64_t tp_params_count(const tp_params *P);             /* elements, without buffers */

/* A hash of names, shapes, dtypes and values, of parameters and buffers alike: equal on processes
 * that train the same model, unless one has gone astray. 0 if P has failed. Synchronises. */
TP_API uint64_t tp_params_hash(tp_params *P);

/* Copies the values of a parameter or buffer, or its gradient, to or from host, converted to or
 * from dt. Refused: wrong sizes, a missing gradient, and setting parameters while tp_ema_swap is in
 * effect. A forward pass before tp_param_set has no backward after it, unless it did not read the
 * buffer that was set. Synchronises. */
TP_API TP_CHECKED bool tp_param_get(tp_params *P, tp_tensor p, tp_dtype dt, void *host,
                                    size_t bytes);
TP_API TP_CHECKED bool tp_param_set(tp_params *P, tp_tensor p, tp_dtype dt, const void *host,
                                    size_t bytes);
TP_API TP_CHECKED bool tp_param_get_grad(tp_params *P, tp_tensor p, tp_dtype dt, void *host,
                                         size_t bytes);

/* Sets a gradient from the host, so that tp_step uses it as if a backward had computed it; a
 * backward before that step adds to it. A buffer or a frozen parameter has none: refused. */
TP_API TP_CHECKED bool tp_param_set_grad(tp_params *P, tp_tensor p, tp_dtype dt, const void *host,
                                         size_t bytes);

/* Releases all gradients and drops the error state that a failed backward or clipping left on them.
 * A gradient takes memory from the backward pass that first reaches its parameter until this or
 * tp_step. */
TP_API void tp_grad_clear(tp_params *P);

/* Scales all gradients by min(1, max / (norm + 1e-6)), where norm is their common L2 norm (tied
 * parameters counted once). max <= 0 only measures. Returns the norm as a scalar, owned by P and
 * valid until the next call. Does not synchronise. If the norm is NaN or infinite, the CPU scales
 * nothing, and tp_step refuses these gradients until tp_grad_clear with a text that names the
 * parameter. On a GPU, where a check would have to wait, NaN spreads to all gradients and through
 * tp_step to all parameters: check the norm. If memory runs out, the result is a failed tensor, and
 * tp_step refuses these gradients too. */
TP_API tp_tensor tp_clip_grad_norm(tp_params *P, double max);

/* Clamps every element of all gradients to [-max, max], max >= 0; NaN stays (PyTorch's
 * clip_grad_value_). Does not synchronise. If it fails, tp_step refuses these gradients until
 * tp_grad_clear. */
TP_API bool tp_clip_grad_value(tp_params *P, double max);

/* Called when backward has finished a parameter's gradient (after the parameter's last use on the
 * tape), in backward order. `backwards` counts backward passes since the last step, from 1. For
 * data parallelism. */
typedef void (*tp_grad_hook)(void *env, tp_params *P, tp_tensor p, const char *name,
                             int64_t backwards);
/* Sets the hook; fn NULL removes it. */
TP_API void tp_on_grad(tp_params *P, tp_grad_hook fn, void *env);

/* Saves the weights as safetensors: a temporary file is written, synced and renamed. Synchronises.
 * False: see tp_params_why; P is unchanged and can be saved elsewhere. NaN is refused, so that a
 * diverging run does not overwrite its last good weights. */
TP_API TP_CHECKED bool tp_save(tp_params *P, const char *path);

/* Loads weights by name. Unless partial, all differences in names, shapes and dtypes are reported
 * in one message. Checksums are compared before the first value is changed, so that a file that is
 * refused leaves P as it was. A tied parameter may have any of its names in the file, or several
 * with equal content. Names that no parameter has are tried without the components of PyTorch's
 * wrappers (tp_file_unwrapped). The tensors "optim.*", "ema.*" and "state.*" of a training
 * checkpoint are skipped. Refused, too: partial loading if no tensor fits, and loading while
 * tp_ema_swap is in effect. Only if the file changes, or its disk fails, while the values are
 * copied does P keep those read so far and fail: load another file after tp_params_clear. o may be
 * NULL. */
TP_API TP_CHECKED bool tp_load(tp_params *P, const char *path, const tp_load_opts *o);

/* The same from an open file and into an open writer under a name prefix ("" for none), for parts
 * of a training checkpoint. Names without the prefix are ignored. The values are read when the
 * writer is committed: until then P must live and must not change. Several sets and their
 * optimisers, as those of a GAN, go into one file under separate prefixes. */
TP_API TP_CHECKED bool tp_params_read(tp_params *P, tp_file *F, const char *prefix,
                                      const tp_load_opts *o);
TP_API bool tp_params_write(tp_params *P, tp_writer *W, const char *prefix);

#ifdef __cplusplus
}
#endif
#endif
