/* runs.h - a table of the training programs, for tests that stop, resume and break their runs. */
#ifndef TP_SUPPORT_RUNS_H
#define TP_SUPPORT_RUNS_H

#include "support/program.h"

typedef struct run_kind {
    const char *command; /* "enwik8 train" */
    void (*make_data)(void);
    /* Flags but --steps and --run-dir. Updates take milliseconds, and the rate does not depend on
     * the last step, so that a run can continue after any update. */
    const char *train;
    const char *often;  /* a report and a checkpoint each update, a validation every second one; the
                           first improvement after update 2 comes by update 6 */
    const char *seldom; /* a report each update, few checkpoints, no validation */
    /* Makes data whose validation takes tenths of a second; its flags. */
    void (*make_long_data)(void);
    const char *slow_validation;
    int updates; /* number of updates in about a second, checkpoints included */
    int files;   /* number of files in the folder of a complete run */
} run_kind;

extern const run_kind run_kinds[];
extern const int run_kind_count;

/* `gpt train` with adaptations, whose folder has a file more. It is not in the table: its engine is
 * that of the others. */
extern const run_kind run_of_adaptations;

/* With the environment variable PROGRAM, tests skip programs whose command does not contain it. */
bool run_kind_wanted(const run_kind *k);

/* True if this program runs case i of a list: every third one, beginning one later than the program
 * before it, and with the address sanitizer another third. What a case breaks is in the engine,
 * which all programs share; three of them run each case in one build, three others in the other. */
bool run_kind_takes(const run_kind *k, int i);

/* Makes a folder with the program's data and changes to it; program_end removes it. */
void run_kind_begin(const run_kind *k);

/* Resumes `run` for 3 more updates and expects the bits and the log of an uninterrupted run. FLAGS
 * are the flags of both runs in addition to k->train. */
void expect_resumed(const run_kind *k, const char *flags, const char *name);

/* True if logs are equal but for values that depend on clock and memory. */
bool same_log(const char *a, const char *b);

#endif
