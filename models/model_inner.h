/* model_inner.h - functions that the files of the models library share. */
#ifndef TP_MODEL_INNER_H
#define TP_MODEL_INNER_H

#include <string.h>
#include <tapegrad/model.h>

/* The name of the model in a file, or NULL: metadata "model", or "classifier" in early checkpoints
 * of a model that wrote no other. */
const char *tp__model_of(tp_file *F);

/* Sets a member from its text. False with a sentence in why; the member may have changed. */
bool tp__member_read(const tp_model_member *m, const char *text, void *cfg, char *why, size_t size);

/* Have both as many axes, of the same lengths? */
static inline bool tp__equal_shapes(const tp_shape *a, const tp_shape *b)
{
    return a->ndim == b->ndim && memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof a->dim[0]) == 0;
}

/* Gives a publisher's file the names of P, which holds that model, and copies the prefix that was
 * removed from them. None is if F has any of the names itself: an optimiser's moments must not
 * stand in for a weight that is missing. */
void tp__published_enter(const tp_model *model, const tp_params *P, tp_file *F, char *prefix,
                         size_t size);

/* ---- checks of configurations ---- */

/* Is each member in the range of its row? Else why receives a sentence that names the member and
 * the range. */
bool tp__check_members(const tp_model_member *m, const void *cfg, char *why, size_t size);

static inline bool tp__in_range(int64_t x, int64_t least, int64_t most)
{
    return x >= least && x <= most;
}

/* A probability of dropping something; false for NaN. */
static inline bool tp__is_rate(double p)
{
    return p >= 0.0 && p < 1.0;
}

#endif
