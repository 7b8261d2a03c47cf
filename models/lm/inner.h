/* inner.h - what the two language models share. */
#ifndef TP_LM_INNER_H
#define TP_LM_INNER_H

#include <tapegrad/models.h>

/* Of configurations. Sizes come from files: products of three and sums of products must not
 * overflow. */
bool tp__lm_is_rate(double p);
bool tp__lm_is_size(int64_t n);

/* What both models need; buf stays empty if all is well. */
void tp__lm_check_common(int64_t vocab, int64_t dim, int64_t hidden, int layers, int64_t mem_len,
                         char *buf, size_t size);

/* Matrices and position biases N(0, 0.02), norm weights N(1, 0.02), all other vectors 0. */
tp_init tp__lm_init_rule(const char *name, tp_shape s, tp_init dflt, void *env);

/* Declares the buffer NAME of the dim/2 usual frequencies, in f64: rounded to f32 they would put
 * the angle of position 8000 off by 5e-4. */
tp_tensor tp__lm_frequencies(tp_params *P, const char *name, int64_t dim);

/* Makes *slot hold the sinusoids of distances 0 .. rows-1 (at most clamp, if > 0): [rows,dim], in
 * f64 on an f64 tape, else f32. Nothing is computed if it does already. */
tp_tensor tp__lm_positions(tp_tape *T, tp_tensor *slot, int64_t rows, tp_tensor inv_freq,
                           int64_t clamp);

/* False: T has failed, since P has, tokens are not [B,N], or slot holds another number of streams.
 */
bool tp__lm_check_input(tp_tape *T, const tp_params *P, tp_tensor tokens, tp_tensor slot);

/* The new memory of a layer: the last mem_len rows of concat(old, h), or all if there are fewer,
 * detached. Nothing is copied where h alone fills it exactly. */
void tp__lm_remember(tp_tape *T, tp_tensor *slot, tp_tensor old, tp_tensor h, int64_t mem_len);

/* Carried slots as tensors "state.NAME.0" ... of a checkpoint and back; nothing is written for
 * empty slots, and nothing found empties them. All have the same shape [B,rows,dim]. */
bool tp__lm_slots_write(tp_tape *T, const char *name, int n, const tp_tensor *slot, tp_writer *W);
bool tp__lm_slots_read(tp_tape *T, const char *name, int n, tp_tensor *slot, int64_t min_rows,
                       int64_t max_rows, int64_t dim, tp_file *F);

void tp__lm_slots_clear(tp_tape *T, int n, tp_tensor *slot);

/* What follows the attention in a block: b [B,M,d] is its output with the residual -> [B,M,d]. */
tp_tensor tp__ls_block_finish(tp_tape *T, const tp_ls_block *m, tp_tensor b);

#endif
