/* together.h - several processes that share a batch, as seen by a kernel whose result depends on
 * all rows: batch norms in training. */
#ifndef TP_TOGETHER_H
#define TP_TOGETHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The processes; all zero: this one is alone. */
typedef struct tp_together {
    int ranks;
    void *env;
    /* all[rank] = the n bytes `mine` of every process; false: failed */
    bool (*gather)(void *env, const void *mine, size_t n, void *all);
} tp_together;

/* x [1 + 2 C]: the number of rows, the means of C columns, and their sums of squared deviations.
 * Becomes those of all rows, merged in the order of the ranks. False: failed. */
bool tp__together_moments(const tp_together *t, int64_t C, double *x);

/* Replaces x [n] by the sums over the processes, in the order of the ranks. False: failed. */
bool tp__together_sum(const tp_together *t, int64_t n, double *x);

#endif
