/* lm_file.h - a trained model out of a checkpoint, ready to run. */
#ifndef LM_FILE_H
#define LM_FILE_H

#include <tapegrad/data.h>
#include <tapegrad/train.h>

#include "lm_kind.h"

typedef struct lm_file {
    char path[4200];
    tp_vocab vocab;
    tp_model_cfg cfg;
    int64_t segment; /* tokens of a training segment */
    tp_device *D;
    tp_params *P;
    tp_tape *T; /* not recording */
    tp_net *m;
    char why[4096];
} lm_file;

/* Finds the checkpoint (the file; else best or last.safetensors of the run's folder) and reads what
 * it says about the model. */
bool lm_file_open(lm_file *f, const char *checkpoint, const char *run_dir);

/* Loads the weights into a model of f->cfg, which may have been changed where weights do not depend
 * on it (cache, clamps). */
bool lm_file_load(lm_file *f, const tp_machine_opts *o);
void lm_file_close(lm_file *f);

#endif
