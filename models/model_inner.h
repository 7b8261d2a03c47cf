/* model_inner.h - functions that the files of the models library share. */
#ifndef TP_MODEL_INNER_H
#define TP_MODEL_INNER_H

#include <tapegrad/model.h>

/* The name of the model in a file, or NULL: metadata "model", or "classifier" in early checkpoints
 * of a model that wrote no other. */
const char *tp__model_of(tp_file *F);

/* Loads weights of another input size; see the functions without a second underscore. */
bool tp__vil_load(tp_params *P, const void *m, tp_file *F);
bool tp__cvt_load(tp_params *P, tp_file *F);
bool tp__vit_lsla_load(tp_params *P, tp_file *F);

/* Enters the prefix of F under which most of P's names are ("state_dict.module."), the shortest one of
 * equals; averaged weights only if there are no others. Enters none if F has any of the names itself:
 * an optimiser's moments must not stand in for a weight that is missing. */
void tp__published_enter(const tp_params *P, tp_file *F);

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
