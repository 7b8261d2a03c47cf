/* optim.h - optimisers, learning-rate schedules and weight averaging over a tp_params. */
#ifndef TAPEGRAD_OPTIM_H
#define TAPEGRAD_OPTIM_H

#include <tapegrad/base.h>
#include <tapegrad/file.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Factors on learning rate and weight decay, which a recipe chooses for each parameter by name. The rule
 * is called once for each parameter when the optimiser is created. */
typedef struct tp_factors {
    double lr, decay;
} tp_factors;
typedef tp_factors (*tp_factor_rule)(const char *name, tp_shape s, void *env);

typedef struct tp_sgd_opts {
    double momentum, weight_decay; /* decay is added to the gradient */
    bool nesterov;
    tp_factor_rule factors; /* NULL: 1 and 1 */
    void *env;
} tp_sgd_opts;

/* Quasi-hyperbolic momentum (Ma, Yarats 2019): momentum in [0,1) averages gradients, and nu in [0,1] is
 * the weight of that average in a step. nu 1 is SGD with damped momentum (fine-tuning of ViL). */
typedef struct tp_qhm_opts {
    double momentum, nu, weight_decay; /* decay is added to the gradient */
    tp_factor_rule factors;
    void *env;
} tp_qhm_opts;

/* Adam and AdamW. Zero betas and eps mean 0.9, 0.999 and 1e-8. */
typedef struct tp_adam_opts {
    double beta1, beta2, eps, weight_decay;
    bool raw_eps;     /* add eps to the uncorrected sqrt(v) (fairseq; language model, ViL)   */
    bool decay_after; /* apply decoupled decay to the updated parameter (ViL)                */
    tp_factor_rule factors;
    void *env;
} tp_adam_opts;
typedef tp_adam_opts tp_adamw_opts;

/* Creates an optimiser over P's parameters. Never NULL; failed if P is. o may be NULL. Moments live on
 * P's device, in P's dtype.
 *   SGD:    g += wd p;  u = momentum u + g;  p -= lr u  (nesterov: p -= lr (g + momentum u))
 *   QHM:    g += wd p;  u = momentum u + (1-momentum) g;  p -= lr ((1-nu) g + nu u)
 *   Adam:   g += wd p, then the update below without decay
 *   AdamW:  p -= lr wd p;  m, v moments;  p -= lr m^ / (sqrt(v^) + eps),  ^ bias-corrected
 *           raw_eps: p -= lr sqrt(1-b2^n)/(1-b1^n) m / (sqrt(v) + eps)
 * n counts the updates of each parameter separately. Frozen parameters and those without a gradient
 * since the last step are not changed. Free the optimiser before P. */
TP_API tp_optim *tp_sgd_new(tp_params *P, const tp_sgd_opts *o);
TP_API tp_optim *tp_qhm_new(tp_params *P, const tp_qhm_opts *o); /* NULL: momentum 0.9, nu 1 */
TP_API tp_optim *tp_adam_new(tp_params *P, const tp_adam_opts *o);
TP_API tp_optim *tp_adamw_new(tp_params *P, const tp_adamw_opts *o);
TP_API void tp_optim_free(tp_optim *O);

/* Updates the parameters with the gradients in P and clears them. Returns true on success. Refuses,
 * changing nothing, if no backward has completed since the last step, if the last backward failed,
 * if lr is negative (for ascent use tp_grad_scale), or if tp_clip_grad_norm has found NaN or
 * infinity on the CPU. Without clipping, only a tape with check_finite detects those. Unlike other
 * errors, a refusal is cleared by the next successful step (see tp_grad_clear). */
TP_API bool tp_step(tp_optim *O, double lr);

/* Multiplies the gradients by k inside the next tp_step, for the mean over accumulated micro-batches. A
 * clip before that step sees the gradients without k: clip to max / k. */
TP_API void tp_grad_scale(tp_optim *O, double k);

TP_API int64_t tp_updates(const tp_optim *O); /* completed steps */
TP_API bool tp_optim_ok(const tp_optim *O);
TP_API const char *tp_optim_why(const tp_optim *O);
TP_API tp_code tp_optim_code(const tp_optim *O); /* TP_E_NONFINITE: NaN in the gradients */

/* Writes moments and update counts under "optim." in a training checkpoint, and reads them. The memory
 * is read when the writer is committed. Reading requires the same kind of optimiser over the same
 * parameters and otherwise changes nothing; O keeps its options and factors. False: see tp_optim_why. */
TP_API bool tp_optim_write(tp_optim *O, tp_writer *W);
TP_API bool tp_optim_read(tp_optim *O, tp_file *F);

/* Exponential moving average of the parameters: e = decay e + (1 - decay) p at each update, starting
 * with the values at tp_ema_new. Buffers are not averaged. tp_ema_swap exchanges averages and values for
 * evaluation; swap back before training continues, since update, write, read and tp_step fail until
 * then. If it is freed while swapped, before P, the parameters keep the averages. */
typedef struct tp_ema tp_ema;
TP_API tp_ema *tp_ema_new(tp_params *P, double decay); /* never NULL */
TP_API void tp_ema_update(tp_ema *E);
TP_API void tp_ema_swap(tp_ema *E);
TP_API void tp_ema_free(tp_ema *E);
TP_API bool tp_ema_ok(const tp_ema *E);
TP_API const char *tp_ema_why(const tp_ema *E);
TP_API bool tp_ema_write(tp_ema *E, tp_writer *W); /* "ema.*" */
TP_API bool tp_ema_read(tp_ema *E, tp_file *F);

/* Schedules: the learning rate of the update that follows u completed ones (u = 0 for the first). All
 * warm up linearly over `warmup` updates, lr * (u+1)/warmup; warmup 0: no warm-up. */
TP_API double tp_lr_constant(int64_t u, int64_t warmup, double lr);
/* linear from lr after the warm-up to end at u = total - 1 and beyond */
TP_API double tp_lr_linear(int64_t u, int64_t warmup, int64_t total, double lr, double end);
/* end + (lr-end)/2 (1 + cos(pi (u-warmup)/(total-warmup))) */
TP_API double tp_lr_cosine(int64_t u, int64_t warmup, int64_t total, double lr, double end);
/* The cosine of Swin and timm: start + u' (lr-start)/warmup, then end + (lr-end)/2 (1 + cos(pi (u'-warmup)/
 * (total-warmup))), with u' = u - 1: the first two updates use the rate start. */
TP_API double tp_lr_cosine_from(int64_t u, int64_t warmup, int64_t total, double start, double lr,
                                double end);
/* start + t (lr-start)/warmup, then a cosine that started at t = 0: end + (lr-end)/2
 * (1 + cos(pi t/total)). CvT counts t in epochs, ViL in updates. */
TP_API double tp_lr_cosine_whole(int64_t t, int64_t warmup, int64_t total, double start, double lr,
                                 double end);
/* lr * factor^floor((u-warmup)/every) */
TP_API double tp_lr_step(int64_t u, int64_t warmup, int64_t every, double factor, double lr);
/* PyTorch's OneCycleLR with cosine annealing in two phases: rises from lr/div over pct of total, then
 * falls to lr/div/final_div. Usual values: pct 0.3, div 25, final_div 1e4. */
TP_API double tp_lr_onecycle(int64_t u, int64_t total, double lr, double pct, double div,
                             double final_div);

#ifdef __cplusplus
}
#endif
#endif
