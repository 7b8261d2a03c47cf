/* score.h - accuracy and loss of an encoder on a set of documents. */
#ifndef SCORE_H
#define SCORE_H

#include "encoder.h"

typedef struct score {
    int64_t count, right;             /* examples, and those whose largest logit is the label's */
    int64_t whole_count, whole_right; /* the same without a smaller last batch, as published    */
    double loss;                      /* the sum of the cross entropies                         */
    char why[1024];
} score;

double score_accuracy(const score *s); /* percent; NaN without examples */
double score_official(const score *s); /* the same of whole batches     */
double score_loss(const score *s);     /* the mean                      */

/* Called after each batch; false stops the evaluation. */
typedef bool (*score_fn)(void *env, const score *so_far);

/* Runs the model on T, which does not record, over all examples of X. sorted: pads batches of similar length
 * only to their longest document. go_on may be NULL. False with the reason in s->why. */
bool score_run(score *s, tp_tape *T, const encoder *m, const tp_documents *X, int64_t batch,
               bool sorted, score_fn go_on, void *env);

#endif
