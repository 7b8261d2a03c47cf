/* lm_model.h - the two language models behind one face: Transformer-LS and Transformer-XL. */
#ifndef LM_MODEL_H
#define LM_MODEL_H

#include <tapegrad/models.h>

#include "settings.h"

typedef struct model_cfg {
    model_kind kind;
    tp_lm_cfg ls;   /* the one that */
    tp_txl_cfg txl; /* kind names   */
} model_cfg;

typedef struct language_model {
    model_kind kind;
    tp_lm ls;
    tp_txl txl;
} language_model;

typedef struct model_state {
    tp_lm_state ls;
    tp_txl_state txl;
} model_state;

model_cfg model_cfg_from(const settings *s, int64_t vocab);
void model_cfg_into(const model_cfg *c, settings *s); /* the TAG_MODEL members of s */
bool model_cfg_check(const model_cfg *c, char *why, size_t size);
/* Can it run in segments of so many tokens? `flag` is what the user would change. */
bool model_segment_check(const model_cfg *c, const char *flag, int64_t tokens, char *why,
                         size_t size);
void model_cfg_write(const model_cfg *c, tp_writer *W);
/* False with the whole sentence in why. */
bool model_cfg_read(model_cfg *c, tp_file *F, char *why, size_t size);

int64_t model_mem_len(const model_cfg *c);
void model_set_mem_len(model_cfg *c, int64_t rows);

void model_init(tp_params *P, language_model *m, const model_cfg *c);
tp_tensor model_forward(tp_tape *T, const language_model *m, model_state *s, tp_tensor tokens);
void model_state_clear(tp_tape *T, const language_model *m, model_state *s);
bool model_state_write(tp_tape *T, const language_model *m, const model_state *s, tp_writer *W);
bool model_state_read(tp_tape *T, const language_model *m, model_state *s, tp_file *F);

/* The weights of a checkpoint of either kind into P; what else a training checkpoint holds is
 * skipped. */
bool model_read_weights(tp_params *P, tp_file *F);

#endif
