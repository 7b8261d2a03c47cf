/* doc_score.h - accuracy and loss of an encoder on a set of documents. */
#ifndef DOC_SCORE_H
#define DOC_SCORE_H

#include "encoder.h"

typedef struct doc_score {
    int64_t count, right;             /* examples, and those whose largest logit is the label's */
    int64_t whole_count, whole_right; /* the same without a smaller last batch, as published    */
    double loss;                      /* the sum of the cross entropies                         */
    char why[1024];
} doc_score;

double doc_score_accuracy(const doc_score *s); /* percent; NaN without examples */
double doc_score_official(const doc_score *s); /* the same of whole batches     */
double doc_score_loss(const doc_score *s);     /* the mean                      */

/* Called after each batch; false stops the evaluation. */
typedef bool (*doc_score_fn)(void *env, const doc_score *so_far);

/* Runs the model on T, which does not record, over all examples of X. A bucket in `how` sorts all of them, unless
 * they are packed. go_on may be NULL. False with the reason in s->why. */
bool doc_score_run(doc_score *s, tp_tape *T, const encoder *m, const tp_documents *X,
                   encoder_batching how, doc_score_fn go_on, void *env);

#endif
