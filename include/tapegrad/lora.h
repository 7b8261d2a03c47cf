/* lora.h - low-rank adaptation of linear modules: large weights stay as they are, and each gets a
 * small product that is trained in their place.
 *
 *     y = x W^T + b + (alpha / rank) dropout(x) A^T B^T       A [rank,in], B [out,rank]
 *
 * At first B is 0, so the function is that of the weights. "lora_A.weight" and "lora_B.weight" lie
 * below the module, and files have the names of the package peft. The adaptations are parameters
 * like all others: optimisers, checkpoints and averages need to know nothing.
 *
 *     tp_lora(P, &(tp_lora_opts){ .rank = 8, .modules = "q_proj,v_proj" });
 *     tp_net *N = tp_net_new(P, "", &cfg);
 *     tp_net_load(P, N, base, false);       the weights, which are frozen
 *     ...                                   train
 *     tp_lora_save(P, "adapter.safetensors");
 *
 * Source: Hu et al., LoRA (2021); dropout and initial values (A as the weight of a linear layer) as
 * in its code. */
#ifndef TAPEGRAD_LORA_H
#define TAPEGRAD_LORA_H

#include <tapegrad/params.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Patterns are lists separated by commas, in which * matches any characters, even dots, and ? one.
 * A pattern matches a whole name or its last components: "v_proj" matches
 * "layers.3.attn.v_proj". */
typedef struct tp_lora_opts {
    int64_t rank;        /* at least 1 */
    double alpha;        /* 0: rank, which makes the factor 1 */
    double dropout;      /* of the input of A, in training */
    const char *modules; /* paths of linear modules; NULL: all, except tied ones (tp_linear_tie) */
    const char *train;   /* names of parameters that are trained, too; NULL: none */
} tp_lora_opts;

/* Adapts the linear modules (tp_linear_m) that are declared in P from now on, and freezes
 * (tp_freeze) every other parameter that is declared from now on and not in `train`. A module whose
 * weight is in `train` is not adapted. P fails if o is impossible, if this is its second call, and,
 * when P is complete, if no module matches. P keeps copies of the texts. */
TP_API void tp_lora(tp_params *P, const tp_lora_opts *o);
TP_API int tp_lora_count(const tp_params *P); /* adapted modules so far */
/* True if a name, of a parameter or in a file, is that of an adaptation. A file that has none may
 * be loaded (tp_load, tp_params_read): the adaptations then keep their values. */
TP_API bool tp_lora_is_name(const char *name);

/* Writes the adaptations and the parameters in `train`, under peft's prefix "base_model.model.",
 * with rank and alpha as the metadata "lora.rank" and "lora.alpha". save: replaces the file, as
 * tp_save. False: see tp_params_why, which also says if P has no adaptations. Synchronises. */
TP_API TP_CHECKED bool tp_lora_save(tp_params *P, const char *path);
TP_API bool tp_lora_write(tp_params *P, tp_writer *W);

/* Loads what tp_lora_save or peft wrote, below any prefix. All differences in names, shapes and
 * dtypes are one message; P is then as it was. The file's alpha must be P's, if it says so. */
TP_API TP_CHECKED bool tp_lora_load(tp_params *P, tp_file *F);

/* Adds (alpha / rank) B A to each adapted weight and sets B to 0: the function stays the same, up
 * to rounding and dropout. A weight with a second name, such as a tied head's, is refused before
 * anything changes. If host memory runs out, the modules done so far are merged and the others are
 * not. Synchronises. */
TP_API TP_CHECKED bool tp_lora_merge(tp_params *P);

/* Adds the adaptations of a file to the weights of P, which has none itself: its modules need no
 * memory or time for them. Parameters that were trained beside them are replaced. alpha: for files
 * that do not say, such as peft's, whose adapter_config.json does; 0: the rank. Refused: P after
 * tp_lora; files with tensors that P has no weights for, of other shapes, for weights with a second
 * name, with a factor that lacks the other. Only a file that fails while it is read changes P in
 * part, and then fails it. Synchronises. */
TP_API TP_CHECKED bool tp_lora_apply(tp_params *P, tp_file *F, double alpha);

/* ---- for modules of your own ---- */

/* The adaptation of a module, which lives as long as P. */
typedef struct tp_lora_m {
    const char *path; /* the module's */
    tp_tensor a, b;   /* [rank,in], [out,rank] */
    double scale, dropout;
} tp_lora_m;

/* Declares the adaptation of the linear module at the current prefix (tp_push), whose weight has
 * been declared, if tp_lora wants it. tied: the weight belongs to something else. NULL: it is not
 * adapted. tp_linear_init calls this. */
TP_API const tp_lora_m *tp_lora_declare(tp_params *P, tp_tensor weight, bool tied);

#ifdef __cplusplus
}
#endif
#endif
