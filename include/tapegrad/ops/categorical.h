/* ops/categorical.h - choices among classes by logits, for policy gradients and decoding, made of
 * other ops. See ops.h. */
#ifndef TAPEGRAD_OPS_CATEGORICAL_H
#define TAPEGRAD_OPS_CATEGORICAL_H

#include <tapegrad/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The probability of class j is softmax(logits)_j over the last axis; a logit of -infinity excludes
 * its class. Results are f32 (f64 if the logits are), or I64. REINFORCE minimises
 *
 *     tp_neg(T, tp_mean(T, tp_mul(T, tp_categorical_log_prob(T, logits, action), advantage),
 *                       TP_ALL))
 *
 * with action from tp_categorical and advantage [...] without gradient. */

/* One class for each row of logits [...,V], drawn from the tape's stream as tp_rand draws: integers
 * [...]. The largest logit + Gumbel noise (Gumbel 1954). No gradient. */
TP_API tp_tensor tp_categorical(tp_tape *T, tp_tensor logits);
/* log softmax(logits)[..., index] for integers index [...]: the same as -tp_cross_entropy with
 * TP_EACH, so 0 where the index is negative. */
TP_API tp_tensor tp_categorical_log_prob(tp_tape *T, tp_tensor logits, tp_tensor index);
/* -sum_j p_j log p_j in nats, [...]; excluded classes count 0. A bonus in proportion to it keeps a
 * policy from deciding too early. */
TP_API tp_tensor tp_categorical_entropy(tp_tape *T, tp_tensor logits);

#ifndef TP_NO_SITE
#include <tapegrad/sites/ops/categorical.h>
#endif

#ifdef __cplusplus
}
#endif
#endif
