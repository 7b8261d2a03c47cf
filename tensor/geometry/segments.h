/* segments.h - the segments of a parameter set's flat blocks and their coefficients, for the
 * kernels that update them.
 *
 * The blocks of values, gradients, moments and averages have one layout; a segment is the stretch
 * of one parameter in each of them. The work is split into blocks of TP_BLOCK elements that never
 * cross a segment boundary. The split depends on the shapes only, and any thread may take any
 * block. */
#ifndef TP_SEGMENTS_H
#define TP_SEGMENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "tensor/host_device.h"

/* Elements of a fixed reduction block: sums over blocks of this size are added in order. */
#define TP_BLOCK 4096

typedef struct tp_segment {
    int64_t at, numel; /* first element in the blocks; elements, at least one */
    int64_t block;     /* number of its first block of TP_BLOCK elements      */
    double l2;         /* g += l2 p, applied first                            */
    double rate;       /* factor of the step, see the formulas below          */
    double root;
    double before, after; /* decay of p before and after the update */
} tp_segment;

typedef struct tp_segments {
    tp_segment *at;
    int64_t n, blocks;
} tp_segments;

/* sgd_step: x = { g }, y = { p, u }; u has no data if momentum is 0, and then p -= rate g'.
 *     g' = scale g + l2 p;  u = momentum u + gain g';  p -= rate (of_g g' + of_u u) */
typedef struct tp_sgd_attr {
    tp_segments s;
    double scale, momentum, gain, of_g, of_u;
} tp_sgd_attr;

/* adam_step: x = { g }, y = { p, m, v }.
 *     g' = scale g + l2 p;  m = beta1 m + (1-beta1) g';  v = beta2 v + (1-beta2) g'^2
 *     p -= before p;  p -= rate m / (root sqrt(v) + eps);  p -= after p */
typedef struct tp_adam_attr {
    tp_segments s;
    double scale, beta1, beta2, eps;
} tp_adam_attr;

/* grad_norm: x = { g }, y = { one element }; work: one double per block.
 * grad_clip: x = { norm }, y = { g }: g *= min(1, number / (norm + 1e-6)).
 * ema_step:  x = { p }, y = { e }: e += number (p - e). */
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
