/* pretrain_run.h - the state that `imdb pretrain` adds to the engine's training run. */
#ifndef PRETRAIN_RUN_H
#define PRETRAIN_RUN_H

#include <tapegrad/mlm.h>

#include "pretrain_settings.h"

typedef struct pretrain_run {
    text_run base; /* first; noise: ids, rows and targets */
    tp_corpus *C;  /* a trial borrows it */
    tp_loader *L;  /* NULL: a trial, whose sequences are noise */
    tp_tensor slot[TP_MLM_SLOTS];
    int64_t sequence; /* tokens of a sequence */
} pretrain_run;

#endif
