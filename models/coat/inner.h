/* inner.h - what CoaT and MPViT share beside coat.h. */
#ifndef TP_COAT_INNER_H
#define TP_COAT_INNER_H

#include <tapegrad/coat.h>

#include "model_inner.h"
#include "parts.h"

/* True if the kernels are possible for that many heads; else why receives a sentence. */
bool tp__coat_kernels(const tp_coat_kernels *k, int heads, char *why, size_t size);

/* The parts of tp_model_coat. */
void tp__coat_shared_init(tp_params *P, void *module, const char *name, const void *cfg);
void tp__coat_attn_init(tp_params *P, void *module, const char *name, const void *cfg);
void tp__coat_block_init(tp_params *P, void *module, const char *name, const void *cfg);
tp_tensor tp__coat_cpe(tp_tape *T, const void *module, void *grid, tp_tensor x);
tp_tensor tp__coat_attn(tp_tape *T, const void *module, void *grid, tp_tensor x);
tp_tensor tp__coat_block(tp_tape *T, const void *module, void *grid, tp_tensor x);

/* Declares second names of the encodings' parameters, below these; NULL: of that part none. */
void tp__coat_tie(tp_params *P, const char *cpe, const char *crpe, const tp_coat_shared *m);

#endif
