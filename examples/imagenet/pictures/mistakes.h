/* mistakes.h - the worst mistakes of an evaluation: images whose wrong class has the highest
 * probability. */
#ifndef MISTAKES_H
#define MISTAKES_H

#include "predictions.h"

enum { MISTAKE_PREDICTIONS = 5 };

typedef struct mistake {
    int64_t image; /* its number in the set */
    int32_t label; /* the right class       */
    double right;  /* and its probability   */
    int n;
    prediction best[MISTAKE_PREDICTIONS];
} mistake;

/* Initialise `most` and `at`, with room for that many. */
typedef struct mistakes {
    int64_t most, n;
    mistake *at;   /* [n], the worst first                             */
    uint64_t seed; /* of the evaluation, if its pipeline is random */
} mistakes;

/* Notes an image of class `label` if it is among the worst so far; logits [classes]. The result does not
 * depend on the order of images. */
void mistakes_note(mistakes *m, int64_t image, int32_t label, const float *logits, int64_t classes);

/* Draws them into the folder, which is created: RANK-RIGHT-PREDICTED.png, each image as the model saw it
 * through the pipeline a; note is below every title. Ends early after a signal (tp_stop_signal). Returns
 * how many it has drawn, or -1 with the reason in why. */
int64_t mistakes_draw(const mistakes *m, const tp_image_set *X, const tp_augment *a,
                      const class_names *names, const char *note, const char *folder, char *why,
                      size_t size);

#endif
