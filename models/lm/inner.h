/* inner.h - functions that both language models share. */
#ifndef TP_LM_INNER_H
#define TP_LM_INNER_H

#include <tapegrad/lm.h>

/* The official initial values: matrices and position biases N(0, 0.02), norm weights N(1, 0.02),
 * all other vectors 0. */
tp_init tp__lm_init_rule(const char *name, tp_shape s, tp_init dflt, void *env);

/* Declares a buffer of the dim/2 sinusoid frequencies, in f64: rounding them to f32 would change
 * the angle of position 8000 by 5e-4. */
tp_tensor tp__lm_frequencies(tp_params *P, const char *name, int64_t dim);

/* Keeps the sinusoids of distances 0 .. rows-1 (at most clamp, if > 0) in *slot: [rows,dim], in f64
 * on an f64 tape, else f32. Recomputes them only if *slot has a different number of rows. */
tp_tensor tp__lm_positions(tp_tape *T, tp_tensor *slot, int64_t rows, tp_tensor inv_freq,
                           int64_t clamp);

/* Fails T, and returns false, if P has failed, tokens are not [B,N], or slot has another number of
 * streams. */
bool tp__lm_check_input(tp_tape *T, const tp_params *P, tp_tensor tokens, tp_tensor slot);

/* Carries the new memory of a layer: the last mem_len rows of concat(old, h), detached; all rows if
 * there are fewer. Nothing is copied if h alone fills it exactly. */
void tp__lm_remember(tp_tape *T, tp_tensor *slot, tp_tensor old, tp_tensor h, int64_t mem_len);

/* Writes carried slots as tensors "state.NAME.0" ... of a checkpoint, and reads them back. Empty
 * slots are not written; slots without tensors become empty. All have the same shape
 * [B,rows,dim]. */
bool tp__lm_slots_write(tp_tape *T, const char *name, int n, const tp_tensor *slot, tp_writer *W);
bool tp__lm_slots_read(tp_tape *T, const char *name, int n, tp_tensor *slot, int64_t min_rows,
                       int64_t max_rows, int64_t dim, tp_file *F);

void tp__lm_slots_clear(tp_tape *T, int n, tp_tensor *slot);

/* Finishes a block: b [B,M,d], attention output plus residual -> [B,M,d]. */
tp_tensor tp__ls_block_finish(tp_tape *T, const tp_ls_block *m, tp_tensor b);

#endif
