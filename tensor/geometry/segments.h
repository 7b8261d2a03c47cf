/* segments.h - the segments of a parameter set's flat blocks and their coefficients, for the
 * kernels that update them.
 *
 * A segment is one parameter, or a stretch of it, in the blocks of values, moments and averages,
 * and points to its gradient g. Values and averages share one layout; moments, of which a process
 * may have a part only, are found by tp_segment.own. The work is split into blocks of TP_BLOCK
 * elements that never cross a segment boundary. The split depends only on the shapes, and any
 * thread may take any block. */
#ifndef TP_SEGMENTS_H
#define TP_SEGMENTS_H

#include <tapegrad/optim_kind.h>

#include "tensor/geometry/block.h"
#include "tensor/host_device.h"

/* Optimiser kernels: y = { p, states }, attr a tp_optim_attr. States of the parameter's shape have
 * the same layout: own[0] is the place in all of them. In the formulas, g' = scale g + l2 p,
 * and the constants k are named by the enums. */

/* sgd_step: y = { p, u }; u has no data if momentum is 0, and then p -= rate g'.
 *     u = momentum u + gain g';  p -= rate (of_g g' + of_u u) */
enum { TP_SGD_MOMENTUM, TP_SGD_GAIN, TP_SGD_OF_G, TP_SGD_OF_U };

/* adam_step: y = { p, m, v }.
 *     m = beta1 m + (1-beta1) g';  v = beta2 v + (1-beta2) g'^2
 *     p -= before p;  p -= rate m / (root sqrt(v) + eps);  p -= after p */
enum { TP_ADAM_BETA1, TP_ADAM_BETA2, TP_ADAM_EPS };

/* rmsprop_step: y = { p, v, u, a }; u has no data without momentum, a only if centred.
 *     v = alpha v + (1-alpha) g'^2;  a = alpha a + (1-alpha) g'
 *     d = g' / (sqrt(v - a^2) + eps);  u = momentum u + d;  p -= rate u, or rate d */
enum { TP_RMSPROP_ALPHA, TP_RMSPROP_EPS, TP_RMSPROP_MOMENTUM };

/* adagrad_step: y = { p, v }.
 *     v += g'^2;  p -= rate g' / (sqrt(v) + eps) */
enum { TP_ADAGRAD_EPS };

/* lion_step: y = { p, m }.
 *     p -= before p;  p -= rate sign(beta1 m + (1-beta1) g');  m = beta2 m + (1-beta2) g' */
enum { TP_LION_BETA1, TP_LION_BETA2 };

/* lamb_step: y = { p, m, v }; work: two doubles per block and one per segment.
 *     m, v as above, l2 = 0;  r = before m / (root sqrt(v) + eps) + after p;  p -= rate f r
 *     f = |p| / |r|, norms of the whole parameter; 1 if either is 0 */
enum { TP_LAMB_BETA1, TP_LAMB_BETA2, TP_LAMB_EPS };

/* adafactor_step: y = { p, row, col, v }; row [..,R] and col [..,C] average the rows and columns of
 * g'^2 [..,R,C], v is for parameters of fewer axes; work: factored.h.
 *     row += root (mean_C g'^2 - row);  col += root (mean_R g'^2 - col);  l2 = 0
 *     u = g' / max(sqrt(row col / max(mean_R row, eps1)), eps1), or g' / max(sqrt(v), eps1)
 *     p -= before p;  p -= rate max(eps2, rms(p)) / max(1, rms(u) / d) u, rms(p) with the old p */
enum { TP_ADAFACTOR_EPS1, TP_ADAFACTOR_EPS2, TP_ADAFACTOR_D };

/* muon_step: y = { p, u, v }; v [R,C] only of parameters that are not taken; work: muon.h.
 *     taken: u = momentum u + (1-momentum) g';  d = nesterov ? momentum u + (1-momentum) g' : u
 *            p -= before p;  p -= rate X, X by `iterations` of Newton and Schulz from d / |d|
 *     else u and v as Adam's moments:  p -= before p;  p -= rate u / (root sqrt(v) + eps) */
enum { TP_MUON_MOMENTUM = 1, TP_MUON_NESTEROV, TP_MUON_ITERATIONS, TP_MUON_BETA1 = 5 };
enum { TP_MUON_BETA2 = 6, TP_MUON_EPS };

/* schedulefree_step: y = { p, e, v }, e = z - p.
 *     v = beta2 v + (1-beta2) g'^2, l2 = 0;  q = g' / (root sqrt(v) + eps) + after p
 *     p += c e - rate (1 - beta1 (1-c)) q;  e = (1-c) (e - rate beta1 q)
 * schedulefree_average: p -= (1-beta1)/beta1 e */
enum { TP_FREE_BETA1, TP_FREE_BETA2, TP_FREE_EPS, TP_FREE_C };

/* Attributes of the rest.
 *   grad_squares: work: one double per block, its sum of squares.
 *   grad_root: y = { one element }, the root of the sum of s.blocks doubles of the work.
 *   grad_clip: x = { norm }: g *= min(1, number / (norm + 1e-6)).
 *   grad_clamp: g = min(max(g, -number), number), NaN stays.
 *   ema_step: x = { p }, y = { e }: e += number (p - e). */
typedef struct tp_segments_attr {
    tp_segments s;
    double number;
} tp_segments_attr;

/* The last segment that begins at or before a block. */
TP_HD static inline const tp_segment *tp__segment(const tp_segments *s, int64_t block)
{
    int64_t lo = 0, hi = s->n - 1;
    while (lo < hi) {
        const int64_t mid = (lo + hi + 1) / 2;
        if (s->at[mid].block <= block)
            lo = mid;
        else
            hi = mid - 1;
    }
    return &s->at[lo];
}

#endif
