/* image_run.h - the state that imagenet adds to the engine's training run. */
#ifndef IMAGE_RUN_H
#define IMAGE_RUN_H

#include <tapegrad/image_set.h>

#include "classifier.h"
#include "image_settings.h"
#include "score.h"
#include "teacher.h"

enum { BATCHES_AHEAD = 4 };

typedef struct image_run {
    tp_image_set *X, *V; /* training and validation; a trial borrows those of its run */
    tp_loader *L;        /* NULL: a trial, whose images are noise                     */

    classifier_cfg cfg;
    classifier *m;
    teacher teacher;
    tp_tensor x, y;      /* slots: images [B,size,size,3], targets [B,classes]                */
    float *noise;        /* images and targets of a trial                                     */
    int64_t served;      /* batches that used Performer's features; one less after the first draw */
    double waited, from; /* at the last report: the loader's waiting time, and the clock      */
    score score;         /* of the last validation                                            */
    uint64_t *unread;    /* hashes of the names of unreadable validation images, ascending    */
    size_t unreads;
    bool undrawn; /* its picture could not be drawn, which has been reported           */
} image_run;

/* image_init.c: loads the weights of --init after checking them against this model. */
void image_init(tp_run *R, tp_file *from);

/* image_validate.c: validates and returns top-1 in percent; draws the confusion matrix. */
double image_validate(tp_run *R, char *text, size_t size);
void image_draw_best(tp_run *R);

#endif
