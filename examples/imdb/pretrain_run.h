/* pretrain_run.h - the state that `imdb pretrain` adds to the engine's training run. */
#ifndef PRETRAIN_RUN_H
#define PRETRAIN_RUN_H

#include <tapegrad/mlm.h>

#include "pretrain_settings.h"

typedef struct pretrain_run {
    tp_bpe *vocab;
    tp_corpus *C; /* a trial borrows both */
    tp_mlm *L;    /* NULL: a trial, whose sequences are noise */
    text_model m;
    tp_roberta_cfg cfg;
    tp_tensor slot[TP_MLM_SLOTS];
    int64_t sequence; /* tokens of a sequence                        */
    int64_t tokens;   /* of the run's batches so far                 */
    int32_t *noise;   /* a trial's ids, rows and targets             */
} pretrain_run;

#endif
