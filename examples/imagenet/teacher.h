/* teacher.h - a trained classifier whose logits teach the model of a run (knowledge distillation). */
#ifndef TEACHER_H
#define TEACHER_H

#include <tapegrad/train.h>

#include "classifier.h"
#include "image_settings.h"

typedef struct teacher {
    char path[4200];    /* of its weights; "": the run has no teacher  */
    classifier_cfg cfg; /* for images of the run's size                */
    tp_file *F;         /* until its weights are loaded; NULL in a trial */
    tp_params *P;       /* apart from the run's: no optimiser, average or checkpoint has them */
    classifier *m;
    uint64_t hash; /* of its weights */
    double bytes;  /* of device memory that its weights take */
} teacher;

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
