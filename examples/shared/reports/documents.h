/* documents.h - document classifiers, as `lra` and `imdb train` train and score them. */
#ifndef DOCUMENTS_H
#define DOCUMENTS_H

#include <tapegrad/document_loader.h>
#include <tapegrad/train.h>

/* ---- batches ---- */

/* A batch, as tp_loader_feed fills it: each document's ids and mask, or ids, positions and offsets
 * if packed; then labels. */
enum { DOC_SLOTS = 7 };

/* Puts a batch into slots. stay: they outlive the step (tp_feed). Reads only n, length, ids, label
 * of b, and mask or position and offset. */
void doc_put(tp_tape *T, const tp_document_batch *b, bool stay, tp_tensor slot[DOC_SLOTS]);

/* Slots per document: 3 if packed, otherwise 2. */
int doc_slots(const tp_tensor slot[DOC_SLOTS]);

/* Mean document length; *deviation, unless NULL, receives the standard deviation. */
double doc_mean_length(const tp_documents *X, double *deviation);

/* ---- training ---- */

/* A trial repeats one batch of noise. */
typedef struct doc_noise {
    tp_document_batch b;
    int32_t *number; /* [..] ids, positions, labels and offsets */
    uint8_t *ones;
} doc_noise;

/* n examples with documents of `length` ids from `first` to ids - 1. False: out of memory; free z
 * in either case. */
typedef struct doc_noise_opts {
    int64_t n, length, first, ids, classes;
    int documents; /* per example */
    bool packed;
} doc_noise_opts;
bool doc_noise_make(doc_noise *z, const doc_noise_opts *o);
void doc_noise_free(doc_noise *z);

/* Length of a trial's documents if packed: the mean plus five standard deviations of a batch's
 * mean, which a batch of the run hardly ever exceeds. */
int64_t doc_packed_length(const tp_documents *X, int64_t batch);

/* Feeds batch R->batch of L into slots. Returns its tokens, padding included; 0 if R or its tape
 * failed. */
int64_t doc_next(tp_run *R, tp_loader *L, tp_tensor slot[DOC_SLOTS]);

/* Fails R if --steps would move the end of a resumed run's schedule. R's settings begin with a
 * tp_train_settings. */
void doc_keep_end(tp_run *R, const tp_file *from);

/* Adds the tokens that the processes have read since the last call, *own of them this one, to those
 * of the run, and sets *own to 0. */
void doc_add_tokens(tp_run *R, int64_t *tokens, int64_t *own);

/* Reads the tokens so far from a checkpoint. */
void doc_read_tokens(tp_run *R, tp_file *F, int64_t *tokens);

/* ---- scores; logits are compared in double on the host ---- */

typedef struct doc_score {
    int64_t count, right;             /* examples, and correct predictions */
    int64_t whole_count, whole_right; /* without a smaller last batch, as LRA publishes */
    double loss;                      /* summed cross entropy */
    char why[1024];
} doc_score;

double doc_score_accuracy(const doc_score *s); /* percent; NaN without examples */
double doc_score_official(const doc_score *s); /* of whole batches */
double doc_score_loss(const doc_score *s);     /* the mean */

/* The index of the largest logit, and an example's cross entropy. NaN logits are never right:
 * -1. */
int64_t doc_best(const float *logits, int64_t classes);
double doc_cross_entropy(const float *logits, int64_t classes, int32_t label);

/* A model: slots to logits [B,classes]. */
typedef struct doc_model {
    const void *m;
    tp_tensor (*logits)(tp_tape *T, const void *m, const tp_tensor slot[DOC_SLOTS]);
    int64_t classes;
} doc_model;

/* each: called for each example; go_on: after each batch, false stops. Both may be NULL. */
typedef struct doc_watch {
    void (*each)(void *env, int64_t example, int32_t label, const float *logits);
    bool (*go_on)(void *env, const doc_score *so_far);
    void *env;
} doc_watch;

/* Runs the model over the examples of X, or the share of them that o gives this process, on T,
 * which must not record. False with the reason in s->why. */
bool doc_score_run(doc_score *s, tp_tape *T, const doc_model *m, const tp_documents *X,
                   const tp_document_loader_opts *o, doc_watch w);

/* Replaces s by the totals of all processes of R. */
void doc_score_total(doc_score *s, tp_run *R);

bool doc_not_stopped(void *run, const doc_score *so_far); /* go_on for a tp_run's validation */

#endif
