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

/* Enters the part of F that holds most of P's names, which its publisher may have wrapped:
 * "state_dict.module.". Of equal parts, F itself if it is one, else the one with the shortest name,
 * since averages are called after the weights ("model_ema." beside "model."). */
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
