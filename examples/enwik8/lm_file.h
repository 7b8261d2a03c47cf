/* lm_file.h - a trained language model from a checkpoint, ready to run. */
#ifndef LM_FILE_H
#define LM_FILE_H

#include <tapegrad/data.h>
#include <tapegrad/train.h>

#include "lm_kind.h"

/* The first member of the settings of every command that runs a trained model: a checkpoint, or a
 * publisher's weights with their model and dictionary. */
typedef struct lm_source {
    tp_trained_settings t;
    char *weights, *preset; /* NULL: a checkpoint */
    char *data, *vocab;     /* a text, and a dictionary for --weights */
} lm_source;

/* The names of the table's language models; NULL past the last. */
const char *lm_preset_known(int i);

/* Rows for such a command; members of the settings type S. */
/* clang-format off */
#define OPTIONS_PUBLISHED(S) \
    TP_STRING("weights", S, c.weights, "FILE", 0, \
              "Published weights in place of a checkpoint: safetensors, PyTorch's .pth, .pt or " \
              ".bin, or the index of several files. They need --preset and a dictionary."), \
    TP_STRING_OF("preset", S, c.preset, "NAME", lm_preset_known, 0, \
              "The model of --weights: ls_lm-small, txl-base or another one that tp-models lists."), \
    TP_STRING("vocab", S, c.vocab, "FILE", 0, \
              "The dictionary of --weights, as fairseq writes it (dict.txt). If not given, it is " \
              "built from --data by the rule of the official code.")
/* clang-format on */

typedef struct lm_file {
    tp_trained t;
    tp_vocab vocab;
    tp_model_cfg cfg;
    int64_t segment; /* tokens of a training segment */
    tp_net *m;
} lm_file;

/* Reads the dictionary of a checkpoint. False with a full sentence in why. */
bool lm_vocab_read(tp_vocab *v, const tp_file *F, char *why, size_t size);

/* Prepares published weights for the model of cfg and finds their dictionary: that of the file `vocab`,
 * or if that is NULL, that of the text `data` by the rule of the model's official code. False with a
 * full sentence in why. */
bool lm_published(tp_model_cfg *cfg, tp_file *F, const char *vocab, const char *data, tp_vocab *v,
                  char *why, size_t size);

/* Finds the checkpoint or published weights and reads configuration and dictionary. False with the
 * reason in t.why; close in either case. */
bool lm_file_open(lm_file *f, const lm_source *c);

/* Loads the weights into a model of f->cfg. Before the call, members on which the weights do not
 * depend (cache, clamps) may be changed. */
bool lm_file_load(lm_file *f, const tp_machine_settings *o);
void lm_file_close(lm_file *f);

#endif
