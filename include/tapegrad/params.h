/* params.h - named parameters and buffers of a model: one flat block of values, one of gradients.
 *
 * Names are PyTorch's state-dict names. tp_push(P, "layers.3") ... tp_pop(P) around tp_param calls
 * builds them. A tp_params is complete at its first use by an op, a load, a save or an optimiser;
 * declaring more after that is TP_E_STATE. Like a tape it keeps its first error (tp_params_why),
 * and a tape that uses it fails with that text. */
#ifndef TAPEGRAD_PARAMS_H
#define TAPEGRAD_PARAMS_H

#include <tapegrad/base.h>
#include <tapegrad/file.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tp_init_kind {
    TP_INIT_ZERO,
    TP_INIT_CONST,   /* a                                  */
    TP_INIT_NORMAL,  /* mean b, standard deviation a       */
    TP_INIT_UNIFORM, /* in [-a, a)                         */
    TP_INIT_TRUNC    /* normal(0, a) cut at two deviations */
} tp_init_kind;

/* An initial value, drawn on the CPU in double from Philox with the key seed ^ fnv1a64(full name):
 * it depends on neither the order of declaration nor the device. */
typedef struct tp_init {
    tp_init_kind kind;
    double a, b;
} tp_init;

/* May replace the default initialisation of every parameter (full name, shape, module default). */
typedef tp_init (*tp_init_rule)(const char *name, tp_shape s, tp_init dflt, void *env);

typedef struct tp_params_opts {
    uint64_t seed;
    tp_dtype dtype; /* of values and gradients: TP_F32 (default) or TP_F64 (CPU) */
    bool blank;     /* zeros where random values would be drawn: for weights about to be loaded */
} tp_params_opts;

enum { TP_FROZEN = 1, TP_BUFFER = 2 }; /* tp_param flags */

/* Never NULL. o may be NULL. Free after the optimisers and tapes that use it. */
TP_API tp_params *tp_params_new(tp_device *D, const tp_params_opts *o);
TP_API void tp_params_free(tp_params *P);
TP_API bool tp_params_ok(const tp_params *P);
TP_API const char *tp_params_why(const tp_params *P); /* "" if ok */

/* Fails P, unless it has failed already: for modules and models that refuse a configuration. */
TP_API void tp_params_raise(tp_params *P, tp_code code, const char *fmt, ...) TP_PRINTF(3, 4);

/* Enters a name prefix; returns the full path, interned, to be stored as the module's scope name.
 * An empty name adds nothing but must be popped too. */
TP_API const char *tp_push(tp_params *P, const char *name);
TP_API void tp_pop(tp_params *P);
TP_API void tp_params_init_rule(tp_params *P, tp_init_rule rule, void *env);

/* Declares one parameter, whose name may not be empty. TP_FROZEN: no gradient. TP_BUFFER: saved and
 * loaded, but no parameter (never decayed, clipped, counted). The handle lives as long as P. */
TP_API tp_tensor tp_param(tp_params *P, const char *name, tp_shape s, tp_init init, int flags);

/* A buffer of any dtype with given content (host, row-major; NULL: zeros). */
TP_API tp_tensor tp_buffer(tp_params *P, const char *name, tp_dtype dt, tp_shape s,
                           const void *host);

/* Gives `same` a second name: one value, one gradient. Files hold it once and note the alias. */
TP_API void tp_tie(tp_params *P, const char *name, tp_tensor same);

/* Freezes or thaws the parameter named prefix and all below it: "layers.1" takes "layers.1.bias",
 * not "layers.10.bias"; "" takes all. Returns how many; none fails P, since the name is wrong. */
TP_API int tp_freeze(tp_params *P, const char *prefix, bool frozen);

typedef struct tp_param_info {
    int index; /* start with 0; tp_next_param advances it */
    const char *name;
    const char *alias_of; /* not NULL: a tied second name of that parameter */
    tp_shape shape;
    tp_dtype dtype;
    tp_tensor tensor;
    bool buffer, frozen;
    bool has_grad; /* some backward since the last step reached it */
} tp_param_info;

/* for (tp_param_info it = { 0 }; tp_next_param(P, &it);) ... in order of declaration. */
TP_API bool tp_next_param(const tp_params *P, tp_param_info *it);
TP_API tp_tensor tp_find(const tp_params *P, const char *name); /* TP_NONE if there is none */
TP_API int64_t tp_params_count(const tp_params *P);             /* elements, buffers not counted */

/* Host copies of a parameter's or buffer's values, or of its gradient, converted to dtype dt.
 * False, with P's error set, if sizes disagree, if there is no gradient, or if parameters are set
 * while tp_ema_swap is in effect. Synchronise. */
TP_API bool tp_param_get(tp_params *P, tp_tensor p, tp_dtype dt, void *host, size_t bytes);
TP_API bool tp_param_set(tp_params *P, tp_tensor p, tp_dtype dt, const void *host, size_t bytes);
TP_API bool tp_param_get_grad(tp_params *P, tp_tensor p, tp_dtype dt, void *host, size_t bytes);

/* Drops all gradients, and the mark that a failed backward or clipping left on them. */
TP_API void tp_grad_clear(tp_params *P);

/* Scales all gradients by min(1, max / (norm + 1e-6)), norm being their common L2 norm (tied
 * parameters counted once). max <= 0: only measures. The norm stays readable as the returned
 * scalar, owned by P, until the next call; no synchronisation. Where the norm is NaN or infinite, on
 * the CPU nothing is scaled, and tp_step refuses these gradients until tp_grad_clear with a text that
 * names the parameter; on a GPU, where to know it is to wait, NaN spreads to all gradients and by
 * tp_step to all parameters: look at the norm. Without memory the result is a failed tensor, and
 * tp_step refuses these gradients too. */
TP_API tp_tensor tp_clip_grad_norm(tp_params *P, double max);

/* Called when a parameter's gradient of a backward is final (after its last use on the tape), in
 * backward order; `backwards` counts those since the last step, from 1. For data parallelism. */
typedef void (*tp_grad_hook)(void *env, tp_params *P, tp_tensor p, const char *name,
                             int64_t backwards);
TP_API void tp_on_grad(tp_params *P, tp_grad_hook fn, void *env);

/* Weights as safetensors: written beside, synced, renamed. Synchronise. False: see tp_params_why.
 * NaN is refused, so that a run that diverges does not overwrite its last good weights. */
TP_API bool tp_save(tp_params *P, const char *path);

typedef struct tp_load_opts {
    bool partial;      /* missing, extra and misshapen tensors are left alone, not an error */
    bool convert;      /* accept other floating dtypes and convert                          */
    const char *strip; /* prefix removed from names in the file, where present              */
    const char *(*rename)(const char *name, void *env); /* NULL result: skip this tensor */
    void *env;
} tp_load_opts;

/* Loads weights by name. Unless partial, all differences of names, shapes and dtypes are reported
 * in one message and nothing is changed. A tied parameter may have any of its names in the file, or
 * several with equal content. Of a training checkpoint the tensors "optim.*", "ema.*" and "state.*"
 * are passed over. Partial loading of a file without any fitting tensor fails; so does loading while
 * tp_ema_swap is in effect. A file that cannot be read to its end leaves some of its values; P stays
 * failed. o may be NULL. */
TP_API bool tp_load(tp_params *P, const char *path, const tp_load_opts *o);

/* The same from an open file and into an open writer, under a name prefix ("" for none): pieces of
 * a training checkpoint. Names without the prefix are not looked at. Values are read when the
 * writer is committed: until then P must live and be as it is to be saved. */
TP_API bool tp_params_read(tp_params *P, tp_file *F, const char *prefix, const tp_load_opts *o);
TP_API bool tp_params_write(tp_params *P, tp_writer *W, const char *prefix);

#ifdef __cplusplus
}
#endif
#endif
