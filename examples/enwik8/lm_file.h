/* lm_file.h - a trained language model from a checkpoint, ready to run. */
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

/* Reads the dictionary of a checkpoint. False with a full sentence in why. */
bool lm_vocab_read(tp_vocab *v, const tp_file *F, char *why, size_t size);

/* Finds the checkpoint and reads its configuration and dictionary. False with the reason in t.why;
 * close in either case. */
bool lm_file_open(lm_file *f, const tp_trained_settings *o);

/* Loads the weights into a model of f->cfg. Before the call, members on which the weights do not
 * depend (cache, clamps) may be changed. */
bool lm_file_load(lm_file *f, const tp_machine_settings *o);
void lm_file_close(lm_file *f);

#endif
