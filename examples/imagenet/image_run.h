/* image_run.h - the state that imagenet adds to the engine's training run. */
#ifndef IMAGE_RUN_H
#define IMAGE_RUN_H

#include <tapegrad/image_set.h>

#include "classifier.h"
#include "image_settings.h"
#include "score.h"

/* A trained classifier whose logits teach the model of the run (knowledge distillation). */
typedef struct teacher {
    char path[4200];    /* of its weights; "": the run has no teacher  */
    classifier_cfg cfg; /* for images of the run's size                */
    tp_file *F;         /* until its weights are loaded; NULL in a trial */
    tp_params *P;       /* apart from the run's: no optimiser, average or checkpoint has them */
    classifier *m;
    uint64_t hash; /* of its weights */
    double bytes;  /* of device memory that its weights take */
} teacher;

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

/* ---- teacher.c ---- */

/* Finds the teacher that the settings name and checks that it fits the run's images X. Does nothing if they name none.
 * A failure fails R; close in either case. */
void teacher_open(teacher *t, tp_run *R, const tp_image_set *X);
/* For a trial: a model of the same shape with initial weights. */
teacher teacher_for_trial(const teacher *of);
void teacher_close(teacher *t);

/* Loads the weights onto R's device. */
void teacher_build(teacher *t, tp_run *R);

/* The hash of the weights in a checkpoint; compare fails R if they differ from those of its run. */
void teacher_write(const teacher *t, tp_writer *W);
void teacher_compare(const teacher *t, tp_run *R, const tp_file *F);

/* The loss of distillation: of the student m against the targets y and the teacher, each on its head. */
tp_tensor teacher_loss(tp_tape *T, const teacher *t, const classifier *m, tp_tensor x, tp_tensor y,
                       const image_settings *s);

#endif
