/* train_run.h - the state that `imdb train` adds to the engine's training run. */
#ifndef TRAIN_RUN_H
#define TRAIN_RUN_H

#include "text_score.h"
#include "train_settings.h"

typedef struct train_run {
    tp_bpe *vocab;      /* this and the next two: a trial borrows them */
    tp_documents *X[2]; /* by tp_part                                  */
    class_list classes;
    tp_document_loader *L; /* NULL: a trial, whose texts are noise        */
    tp_roberta_cfg cfg;
    text_model m;
    tp_tensor slot[TEXT_SLOTS];
    int64_t length; /* of a trial's texts                          */
    double mean;    /* tokens of a text of the run                 */
    int64_t tokens; /* of the run's batches so far, padding included */
    int32_t *noise; /* a trial's batch                             */
    uint8_t *ones;
} train_run;

#endif
