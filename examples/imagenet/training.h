/* training.h - everything a training run of imagenet holds, and its two files. */
#ifndef TRAINING_H
#define TRAINING_H

#include <log.h>
#include <progress.h>
#include <run.h>
#include <tapegrad/pictures.h>
#include <tapegrad/tapegrad.h>

#include "classifier.h"
#include "image_settings.h"
#include "score.h"
#include "shapes.h"

enum { TRAINING_WHY = 6000, BATCHES_AHEAD = 4 };

/* Losses, each the mean of a batch; those of `pending` batches are still on the device. */
typedef struct loss_sums {
    double report, epoch; /* since the last report, since the epoch began */
    int64_t reported, of_epoch, pending;
} loss_sums;

/* The clock since the last report. */
typedef struct stopwatch {
    double began, going; /* going: when training last went on after a pause */
    double waited;       /* by the loader, until the last report            */
    int64_t pictures;
} stopwatch;

typedef struct training {
    image_settings s;
    run_dir run;
    run_log log;
    progress bar;

    shapes drawn[2];
    tp_pictures *X, *V; /* training and validation */
    uint64_t data_hash; /* of names and labels: a resumed run must see the same */
    tp_loader *L;

    tp_device *D;
    tp_params *P;
    tp_tape *T, *E; /* training and evaluation */
    tp_optim *O;
    tp_ema *ema; /* NULL without */
    classifier *m;
    classifier_cfg cfg;
    bool on_card;
    tp_tensor losses; /* slot: the sum of the pending losses */

    loss_sums sum;
    stopwatch watch;
    int64_t per_epoch;     /* updates */
    int64_t update, saved; /* updates made; update of the last checkpoint, -1: none */
    int64_t served;        /* batches, by Performer's features: less one after the first draw */
    double seconds;        /* spent on them, this process's and earlier ones' */
    double best;           /* top-1 of best.safetensors; -1: none */
    char why[TRAINING_WHY];
} training;

/* Builds all of it from argv (flags only). Returns OPTIONS_RUN or an exit status, the message
 * printed. Close in either case. */
int training_open(training *t, const program *p, int argc, char **argv);
void training_close(training *t);

/* image_train.c: reads the losses that are still on the device; false, with the reason, if they are
 * no numbers. */
bool training_collect(training *t);

/* The update that a run ends with, if no time is up before. */
int64_t training_last_update(const training *t);

/* Notes the first reason why training cannot go on; always false. lost: NaN or infinity, with what
 * to do about it. */
bool training_fail(training *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool training_lost(training *t, const char *why);

/* Tells of a picture that cannot be read; env is the training. */
void training_bad_picture(void *env, const char *name, const char *why);

/* training_state.c. last.safetensors: all that the next update depends on. */
bool training_save(training *t);
bool training_load(training *t, tp_file *F); /* into what was built */

/* best.safetensors: weights, configuration, names of the classes, and the score. */
bool training_save_best(training *t, double top1);
double training_best_so_far(const char *path); /* -1 if there is none */

/* training_init.c: the weights of --init, checked against this model. */
bool training_init(training *t);

#endif
