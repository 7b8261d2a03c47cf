/* inner.h - parts and members of tp_model_roberta. */
#ifndef TP_ROBERTA_INNER_H
#define TP_ROBERTA_INNER_H

#include <tapegrad/roberta.h>

#include "model_inner.h"

/* ---- longformer.c: the part "longformer" ---- */

void tp__longformer_init(tp_params *P, void *m, const char *name, const void *cfg);
tp_tensor tp__longformer(tp_tape *T, const void *m, void *with, tp_tensor x);

/* ---- config.c ---- */

extern const tp_model_row tp__roberta_presets[];
extern const tp_model_member tp__roberta_members[];
extern const tp_spelling tp__roberta_spellings[];
bool tp__roberta_preset(void *cfg, const char *name, char *why, size_t size);
bool tp__roberta_check(const void *cfg, char *why, size_t size);

/* True for the unused pooler and for token types, which fairseq's files lack; fill zeroes the
 * types. */
bool tp__roberta_may_lack(const char *name);
bool tp__roberta_fill(tp_params *P, const void *m, const tp_file *F);

/* Loads a file whose attention, length or head may differ. */
bool tp__roberta_load(tp_params *P, const void *m, tp_file *F);
bool tp__roberta_resizes(const char *name, const tp_shape *here, const tp_shape *there);

#endif
