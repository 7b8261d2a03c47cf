/* ops/loss.h - losses. See ops.h. */
#ifndef TAPEGRAD_OPS_LOSS_H
#define TAPEGRAD_OPS_LOSS_H

#include <tapegrad/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- losses: f32 (f64 if the input is) ----
 *
 * A mean over nothing, no element or no counted row, is 0, unlike tp_mean's NaN. Rows that are not
 * counted may hold anything. The gradient of a NaN is NaN wherever the gradient depends on x. */
typedef enum tp_reduction {
    TP_MEAN,     /* mean over the counted rows */
    TP_MEAN_ALL, /* sum over the counted rows divided by the number of all rows */
    TP_SUM,
    TP_EACH /* no reduction: one loss per row or element */
} tp_reduction;

/* Softmax cross-entropy: logits [...,V]; target integer [...] (negative: not counted) or
 * probabilities [...,V]. Label smoothing e replaces the target t by t (1-e) + e/V. Softmax
 * probabilities are never stored. No gradient to target. */
TP_API tp_tensor tp_cross_entropy(tp_tape *T, tp_tensor logits, tp_tensor target,
                                  tp_reduction reduction);
TP_API tp_tensor tp_cross_entropy_smooth(tp_tape *T, tp_tensor logits, tp_tensor target,
                                         double smoothing, tp_reduction reduction);
/* The same with weights of classes [V], positive (0 leaves a class out), of the logits' dtype, or
 * f32 beside bf16, or TP_NONE: the loss of a row is -sum_j w_j q_j log_softmax(logits)_j with the
 * smoothed target q, as in PyTorch. TP_MEAN divides by the sum of the weights of the counted rows'
 * targets, w[target], and is 0 if that is 0 (PyTorch: NaN); for probabilities, by the number of
 * rows. No gradient to weights. For unbalanced classes, rows / (V count[j]) is usual. */
TP_API tp_tensor tp_cross_entropy_weighted(tp_tape *T, tp_tensor logits, tp_tensor target,
                                           tp_tensor weights, double smoothing,
                                           tp_reduction reduction);
/* Negative log-likelihood: -x[..., target], with x log-probabilities [...,V] (of tp_log_softmax)
 * and target integer [...] (negative: not counted). tp_cross_entropy takes logits and is faster. */
TP_API tp_tensor tp_nll(tp_tape *T, tp_tensor x, tp_tensor target, tp_reduction reduction);
/* The same with weights of classes, as in tp_cross_entropy_weighted: -w[target] x[..., target]. */
TP_API tp_tensor tp_nll_weighted(tp_tape *T, tp_tensor x, tp_tensor target, tp_tensor weights,
                                 tp_reduction reduction);

/* The losses below are elementwise. x and target have the same shape and a floating dtype; no
 * gradient to target. TP_MEAN and TP_MEAN_ALL are the mean over all elements. tp_bce_logits is the
 * binary cross-entropy of sigmoid(x). */
TP_API tp_tensor tp_bce_logits(tp_tape *T, tp_tensor x, tp_tensor target, tp_reduction reduction);
/* Binary cross-entropy of probabilities x: -t log x - (1-t) log(1-x), logarithms at least -100, as
 * in PyTorch; the gradient divides by at least 1e-12. NaN for x outside [0,1]. tp_bce_logits of the
 * logits is more accurate. */
TP_API tp_tensor tp_bce(tp_tape *T, tp_tensor x, tp_tensor target, tp_reduction reduction);
/* Sigmoid focal loss (Lin et al. 2017): alpha_t (1-p_t)^gamma bce; alpha < 0: without alpha_t. The
 * target may also be classes, integers [...] for x [...,K]: the loss of a row is that of its
 * one-hot vector, which is never made; K is the background, a vector of zeros, and negative means
 * not counted. Reductions are then over rows, as in tp_cross_entropy. */
TP_API tp_tensor tp_focal(tp_tape *T, tp_tensor x, tp_tensor target, double alpha, double gamma,
                          tp_reduction reduction);
/* With d = x - target and beta > 0: d^2/(2 beta) if |d| < beta, else |d| - beta/2. beta 0: |d|, the
 * L1 loss. The Huber loss with delta is delta times the smooth L1 loss with beta = delta. */
TP_API tp_tensor tp_smooth_l1(tp_tape *T, tp_tensor x, tp_tensor target, double beta,
                              tp_reduction reduction);
TP_API tp_tensor tp_mse(tp_tape *T, tp_tensor x, tp_tensor target, tp_reduction reduction);
/* Kullback-Leibler divergence t (log t - x) from log-probabilities x to probabilities t, 0 where t
 * is 0. log_target: target holds log t. TP_MEAN is the mean over elements; PyTorch's "batchmean",
 * the divergence itself, is tp_scale(T, tp_kl_div(..., TP_SUM), 1.0 / B). */
TP_API tp_tensor tp_kl_div(tp_tape *T, tp_tensor x, tp_tensor target, bool log_target,
                           tp_reduction reduction);

typedef struct tp_poisson_nll_cfg {
    bool rate;  /* x is the rate itself, not its logarithm */
    bool full;  /* add Stirling's approximation of log t!, t log t - t + log(2 pi t)/2, if t > 1 */
    double eps; /* rate: keeps the logarithm's argument from 0; 0: 1e-8 */
} tp_poisson_nll_cfg;
/* Negative log-likelihood of counts t under Poisson's distribution: e^x - t x, or, with cfg.rate, x
 * - t log(x + eps). */
TP_API tp_tensor tp_poisson_nll(tp_tape *T, tp_tensor x, tp_tensor target, tp_poisson_nll_cfg cfg,
                                tp_reduction reduction);

/* Targets of the margin losses are 1 and -1. tp_hinge: max(0, margin - t x), usually with margin 1.
 * tp_hinge_embedding: x if t = 1, max(0, margin - x) if t = -1 (their sum for other t, as in
 * PyTorch), with gradient 0 at x = margin. tp_soft_margin: log(1 + e^(-t x)). tp_margin_ranking:
 * max(0, margin - t (a - b)), with gradients to a and b. */
TP_API tp_tensor tp_hinge(tp_tape *T, tp_tensor x, tp_tensor target, double margin,
                          tp_reduction reduction);
TP_API tp_tensor tp_hinge_embedding(tp_tape *T, tp_tensor x, tp_tensor target, double margin,
                                    tp_reduction reduction);
TP_API tp_tensor tp_soft_margin(tp_tape *T, tp_tensor x, tp_tensor target, tp_reduction reduction);
TP_API tp_tensor tp_margin_ranking(tp_tape *T, tp_tensor a, tp_tensor b, tp_tensor target,
                                   double margin, tp_reduction reduction);

/* Weights of examples for every loss: give it TP_EACH, and its result with weights [..], which has
 * the shape of `losses` or its leading axes: one weight for each row, for each sequence ..
 *
 *     tp_weigh(T, tp_cross_entropy(T, logits, label, TP_EACH), weights, label, TP_MEAN)
 *     tp_weigh(T, tp_mse(T, x, target, TP_EACH), weights, TP_NONE, TP_MEAN)
 *
 * TP_MEAN divides the sum of weights times losses by the sum of the weights (each as often as it is
 * used), and is 0 if that is 0; TP_MEAN_ALL divides by the number of losses. target: TP_NONE, or
 * the integers of the same shape as weights that were the loss's target: those that are negative
 * have weight 0, since they were not counted. A loss of weight 0 is left out even if it is not
 * finite. Weights of classes in `losses` (tp_cross_entropy_weighted) multiply them and do not
 * change the divisor. No gradient to weights, which are converted to the losses' dtype. */
TP_API tp_tensor tp_weigh(tp_tape *T, tp_tensor losses, tp_tensor weights, tp_tensor target,
                          tp_reduction reduction);

/* ---- losses and similarities of rows: vectors [...,D], one number each ---- */

/* a.b / (max(|a|, eps) max(|b|, eps)) over the last axis: [...,D], [...,D] -> [...]; usual eps:
 * 1e-8. Gradients to both. */
TP_API tp_tensor tp_cosine_similarity(tp_tape *T, tp_tensor a, tp_tensor b, double eps);
/* With c = tp_cosine_similarity(a, b, 1e-6) and a target [...] of 1 and -1: 1 - c if t = 1, max(0,
 * c - margin) if t = -1. margin in [-1,1]. Gradients to a and b. */
TP_API tp_tensor tp_cosine_embedding(tp_tape *T, tp_tensor a, tp_tensor b, tp_tensor target,
                                     double margin, tp_reduction reduction);

/* Triplet loss (Schroff et al. 2015; Balntas et al. 2016): max(0, margin + d(x, positive) - d(x,
 * negative)), where d(a, b) = |a - b + 1e-6|_p over the last axis; inputs [...,D] of one shape,
 * gradients to all. swap: d(positive, negative) takes the place of d(x, negative) where it is
 * smaller. */
typedef struct tp_triplet_cfg {
    double margin, p; /* p: in [1,16]; 0: 2 */
    bool swap;
} tp_triplet_cfg;
TP_API tp_tensor tp_triplet_margin(tp_tape *T, tp_tensor x, tp_tensor positive, tp_tensor negative,
                                   tp_triplet_cfg cfg, tp_reduction reduction);

/* Soft Dice loss over the last `axes` axes (Milletari, Navab, Ahmadi 2016, squares in the
 * denominator): 1 - (2 sum x t + smooth) / (sum x^2 + sum t^2 + smooth), one for each combination
 * of the leading axes; x probabilities, target of the same shape, no gradient to it. 0 where the
 * denominator is 0. */
TP_API tp_tensor tp_dice(tp_tape *T, tp_tensor x, tp_tensor target, int axes, double smooth,
                         tp_reduction reduction);

/* Generalised intersection over union (Rezatofighi et al. 2019) of boxes [...,4] with the corners
 * x1, y1, x2, y2: 1 - I / (U + eps) + (C - U) / (C + eps), one for each pair of boxes, where I and
 * U are the areas of their intersection and union and C is that of the smallest box around both;
 * usual eps: 1e-7. Where two corners are equal, x gets half of the gradient. No gradient to
 * target. */
TP_API tp_tensor tp_giou(tp_tape *T, tp_tensor x, tp_tensor target, double eps,
                         tp_reduction reduction);

/* Connectionist temporal classification (Graves et al. 2006): -log of the probability of all
 * alignments of a target with the rows of x. x: log-probabilities [B,N,V] (of tp_log_softmax);
 * target: integer [B,S], row b padded after its target_lengths[b] labels; x_lengths: integer [B],
 * rows of x that count (the others may hold anything), or TP_NONE: all N; target_lengths: integer
 * [B]. Labels are in [0,V) without the blank. Several blanks or none separate labels; equal
 * neighbours need one. TP_MEAN is PyTorch's mean: of the losses divided by max(1, target length);
 * TP_MEAN_ALL: sum / B. A target without any alignment (too few rows) has the loss infinity and a
 * gradient of 0; zero_infinity makes the loss 0 too, as for every other infinite loss. The gradient
 * is that of the log-probabilities themselves, minus the expected counts; PyTorch's is already that
 * of logits: equal after tp_log_softmax. */
typedef struct tp_ctc_cfg {
    int64_t blank;
    bool zero_infinity;
} tp_ctc_cfg;
TP_API tp_tensor tp_ctc(tp_tape *T, tp_tensor x, tp_tensor target, tp_tensor x_lengths,
                        tp_tensor target_lengths, tp_ctc_cfg cfg, tp_reduction reduction);

#ifndef TP_NO_SITE
#include <tapegrad/sites/ops/loss.h>
#endif

#ifdef __cplusplus
}
#endif
#endif
