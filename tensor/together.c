/* together.c - moments and sums over the processes that share a batch. */
#include "tensor/together.h"

#include <stdlib.h>
#include <string.h>

/* The numbers x [n] of all processes, [ranks,n], to be freed; NULL: failed. */
static double *gathered(const tp_together *t, int64_t n, const double *x)
{
    const size_t bytes = (size_t)n * sizeof *x;
    double *all = malloc((size_t)t->ranks * bytes);
    if (all && t->gather(t->env, x, bytes, all)) return all;
    free(all);
    return NULL;
}

/* Merges one process's moments into x (Chan, Golub, LeVeque 1979). */
static void merge(int64_t C, double *x, const double *own)
{
    const double before = x[0], n = before + own[0], share = n > 0 ? own[0] / n : 0;
    for (int64_t i = 0; i < C; i++) {
        double *m = &x[1 + i], *v = &x[1 + C + i];
        const double d = own[1 + i] - *m;
        *m += d * share;
        *v += own[1 + C + i] + d * d * share * before;
    }
    x[0] = n;
}

bool tp__together_moments(const tp_together *t, int64_t C, double *x)
{
    const int64_t n = 1 + 2 * C;
    double *all = gathered(t, n, x);
    if (!all) return false;
    memset(x, 0, (size_t)n * sizeof *x);
    for (int k = 0; k < t->ranks; k++) merge(C, x, all + k * n);
    free(all);
    return true;
}

bool tp__together_sum(const tp_together *t, int64_t n, double *x)
{
    double *all = gathered(t, n, x);
    if (!all) return false;
    memset(x, 0, (size_t)n * sizeof *x);
    for (int k = 0; k < t->ranks; k++)
        for (int64_t i = 0; i < n; i++) x[i] += all[k * n + i];
    free(all);
    return true;
}
