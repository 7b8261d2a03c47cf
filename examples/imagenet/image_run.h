/* image_run.h - what a training run of imagenet holds beside the engine's. */
#ifndef IMAGE_RUN_H
#define IMAGE_RUN_H

#include <tapegrad/image_set.h>

#include "classifier.h"
#include "image_settings.h"
#include "score.h"

enum { BATCHES_AHEAD = 4 };

typedef struct image_run {
    tp_image_set *X, *V; /* training and validation; those of another run for a trial */
    tp_loader *L;        /* NULL: a trial, whose images are noise                     */

    classifier_cfg cfg;
    classifier *m;
    tp_tensor x, y;      /* slots: images [B,size,size,3], targets [B,classes]            */
    float *noise;        /* of a trial: images and targets                                */
    int64_t served;      /* batches, by Performer's features: less one after the first draw */
    double waited, from; /* when the last report was written: by the loader, the clock    */
    score score;         /* the last validation                                           */
} image_run;

/* image_init.c: the weights of --init, checked against this model. */
void image_init(tp_run *R, tp_file *from);

/* image_validate.c: top-1 in percent; draws the confusion matrix of that validation. */
double image_validate(tp_run *R, char *text, size_t size);
void image_draw_best(tp_run *R);

#endif
