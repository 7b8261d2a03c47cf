/* support_runs.h - the training programs as one table, for tests of stopping, resuming and breaking
 * a run that hold for all of them. */
#ifndef TP_SUPPORT_RUNS_H
#define TP_SUPPORT_RUNS_H

#include "support_program.h"

typedef struct run_kind {
    const char *command; /* "enwik8 train" */
    void (*make_data)(void);
    /* The flags of a run whose updates take milliseconds and whose rate does not depend on the last
     * step, so that a run may continue after any update; without --steps and --run-dir. */
    const char *train;
    const char *often;  /* a report and a checkpoint each update, a validation every second one; the
                           first improvement after update 2 comes by update 6 */
    const char *seldom; /* a report each update, few checkpoints, no validation */
    /* Data whose validation takes a few tenths of a second, and the flags for it. */
    void (*make_long_data)(void);
    const char *slow_validation;
    int updates; /* of a run that takes about a second, checkpoints included */
    int files;   /* of a run's folder when it is done */
} run_kind;

extern const run_kind run_kinds[];
extern const int run_kind_count;

/* Makes a folder with the program's data and goes there; program_end removes it. */
void run_kind_begin(const run_kind *k);

/* Resumes `run` for 3 more updates, and expects the bits and the log of a run that never stopped.
 * FLAGS: those that both were begun with, beside k->train. */
void expect_resumed(const run_kind *k, const char *flags, const char *name);

/* Are two logs equal except for what depends on clock and memory? */
bool same_log(const char *a, const char *b);

#endif
