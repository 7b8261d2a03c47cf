/* text_score.h - batches of texts for a model, and the model's accuracy and loss on a set of them. */
#ifndef TEXT_SCORE_H
#define TEXT_SCORE_H

#include <tapegrad/document_loader.h>

#include "text_model.h"

/* ---- batches ---- */

/* How texts become batches. */
typedef struct text_batching {
    int64_t batch;  /* texts                                                                 */
    int64_t bucket; /* > 1: so many batches at a time are sorted by length before they are made */
    bool packed;    /* one after another, without padding                                    */
} text_batching;

/* As options of the document loader; seed and train are the caller's. */
tp_document_loader_opts text_batches(const tp_roberta_cfg *c, text_batching how);

/* The slots of tp_loader_feed: ids, mask, labels; packed: ids, positions, offsets, labels. */
enum { TEXT_SLOTS = 4 };
tp_tensor text_labels(const tp_tensor slot[TEXT_SLOTS]);

/* Slots -> logits [B,classes], in f32 or f64. */
tp_tensor text_logits(tp_tape *T, const text_model *m, const tp_tensor slot[TEXT_SLOTS]);

/* ---- scores ---- */

/* Called for each text; false from go_on, after each batch, stops the evaluation. Both may be NULL. */
typedef struct text_score text_score;
typedef struct text_watch {
    void (*each)(void *env, int64_t text, int32_t label, const float *logits);
    bool (*go_on)(void *env, const text_score *so_far);
    void *env;
} text_watch;

struct text_score {
    int64_t classes, count, right; /* right: the largest logit is the label's    */
    double loss;                   /* the sum of the cross entropies             */
    int64_t *confusion;            /* [classes,classes]: label, prediction       */
    char why[1024];
};

double text_score_accuracy(const text_score *s); /* percent; NaN without texts */
double text_score_loss(const text_score *s);     /* the mean                   */

/* The number of the largest logit, and the cross entropy of a text in double. NaN logits are never right: -1. */
int64_t text_best(const float *logits, int64_t classes);
double text_cross_entropy(const float *logits, int64_t classes, int32_t label);

/* Runs the model on T, which does not record, over all texts of X; unless they are packed, the shortest first, whatever
 * the bucket. False with the reason in s->why; free s in either case. */
bool text_score_run(text_score *s, tp_tape *T, const text_model *m, const tp_documents *X,
                    text_batching how, text_watch w);
void text_score_free(text_score *s);

#endif
