/* optim.h - optimisers, learning-rate schedules and weight averaging over a tp_params. */
#ifndef TAPEGRAD_OPTIM_H
#define TAPEGRAD_OPTIM_H

#include <tapegrad/base.h>
#include <tapegrad/file.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Factors on learning rate and weight decay, which a recipe chooses for each parameter by name. The
 * rule is called once for each parameter when the optimiser is created. */
typedef struct tp_factors {
    double lr, decay;
} tp_factors;
typedef tp_factors (*tp_factor_rule)(const char *name, tp_shape s, void *env);

/* Which parameters the optimiser "muon" updates by orthogonalised momentum; the rest gets AdamW. It
 * is called once for each parameter when the optimiser is created, and may take only matrices. */
typedef bool (*tp_take_rule)(const char *name, tp_shape s, void *env);

/* The rule that muon follows if none is given: a matrix of at least two rows and columns, but for
 * embeddings and output layers, which are known by the words of their names, separated by dots and
 * underscores: one is "head", "heads", "classifier", "wte", "wpe" or "pos", or begins with "emb",
 * "posit", "posemb" or "posenc". So "lm_head.weight" is not taken, "multihead_attn.weight" is. */
TP_API bool tp_muon_takes(const char *name, tp_shape s);

/* Options by name; unlisted ones have their usual values. */
typedef struct tp_optim_value {
    const char *name;
    double value;
} tp_optim_value;
typedef struct tp_optim_opts {
    const tp_optim_value *values; /* up to a NULL name; NULL: none */
    tp_factor_rule factors;       /* NULL: 1 and 1 */
    void *env;                    /* of both rules */
    tp_take_rule takes;           /* muon: which matrices it takes; NULL: tp_muon_takes */
} tp_optim_opts;

/* Creates the optimiser of that name over P's parameters:
 *
 *     const tp_optim_value values[] = { { "momentum", 0.9 }, { "nesterov", 1 }, { NULL, 0 } };
 *     tp_optim *O = tp_optim_new(P, "sgd", &(tp_optim_opts){ .values = values });
 *
 * Never NULL; failed if P is. o may be NULL. A flag is 0 or 1. Moments live on P's device, in P's
 * dtype. All have weight_decay (wd), usually 0; the values in brackets are the usual ones.
 *
 *   sgd     momentum [0], nesterov [0]
 *           g += wd p;  u = momentum u + g;  p -= lr u  (nesterov: p -= lr (g + momentum u))
 *   qhm     momentum [0.9], nu [1]: quasi-hyperbolic momentum (Ma, Yarats 2019); nu 1 is SGD with
 *           damped momentum (fine-tuning of ViL)
 *           g += wd p;  u = momentum u + (1-momentum) g;  p -= lr ((1-nu) g + nu u)
 *   adamw   beta1 [0.9], beta2 [0.999], eps [1e-8]; flags raw_eps [0], as in fairseq, and
 *           decay_after [0]: decay the updated parameter
 *           p -= lr wd p;  m, v moments;  p -= lr m^ / (sqrt(v^) + eps),  ^ bias-corrected
 *           raw_eps: p -= lr sqrt(1-b2^n)/(1-b1^n) m / (sqrt(v) + eps)
 *   adam    the options of adamw;  g += wd p, then the update of adamw without decay
 *   adamw-vil   adamw with raw_eps and decay_after, as ViL is trained
 *   rmsprop alpha [0.99], eps [1e-8], momentum [0], centered [0]  (torch.optim.RMSprop)
 *           g += wd p;  v = alpha v + (1-alpha) g^2;  d = g / (sqrt(v) + eps);  p -= lr d
 *           centered: sqrt(v - a^2), a the average of g (0 where rounding makes the difference
 *           negative);  momentum: u = momentum u + d, p -= lr u
 *   adagrad eps [1e-10], lr_decay [0], initial_accumulator [0], the start of v
 *           (torch.optim.Adagrad)
 *           g += wd p;  v += g^2;  p -= lr / (1 + (n-1) lr_decay) g / (sqrt(v) + eps)
 *   lion    beta1 [0.9], beta2 [0.99]  (Chen et al. 2023). Usual rates are 3 to 10 times lower
 *           than AdamW's, and usual decays that much higher
 *           p -= lr wd p;  p -= lr sign(b1 m + (1-b1) g);  m = b2 m + (1-b2) g
 *   lamb    beta1 [0.9], beta2 [0.999], eps [1e-6]  (You et al. 2020)
 *           r = m^ / (sqrt(v^) + eps) + wd p;  p -= lr |p| / |r| r, m^ and v^ as Adam's, norms per
 *           parameter; the factor is 1 if either norm is 0
 *   adafactor   beta2_decay [-0.8], at most 0; eps1 [2^-23, in f64 2^-52], the least root mean
 *           square to divide by; eps2 [1e-3], the least size of a parameter, which scales its
 *           steps; d [1], the largest root mean square of an update. Usual rates are 1e-2
 *           (Shazeer, Stern 2018; torch.optim.Adafactor)
 *           p -= lr wd p;  p -= min(lr, 1/sqrt(n)) max(eps2, rms(p)) u / max(1, rms(u) / d), where
 *           u = g / max(sqrt(v), eps1) and rms(p) is taken before the decay. v averages g^2, the
 *           new squares weighted by n^beta2_decay; that of a parameter [..,R,C] is the product of
 *           averages of its rows and columns, divided by the mean of the former, at least eps1.
 *           Only these are stored: R + C numbers for each R C, less than a parameter's if the last
 *           two sizes exceed 2, very little if both are large
 *   muon    momentum [0.95], nesterov [1], newton_schulz [5] iterations, match_rms [1]; beta1
 *           [0.9], beta2 [0.95], eps [1e-8] of AdamW, which updates what is not taken
 *           (tp_muon_takes, tp_optim_opts.takes)  (Jordan et al. 2024; torch.optim.Muon)
 *           u = momentum u + (1-momentum) g;  d = momentum u + (1-momentum) g, or u if not
 *           nesterov;  p -= lr wd p;  p -= lr s orthogonal(d), for p [R,C]. newton_schulz times
 *           X = 3.4445 X - 4.7750 (X X') X + 2.0315 (X X')^2 X, from X = d / |d|, moves all
 *           singular values near 1. s = 0.2 sqrt(max(R,C)) gives updates the size of AdamW's, so
 *           that both share one rate (Liu et al. 2025, "Muon is scalable"); without match_rms
 *           s = sqrt(max(1, R/C)), for rates near 0.02, which need tp_factors for the rest.
 *           Products are in the values' dtype. Matrices have one moment, others two
 *   schedulefree   beta1 [0.9], beta2 [0.999], eps [1e-8], r [0], lr_power [2]: AdamW without a
 *           schedule (Defazio et al. 2024; AdamWScheduleFree of the package schedulefree). Usual
 *           rates are 1 to 10 times AdamW's, constant after a warm-up
 *           q = g / (sqrt(v^) + eps) + wd y;  z -= lr q;  x = (1-c) x + c z;
 *           y = (1-beta1) z + beta1 x;  c = w_n / (w_1 + .. + w_n)
 *           w_n = n^r (largest lr)^lr_power
 *           Training has the values y; to validate and to save a model that will be used,
 *           tp_optim_swap exchanges them for x. Stored are v and z - y
 *
 * n counts the updates of each parameter separately. Frozen parameters and those without a gradient
 * since the last step are not changed. A parameter that is frozen when the optimiser is created has
 * no moments, in memory or in files. It gets them, with their first values, from the step that
 * first updates it, which fails without memory for them, from tp_next_rate if it is no longer
 * frozen, or from tp_optim_read if the file has some. Free the optimiser before P: one whose P was
 * freed refuses every step. Writing optimisers: optim_kind.h, examples/custom_optim. */
TP_API tp_optim *tp_optim_new(tp_params *P, const char *name, const tp_optim_opts *o);

/* The usual ones with compiler-checked options. o may be NULL. */
typedef struct tp_sgd_opts {
    double momentum, weight_decay;
    bool nesterov;
    tp_factor_rule factors;
    void *env;
} tp_sgd_opts;
typedef struct tp_adam_opts {
    double beta1, beta2, eps; /* 0: the usual value */
    double weight_decay;
    bool raw_eps, decay_after;
    tp_factor_rule factors;
    void *env;
} tp_adam_opts;
typedef tp_adam_opts tp_adamw_opts;
TP_API tp_optim *tp_sgd_new(tp_params *P, const tp_sgd_opts *o);
TP_API tp_optim *tp_adam_new(tp_params *P, const tp_adam_opts *o);
TP_API tp_optim *tp_adamw_new(tp_params *P, const tp_adamw_opts *o);

TP_API void tp_optim_free(tp_optim *O);

/* Updates the parameters with the gradients in P and clears them. Returns true on success. Refuses,
 * changing nothing, if no backward has completed since the last step, if the last backward failed,
 * if lr is negative (for ascent use tp_grad_scale), or if tp_clip_grad_norm has found NaN or
 * infinity on the CPU. Without clipping, only a tape with check_finite detects those. Unlike other
 * errors, a refusal is cleared by the next successful step (see tp_grad_clear). */
TP_API bool tp_step(tp_optim *O, double lr);

/* Gives the rate of the next tp_step before it. Needed, with the same rate, where tp_step stands
 * between tp_capture_begin and tp_capture_end: a launch of the recorded step, in which tp_step is
 * not called, takes the rate from here (capture.h). */
TP_API void tp_next_rate(tp_optim *O, double lr);
/* Can tp_step be recorded? Not if processes exchange the gradients (peers.h), nor for a program's
 * own optimiser without tp_optim_kind.recordable. */
TP_API bool tp_optim_records(const tp_optim *O);

/* Changes an option for the steps that follow: tp_optim_set(O, "weight_decay", 0.1). The names are
 * those of tp_optim_new; 0 is a value like any other. Moments that become necessary start at zero;
 * those no longer needed are discarded. Refuses, changing nothing, an option that O does not have,
 * an impossible value, and Adagrad's initial_accumulator, which is read only by tp_optim_new; the
 * next successful step clears that error. */
TP_API bool tp_optim_set(tp_optim *O, const char *name, double value);
TP_API double tp_optim_get(const tp_optim *O, const char *name); /* NaN if O has no such option */

/* Exchanges the values of training for those to evaluate with, and back: only for an optimiser that
 * keeps such averages (tp_optim_has_averages; schedulefree). Between the two calls tp_step and
 * tp_optim_write are refused, as everything is that changes parameters, and tp_params_write writes
 * what is to be evaluated. The second call restores all bits. Memory for a copy of the parameters
 * is needed in between. Processes that divide the moments must all call it. False, with nothing
 * changed: another kind of optimiser, no memory, or averages of a tp_ema are swapped in; the next
 * step clears that error. An optimiser freed in between leaves the parameters as they are. */
TP_API bool tp_optim_swap(tp_optim *O);
TP_API bool tp_optim_has_averages(const tp_optim *O);

/* Multiplies the gradients by k inside the next tp_step, for the mean over accumulated
 * micro-batches. A clip before that step sees the gradients without k: clip to max / k. If tp_step
 * stands in a step of tp_capture, call this before tp_capture_begin. */
TP_API void tp_grad_scale(tp_optim *O, double k);

TP_API int64_t tp_optim_updates(const tp_optim *O); /* completed steps */
TP_API size_t tp_optim_bytes(const tp_optim *O);    /* of this process's moments, on the device */
TP_API bool tp_optim_ok(const tp_optim *O);
TP_API const char *tp_optim_why(const tp_optim *O);
TP_API tp_code tp_optim_code(const tp_optim *O); /* TP_E_NONFINITE: NaN in the gradients */

/* Writes moments and update counts under PREFIX"optim." in a training checkpoint, and reads them.
 * The prefix is that of the parameters, "" or NULL for none, "generator." for one of several
 * optimisers in a file. The memory is read when the writer is committed; only tp_peers_commit reads
 * that of moments divided among processes. Reading requires the same kind of optimiser over the
 * same parameters, with moments for all that have some in O; any other file is refused: O is
 * unchanged and usable, and tp_optim_why says why. If the file fails while the moments are copied,
 * O fails for good: create another one. O keeps its options and factors: repeat changes made by
 * tp_optim_set before reading. */
TP_API bool tp_optim_write(tp_optim *O, tp_writer *W, const char *prefix);
TP_API TP_CHECKED bool tp_optim_read(tp_optim *O, tp_file *F, const char *prefix);

/* Exponential moving average of the parameters: e = decay e + (1 - decay) p at each update,
 * starting with the values at tp_ema_new. Buffers are not averaged. tp_ema_swap exchanges averages
 * and values for evaluation; swap back before training continues, since update, write, read and
 * tp_step are refused until then. A refused update or swap is cleared by the next one; a refused
 * file leaves E ok, and tp_ema_why says why. If it is freed while swapped, the parameters keep the
 * averages. */
typedef struct tp_ema tp_ema;
TP_API tp_ema *tp_ema_new(tp_params *P, double decay); /* never NULL */
TP_API bool tp_ema_update(tp_ema *E);
TP_API bool tp_ema_swap(tp_ema *E);
TP_API void tp_ema_free(tp_ema *E);
TP_API bool tp_ema_ok(const tp_ema *E);
TP_API const char *tp_ema_why(const tp_ema *E);
TP_API bool tp_ema_write(tp_ema *E, tp_writer *W, const char *prefix); /* PREFIX"ema.*" */
TP_API TP_CHECKED bool tp_ema_read(tp_ema *E, tp_file *F, const char *prefix);

/* Moves the values of a set towards those of another, which the same function has declared on the
 * same device: to = (1 - part) to + part from, part in [0, 1]; 1 copies exactly. Buffers, such as
 * running statistics, are copied. For target networks and teachers that a forward pass uses beside
 * the set that is trained; tp_ema averages for evaluation. A forward pass of `to` before the call
 * has no backward after it. Does not synchronise. False: see tp_params_why of `to`, which is
 * unchanged. */
TP_API TP_CHECKED bool tp_params_blend(tp_params *to, tp_params *from, double part);

/* Schedules: the learning rate of the update that follows u completed ones (u = 0 for the first).
 * All warm up linearly over `warmup` updates, lr * (u+1)/warmup; warmup 0: no warm-up. */
TP_API double tp_lr_constant(int64_t u, int64_t warmup, double lr);
/* linear from lr after the warm-up to end at u = total - 1 and beyond */
TP_API double tp_lr_linear(int64_t u, int64_t warmup, int64_t total, double lr, double end);
/* end + (lr-end)/2 (1 + cos(pi (u-warmup)/(total-warmup))) */
TP_API double tp_lr_cosine(int64_t u, int64_t warmup, int64_t total, double lr, double end);
/* The cosine of Swin and timm: start + u' (lr-start)/warmup, then end + (lr-end)/2 (1 + cos(pi
 * (u'-warmup)/ (total-warmup))), with u' = u - 1: the first two updates use the rate start. */
TP_API double tp_lr_cosine_from(int64_t u, int64_t warmup, int64_t total, double start, double lr,
                                double end);
/* start + t (lr-start)/warmup, then a cosine that started at t = 0: end + (lr-end)/2 (1 + cos(pi
 * t/total)). CvT counts t in epochs, ViL in updates. */
TP_API double tp_lr_cosine_whole(int64_t t, int64_t warmup, int64_t total, double start, double lr,
                                 double end);
/* lr * factor^floor((u-warmup)/every) */
TP_API double tp_lr_step(int64_t u, int64_t warmup, int64_t every, double factor, double lr);
/* detectron2's steps: lr times factor for each of n milestones that u has reached, and during the
 * warm-up times start + (1 - start) u/warmup. */
TP_API double tp_lr_milestones(int64_t u, int64_t warmup, double start, const int64_t *milestone,
                               int n, double factor, double lr);
/* PyTorch's OneCycleLR with cosine annealing in two phases: rises from lr/div over pct of total,
 * then falls to lr/div/final_div. Usual values: pct 0.3, div 25, final_div 1e4. */
TP_API double tp_lr_onecycle(int64_t u, int64_t total, double lr, double pct, double div,
                             double final_div);
/* The same path in straight lines, for a rate or, by tp_optim_set, a momentum or beta1, which
 * PyTorch moves the other way: from start at u = 0 to top at u = pct total - 1, which need not be
 * whole, and to end at u = total - 1. */
TP_API double tp_cycle_linear(int64_t u, int64_t total, double pct, double start, double top,
                              double end);

/* A learning rate that falls when a score stops improving:
 * torch.optim.lr_scheduler.ReduceLROnPlateau. tp_plateau_usual gives PyTorch's options, which may
 * be changed: S.patience = 3. A score that is not finite is no improvement. */
typedef struct tp_plateau {
    double lr;            /* the present rate */
    double factor;        /* of a reduction; 0.1 */
    double threshold;     /* an improvement must exceed it: relative to the best; 1e-4 */
    double min_lr, eps;   /* the lowest rate; the smallest change; 0, 1e-8 */
    int64_t patience;     /* tolerated scores in a row without improvement; 10 */
    int64_t cooldown;     /* scores after a reduction that do not count; 0 */
    bool higher;          /* a higher score is better; false */
    bool absolute;        /* the threshold is a difference; false */
    double best;          /* state: best score; NaN: none yet */
    int64_t bad, resting; /* state: scores without improvement; scores that do not count yet */
} tp_plateau;
TP_API tp_plateau tp_plateau_usual(double lr);
TP_API double tp_plateau_step(tp_plateau *S, double score); /* after a validation: the new rate */
/* Rate and state in a training checkpoint, under PREFIX"plateau."; S keeps its options. False, with
 * S unchanged, if F has no such state. */
TP_API void tp_plateau_write(const tp_plateau *S, tp_writer *W, const char *prefix);
TP_API bool tp_plateau_read(tp_plateau *S, tp_file *F, const char *prefix);

#ifdef __cplusplus
}
#endif
#endif
