/* lra_run.h - the state that lra adds to the engine's training run. */
#ifndef LRA_RUN_H
#define LRA_RUN_H

#include "doc_score.h"
#include "encoder.h"
#include "lra_settings.h"

typedef struct lra_run {
    tp_documents *X[3]; /* by tp_part; the test's may be NULL. A trial borrows them  */
    tp_loader *L;       /* NULL: a trial, whose documents are noise                  */
    tp_lra_cfg cfg;
    encoder m;
    tp_optim *O;                   /* the engine's: its beta1 changes during the run */
    tp_tensor slot[ENCODER_SLOTS]; /* the batch                                      */
    int64_t length;                /* of a trial's documents                         */
    double mean;                   /* tokens of a document of the run                */
    int64_t tokens;                /* of the run's batches so far, padding included  */
    int32_t *noise;                /* a trial's ids, positions, labels and offsets */
    uint8_t *ones;
} lra_run;

/* lra_test.c: loads the best model when training ends, tests it, and writes test.json. A new best model makes a
 * former test void. */
void lra_test_best(tp_run *R);
void lra_forget_test(tp_run *R);

#endif
