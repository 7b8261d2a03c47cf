/* score.h - the accuracy of a classifier: loss, top-1, top-5, confusion matrix. */
#ifndef SCORE_H
#define SCORE_H

#include <tapegrad/image_set.h>

#include "classifier.h"

typedef struct score {
    int64_t count, top1, top5, skipped;
    double loss;        /* sum of the cross entropies           */
    int64_t *confusion; /* [classes,classes]: label, prediction */
    char why[1024];
} score;

typedef struct score_opts {
    const tp_augment *augment;
    int64_t batch;
    int workers;
    uint64_t seed; /* of a corruption */
    bool strict;
    void (*bad)(void *env, const char *name, const char *why);
    bool (*go_on)(void *env, const score *so_far); /* false: stop here; may be NULL */
    /* The model's class for each class of the images; NULL: the same number. */
    const int32_t *label_of;
    /* Called for each image with its number in the set and its class in the model; logits [classes];
     * may be NULL. */
    void (*each)(void *env, int64_t image, int32_t label, const float *logits);
    void *env;
} score_opts;

/* Runs the model on T, which does not record, over all images. False with the reason in why; free
 * in either case. */
bool score_run(score *s, tp_tape *T, const classifier *m, const tp_image_set *X,
               const score_opts *o);
void score_free(score *s);

/* A share in percent; NAN of nothing. */
double score_percent(int64_t part, int64_t of);

/* The n most likely classes, best first; padded with -1 if there are fewer classes. */
void score_top(const float *logits, int64_t classes, int n, int32_t *best);

#endif
