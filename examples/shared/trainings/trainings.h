/* trainings.h - a table of trainings: each row is trained with several seeds, one process and one
 * folder a training, and shown by means and standard deviations over the seeds. A program brings
 * its commands, the flags of its rows and what it prints. */
#ifndef TRAININGS_H
#define TRAININGS_H

#include <jansson.h>
#include <stdio.h>
#include <tapegrad/train.h>

enum {
    TRAININGS_PATH = 4400,
    TRAININGS_SEEDS = 100,
    TRAININGS_FIGURES = 4,
    TRAININGS_NAME = 240 /* bytes of a row's name, which is part of a folder's */
};

/* ---- processes.c: commands of the program in child processes ---- */

/* Flags for a command, copied. */
enum { COMMAND_WORDS = 200 };
typedef struct command_flags {
    int n;
    char *word[COMMAND_WORDS];
    size_t used;
    char room[16384];
    bool full; /* something did not fit; command_apart says so */
} command_flags;

void command_flag(command_flags *f, const char *name, const char *value); /* --name value */
void command_number(command_flags *f, const char *name, double value);
void command_words(command_flags *f, const char *text); /* at blanks; NULL: none */
/* --name and the value that settings s have for it. */
void command_copy(command_flags *f, const tp_option *options, const char *name, const void *s);

/* Runs a command's main function in a child process and waits; the first signal is forwarded. What
 * it prints goes to the file `to`, or if that is NULL to standard error. Returns the exit status,
 * or -1 with the reason in why if the child could not be started or was killed. */
int command_apart(command_flags *f, int (*command)(int argc, char **argv), const char *to,
                  char *why, size_t size);

/* ---- folders.c: a training's folder and the table's ---- */

/* A validation. */
typedef struct training_point {
    double epoch, seconds, score;
} training_point;

/* Results of a finished training. */
typedef struct training {
    double test[TRAININGS_FIGURES]; /* of test.json, by the table's keys */
    double valid, last;             /* the best and the last validation's score */
    double seconds, updates;        /* training only */
    double memory, process;         /* peak bytes of device and process */
    double parameters, gflops;      /* of config.json; 0: not there */
    int points;
    training_point *point; /* in training order */
} training;

/* Does the folder hold a finished training (test.json)? A started one (last.safetensors)? */
bool training_finished(const char *folder);
bool training_begun(const char *folder);

/* Seconds per update of a training, without the first. False with the reason in why. */
bool training_speed(const char *folder, double *seconds, char *why, size_t size);

/* Creates a table's folder with a note of what it compares in table.json, or checks that its note
 * is the same once a training has begun there. Takes ours; NULL: out of memory. False with the
 * reason in why. */
bool trainings_open(const char *folder, json_t *ours, char *why, size_t size);

/* ---- the table ---- */

typedef struct training_row {
    char name[TRAININGS_NAME];
    int runs;
    training run[TRAININGS_SEEDS]; /* by seed, from 1 */
} training_row;

typedef struct trainings {
    const char *command;                 /* for messages: "lra table" */
    const char *score;                   /* key of a validation's score in log.jsonl */
    const char *keys[TRAININGS_FIGURES]; /* of test.json; NULL: unused */
    /* Begins or resumes the training of a row with a seed; test.json must be there in the end.
     * False with the reason in why. */
    bool (*train)(void *env, int row, int64_t seed, const char *folder, char *why, size_t size);
    /* A row's object for a training in table.jsonl. */
    json_t *(*json)(void *env, int row, int run);
    void *env;
    int rows;
    training_row *row; /* the owner's */
} trainings;

/* A training's folder: RUN_DIR/NAME-SEED, with + for blanks and slashes of the name. */
void trainings_folder(const training_row *r, int64_t seed, const char *run_dir,
                      char path[TRAININGS_PATH]);

/* Trains what is not finished, seed by seed, and reads the results. False with the reason in why;
 * true with tp_stop_signal() set: stopped. */
bool trainings_run(trainings *t, const char *run_dir, int64_t seeds, char *why, size_t size);
void trainings_free(trainings *t); /* the results of the rows */

/* ---- figures.c ---- */

/* Mean and sample standard deviation over the seeds of the member at an offset; a deviation of
 * fewer than two is NaN. */
double training_mean(const training_row *r, size_t at);
double training_deviation(const training_row *r, size_t at);
#define TRAINING_MEAN(r, member)      training_mean(r, offsetof(training, member))
#define TRAINING_DEVIATION(r, member) training_deviation(r, offsetof(training, member))

/* Writes one JSON object per training and line to RUN_DIR/table.jsonl, and also to `also` unless
 * that is NULL. False with the reason in why. */
bool trainings_write(const trainings *t, const char *run_dir, FILE *also, char *why, size_t size);

/* Plots the validations' score, averaged over the seeds, over the member of training_point at an
 * offset. Rows without a validation are left out. */
typedef struct trainings_picture {
    const char *title, *note, *across, *up;
    size_t x;
} trainings_picture;
bool trainings_draw(const trainings *t, const trainings_picture *p, const char *path, char *why,
                    size_t size);

#endif
