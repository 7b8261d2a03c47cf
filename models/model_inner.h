/* model_inner.h - functions that the files of the models library share. */
#ifndef TP_MODEL_INNER_H
#define TP_MODEL_INNER_H

#include <tapegrad/model.h>

/* The name of the model in a file, or NULL: metadata "model", or "classifier" in early checkpoints
 * of a model that wrote no other. */
const char *tp__model_of(tp_file *F);

/* ---- checks of configurations ---- */

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
