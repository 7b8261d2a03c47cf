/* observe.h - looking into a model while it runs, for figures and searches: a function of yours is
 * called after every op. Not part of tapegrad.h; unstable until 1.0. */
#ifndef TAPEGRAD_OBSERVE_H
#define TAPEGRAD_OBSERVE_H

#include <tapegrad/op.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An op that has run: tensors that went in (TP_NONE: absent) and came out. attr is what the op's
 * own function was given, as a tp_window_attn_cfg. */
typedef struct tp_seen {
    const tp_op *op;
    const void *attr;
    const char *path; /* of the innermost scope; "" outside any */
    int nx, ny;       /* ny: visible outputs                    */
    const tp_tensor *x, *y;
} tp_seen;
typedef void (*tp_observer)(void *env, tp_tape *T, const tp_seen *s);

/* Calls f after every op that T applies; NULL: no longer. f may read the tensors (tp_read) and
 * apply ops, which it does not see itself. What tp_checkpoint runs again and what a recorded step
 * repeats is not shown. */
TP_API void tp_observe(tp_tape *T, tp_observer f, void *env);

/* The multiply-adds of an op that has run, forward, by its own count (tp_op.macs); 0 for ops
 * without products. For the observer, while it is shown s. */
TP_API double tp_seen_macs(const tp_seen *s);

#ifdef __cplusplus
}
#endif
#endif
