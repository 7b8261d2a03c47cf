/* inner.h - what the files of RoBERTa share. */
#ifndef TP_ROBERTA_INNER_H
#define TP_ROBERTA_INNER_H

#include <tapegrad/roberta.h>

#include "model_inner.h"

/* The member `preset` of tp_model_roberta; cfg is a tp_roberta_cfg. */
bool tp__roberta_preset(void *cfg, const char *name, char *why, size_t size);

/* Rows of a text of so many tokens: padded to a multiple of half a window (Longformer), or to one more than a
 * multiple of the window (LS). */
int64_t tp__roberta_rows(const tp_roberta_cfg *c, int64_t tokens);

/* The pooler, which nothing reads, and types of tokens, which fairseq's files lack: tp__roberta_fill sets these to
 * zeros. */
bool tp__roberta_may_lack(const char *name);
bool tp__roberta_fill(tp_params *P, const void *m, const tp_file *F);

#endif
