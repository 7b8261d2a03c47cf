/* inner.h - private functions of CoaT and MPViT. */
#ifndef TP_COAT_INNER_H
#define TP_COAT_INNER_H

#include <tapegrad/coat.h>

#include "model_inner.h"
#include "parts.h"

/* Are the kernels valid for that many heads? Otherwise why says why not. */
bool tp__coat_kernels(const tp_coat_kernels *k, int heads, char *why, size_t size);

/* The parts of tp_model_coat. */
void tp__coat_shared_init(tp_params *P, void *module, const char *name, const void *cfg);
void tp__coat_attn_init(tp_params *P, void *module, const char *name, const void *cfg);
void tp__coat_block_init(tp_params *P, void *module, const char *name, const void *cfg);
tp_tensor tp__coat_cpe(tp_tape *T, const void *module, void *grid, tp_tensor x);
tp_tensor tp__coat_attn(tp_tape *T, const void *module, void *grid, tp_tensor x);
tp_tensor tp__coat_block(tp_tape *T, const void *module, void *grid, tp_tensor x);

/* Declares aliases of the encodings' parameters under these names; NULL: no aliases. */
void tp__coat_tie(tp_params *P, const char *cpe, const char *crpe, const tp_coat_shared *m);

#endif
