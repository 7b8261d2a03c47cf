/* model_inner.h - functions shared inside the models library. */
#ifndef TP_MODEL_INNER_H
#define TP_MODEL_INNER_H

#include <string.h>
#include <tapegrad/model.h>

/* Returns the model's name in a file, or NULL: metadata "model", or "classifier" in early
 * checkpoints without it. */
const char *tp__model_of(tp_file *F);

/* Sets a member from text. On failure, explains in why; the member may have changed. */
bool tp__member_read(const tp_model_member *m, const char *text, void *cfg, char *why, size_t size);

/* Are both shapes equal? */
static inline bool tp__equal_shapes(const tp_shape *a, const tp_shape *b)
{
    return a->ndim == b->ndim && memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof a->dim[0]) == 0;
}

/* Renames a publisher's tensors to those of P, which holds the model, and copies the removed
 * prefix. Removes none if F already has any of the names: an optimiser's moments must not replace a
 * missing weight. */
void tp__published_enter(const tp_model *model, const tp_params *P, tp_file *F, char *prefix,
                         size_t size);

/* ---- checks of configurations ---- */

/* Is each member within its row's range? Otherwise why names the member and the range. */
bool tp__check_members(const tp_model_member *m, const void *cfg, char *why, size_t size);

static inline bool tp__in_range(int64_t x, int64_t least, int64_t most)
{
    return x >= least && x <= most;
}

/* Is p a valid drop rate? False for NaN. */
static inline bool tp__is_rate(double p)
{
    return p >= 0.0 && p < 1.0;
}

#endif
