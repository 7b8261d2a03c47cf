/* image_run.h - the state that imagenet adds to the engine's training run. */
#ifndef IMAGE_RUN_H
#define IMAGE_RUN_H

#include <tapegrad/image_set.h>

#include "classifier.h"
#include "image_settings.h"
#include "score.h"

/* A trained classifier that teaches the run's model (knowledge distillation). */
typedef struct teacher {
    char path[4200];    /* of its weights; "": no teacher */
    classifier_cfg cfg; /* for the run's image size */
    tp_file *F;         /* NULL in a trial, and once loaded */
    tp_params *P;       /* not the run's: no optimiser, average or checkpoint sees them */
    classifier *m;
    uint64_t hash; /* of its weights */
    double bytes;  /* device memory of its weights */
} teacher;

enum { BATCHES_AHEAD = 4 };

/* What R->sum counts: images skipped since the last report. */
enum { SKIPPED };

typedef struct image_run {
    tp_image_set *X, *V; /* training and validation; a trial borrows them */
    tp_loader *L;        /* NULL: a trial, whose images are noise */
    int32_t *label;      /* with --balance: of the training images */
    tp_balanced balanced;
    tp_example_sampler sampler;

    classifier_cfg cfg;
    classifier *m;
    teacher teacher;
    tp_tensor x, y;      /* slots: images [B,size,size,3], targets [B,classes] */
    float *noise;        /* a trial's images and targets */
    int64_t served;      /* batches since the features' last draw; one less after the first */
    double waited, from; /* loader's waiting time and clock at the last report */
    int64_t unfit;       /* training images skipped by this process */
    int64_t skipped;     /* ... by all, up to the last report */
    score score;         /* of the last validation */
    uint64_t *unread;    /* name hashes of unreadable validation images, ascending */
    size_t unreads;
    bool undrawn; /* its picture failed, and that was reported */
} image_run;

/* image_init.c: loads the weights of --init if they fit this model. */
void image_init(tp_run *R, tp_file *from);

/* image_validate.c: validates and returns top-1 in percent; draws the confusion matrix. */
double image_validate(tp_run *R, char *text, size_t size);
void image_draw_best(tp_run *R);

/* ---- teacher.c ---- */

/* Finds the settings' teacher, if any, and checks that it fits the run's images X. A failure fails
 * R; close in either case. */
void teacher_open(teacher *t, tp_run *R, const tp_image_set *X);
/* For a trial: a model of this shape with initial weights. */
teacher teacher_for_trial(const teacher *of);
void teacher_close(teacher *t);

/* Loads the weights onto R's device. */
void teacher_build(teacher *t, tp_run *R);

/* Store the weights' hash in a checkpoint; fail R if it differs from its run's. */
void teacher_write(const teacher *t, tp_writer *W);
void teacher_compare(const teacher *t, tp_run *R, const tp_file *F);

/* The distillation loss: of student m against the targets y and the teacher, each on its head. */
tp_tensor teacher_loss(tp_tape *T, const teacher *t, const classifier *m, tp_tensor x, tp_tensor y,
                       const image_settings *s);

#endif
