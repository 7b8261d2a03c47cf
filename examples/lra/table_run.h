/* table_run.h - one training of `lra table`: a process of its own, and what its folder tells afterwards. */
#ifndef TABLE_RUN_H
#define TABLE_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TABLE_PATH = 4400, TABLE_WORDS = 200 };

/* Flags for `lra train`; the texts are copied into room. */
typedef struct train_flags {
    int n;
    char *word[TABLE_WORDS];
    size_t used;
    char room[16384];
    bool full; /* something did not fit */
} train_flags;
void train_flags_add(train_flags *f, const char *name, const char *value); /* --name value */
void train_flags_split(train_flags *f, const char *text);                  /* at blanks    */

/* Runs `lra train` with them in a process of its own, which prints on standard error and gets the first signal that
 * this one receives, and waits. Returns its exit status; -1: it could not be started, or was killed, for the reason in
 * why. */
int train_apart(train_flags *f, char *why, size_t size);

/* A validation. */
typedef struct table_point {
    double seconds, accuracy;
} table_point;

/* What a finished run's folder tells. */
typedef struct table_run {
    double accuracy, official_accuracy; /* percent of the test part; of whole batches */
    double valid;                       /* the best validation's                      */
    double seconds, updates;            /* training alone                             */
    double memory, process;             /* peak bytes: of the device, of the process  */
    double parameters, gflops;
    int points;
    table_point *point; /* in the order of training */
} table_run;

/* Has the folder a finished run (test.json)? An unfinished one (last.safetensors)? */
bool table_run_finished(const char *folder);
bool table_run_begun(const char *folder);

/* Reads a finished run, or free it. False with the reason in why. */
bool table_run_read(table_run *r, const char *folder, char *why, size_t size);
void table_run_free(table_run *r);

/* Seconds that an update took in a run, without its first one. False with the reason in why. */
bool table_run_speed(const char *folder, double *seconds, char *why, size_t size);

#endif
