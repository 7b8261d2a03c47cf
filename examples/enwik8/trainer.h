/* trainer.h - everything a training run holds, and its two files. */
#ifndef TRAINER_H
#define TRAINER_H

#include <log.h>
#include <progress.h>
#include <run.h>
#include <tapegrad/data.h>
#include <tapegrad/tapegrad.h>

#include "lm_model.h"
#include "settings.h"

enum { TRAINER_WHY = 6000 };

/* Since the last report. The losses of `pending` segments are still on the device (train.c). */
typedef struct tally {
    double loss, nll, began;
    double going; /* when training last went on after a pause */
    int64_t segments, counted, tokens, pending;
} tally;

typedef struct trainer {
    settings s;
    run_dir run;
    run_log log;
    progress bar;

    tp_text *text;
    uint64_t text_hash; /* of the training ids: a resumed run must see the same */
    tp_bytes *reader;
    int32_t *x, *y; /* [B,M] */

    tp_device *D;
    tp_params *P;
    tp_tape *T, *E; /* training and evaluation */
    tp_optim *O;
    tp_ema *ema; /* NULL without */
    language_model *m;
    model_cfg cfg;
    model_state mem;
    bool on_card;
    tp_capture *C;                /* NULL without --graph */
    tp_tensor in, target, losses; /* slots: tokens [B,M] twice, the sum of the pending losses */

    tally sum;
    int64_t update, saved; /* updates made; update of the last checkpoint, -1: none */
    double seconds;        /* spent on them, this process's and earlier ones' */
    double best;           /* bits per character of best.safetensors; infinity: none */
    char why[TRAINER_WHY];
} trainer;

/* Builds all of it from argv (flags only). Returns OPTIONS_RUN or an exit status, the message
 * printed. Close in either case. */
int trainer_open(trainer *t, const program *p, int argc, char **argv);
void trainer_close(trainer *t);

/* The part of a run that lives on a device, out of t->s and t->cfg; dry: on one that only counts
 * memory. */
bool trainer_build(trainer *t, bool dry);

/* train.c: so many updates; and the bits per character of the validation text, false if a signal or
 * an error ended it early. */
bool train_updates(trainer *t, int64_t updates);
bool train_measure(trainer *t, double *bpc);

/* train.c: reads the losses that are still on the device; false, with the reason, if they are no
 * numbers. */
bool train_collect(trainer *t);

/* Notes the first reason why training cannot go on; always false. */
bool trainer_fail(trainer *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The same for a run that came to NaN or infinity: why, and what to do about it. */
bool trainer_lost(trainer *t, const char *why);

/* For a folder that was removed under the run: makes it again with a checkpoint in it, and fails
 * with that message. */
void trainer_rescue(trainer *t);

/* train_state.c. last.safetensors: all that the next step depends on. */
bool trainer_save(trainer *t);
bool trainer_load(trainer *t, tp_file *F); /* into a built trainer */

/* best.safetensors: weights, configuration, dictionary, and the score. */
bool trainer_save_best(trainer *t, double bpc);
double trainer_best_so_far(const char *path); /* infinity if there is none */

#endif
