/* lm_file.h - a trained language model out of a checkpoint, ready to run. */
#ifndef LM_FILE_H
#define LM_FILE_H

#include <tapegrad/data.h>
#include <tapegrad/train.h>

#include "lm_kind.h"

typedef struct lm_file {
    tp_trained t;
    tp_vocab vocab;
    tp_model_cfg cfg;
    int64_t segment; /* tokens of a training segment */
    tp_net *m;
} lm_file;

/* Finds the checkpoint and reads what it says about the model. False with the reason in t.why;
 * close in either case. */
bool lm_file_open(lm_file *f, const tp_trained_settings *o);

/* Loads the weights into a model of f->cfg, which may have been changed where weights do not depend
 * on it (cache, clamps). */
bool lm_file_load(lm_file *f, const tp_machine_settings *o);
void lm_file_close(lm_file *f);

#endif
