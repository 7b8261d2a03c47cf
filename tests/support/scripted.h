/* scripted.h - a small training program whose validations have scripted scores. */
#ifndef TP_SUPPORT_SCRIPTED_H
#define TP_SUPPORT_SCRIPTED_H

#include <tapegrad/train.h>

/* Epochs have two updates; scores are "points", lower ones better unless a test changes that. */
extern tp_training scripted;

enum { SCRIPTED_SCORES = 12 };
extern int64_t scripted_signal;     /* the update in whose validation a SIGTERM comes; 0: none */
extern char scripted_output[20000]; /* of the last run */

/* The scores of the validations after each epoch; the last one repeats. */
void scripted_scores(const double *score, int n);

/* Its parameter "w" [64]. */
tp_tensor scripted_weights(const tp_run *R);

/* Creates a folder, changes to it, and restores what tests may have changed. */
void scripted_begin(void);
void scripted_end(void); /* removes the folder */

/* Runs it with these flags in a process of its own, where a signal is not remembered for the next
 * run. Expects the exit status and a text in the output. */
void scripted_run(const char *flags, int status, const char *text);

/* Expects a metadatum of a checkpoint; NULL: it is missing. */
void expect_meta(const char *path, const char *key, const char *value);

#endif
