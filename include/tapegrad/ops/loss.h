/* ops/loss.h - losses. See ops.h. */
#ifndef TAPEGRAD_OPS_LOSS_H
#define TAPEGRAD_OPS_LOSS_H

#include <tapegrad/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- losses: f32 (f64 if the input is) ---- */
typedef enum tp_reduction {
    TP_MEAN,     /* mean over the counted rows                                 */
    TP_MEAN_ALL, /* sum over the counted rows divided by the number of all rows */
    TP_SUM,
    TP_EACH /* no reduction: one loss per row or element                  */
} tp_reduction;

/* Softmax cross-entropy: logits [...,V]; target integer [...] (negative: not counted) or probabilities
 * [...,V]. Label smoothing e replaces the target t by t (1-e) + e/V. Softmax probabilities are never
 * stored. No gradient to target. */
TP_API tp_tensor tp_cross_entropy(tp_tape *T, tp_tensor logits, tp_tensor target, tp_reduction r);
TP_API tp_tensor tp_cross_entropy_smooth(tp_tape *T, tp_tensor logits, tp_tensor target,
                                         double smoothing, tp_reduction r);
/* The losses below are elementwise. x and target have the same shape and a floating dtype; no gradient
 * to target. tp_bce_logits is the binary cross-entropy of sigmoid(x). */
TP_API tp_tensor tp_bce_logits(tp_tape *T, tp_tensor x, tp_tensor target, tp_reduction r);
/* Sigmoid focal loss (Lin et al. 2017): alpha_t (1-p_t)^gamma bce; alpha < 0: without alpha_t. */
TP_API tp_tensor tp_focal(tp_tape *T, tp_tensor x, tp_tensor target, double alpha, double gamma,
                          tp_reduction r);
/* With d = x - target and beta > 0: d^2/(2 beta) if |d| < beta, else |d| - beta/2. beta 0: |d|. */
TP_API tp_tensor tp_smooth_l1(tp_tape *T, tp_tensor x, tp_tensor target, double beta,
                              tp_reduction r);
TP_API tp_tensor tp_mse(tp_tape *T, tp_tensor x, tp_tensor target, tp_reduction r);

#ifndef TP_NO_SITE
/* clang-format off */
#define tp_cross_entropy(T, ...)        tp_cross_entropy(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_cross_entropy_smooth(T, ...) tp_cross_entropy_smooth(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_bce_logits(T, ...)           tp_bce_logits(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_focal(T, ...)                tp_focal(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_smooth_l1(T, ...)            tp_smooth_l1(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_mse(T, ...)                  tp_mse(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
/* clang-format on */
#endif

#ifdef __cplusplus
}
#endif
#endif
