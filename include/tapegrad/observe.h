/* observe.h - observing a model while it runs: a callback after every op, for figures and analyses.
 * Not part of tapegrad.h; unstable until 1.0. */
#ifndef TAPEGRAD_OBSERVE_H
#define TAPEGRAD_OBSERVE_H

#include <tapegrad/op.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An op that has run, with its inputs (TP_NONE: absent) and outputs. attr points to the op's
 * attributes, such as a tp_window_attn_cfg. */
typedef struct tp_seen {
    const tp_op *op;
    const void *attr;
    const char *path; /* of the innermost scope; "" outside all */
    int nx, ny;       /* ny: visible outputs */
    const tp_tensor *x, *y;
} tp_seen;
typedef void (*tp_observer)(void *env, tp_tape *T, const tp_seen *s);

/* Calls f after every op that T applies; f NULL ends it. f may read the tensors (tp_read) and apply
 * ops. It is called neither for those nor for ops that tp_checkpoint recomputes or a recorded step
 * repeats. */
TP_API void tp_observe(tp_tape *T, tp_observer f, void *env);

/* The multiply-adds of an op's forward call (tp_op.macs); 0 for ops without products. Valid only
 * inside the observer that received s. */
TP_API double tp_seen_macs(const tp_seen *s);

#ifdef __cplusplus
}
#endif
#endif
