/* train_run.h - the state that `imdb train` adds to the engine's training run. */
#ifndef TRAIN_RUN_H
#define TRAIN_RUN_H

#include "text_score.h"
#include "train_settings.h"

typedef struct train_run {
    text_run base;      /* first; noise: ids, labels, positions and offsets */
    tp_documents *X[2]; /* by tp_part; a trial borrows them */
    class_list classes; /* not of a trial */
    tp_loader *L;       /* NULL: a trial, whose texts are noise */
    tp_tensor slot[TEXT_SLOTS];
    int64_t length; /* of a trial's texts */
    double mean;    /* tokens of a text of the run */
    uint8_t *ones;  /* a trial's mask */
} train_run;

#endif
