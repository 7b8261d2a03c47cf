/* robust_report.h - what `imagenet robust` prints and draws: top-1 by corruption and severity. */
#ifndef ROBUST_REPORT_H
#define ROBUST_REPORT_H

#include <stdio.h>

#include "corrupt_list.h"
#include "predictions.h"

/* What was measured of a model, in percent; NAN where it was not. */
typedef struct robustness {
    char model[600];
    int64_t images, skipped;
    bool stopped; /* by a signal: not all that was asked for was measured */
    double clean, top1[TP_NCORRUPT][TP_CORRUPT_SEVERITIES];
} robustness;

/* Means over the cells that were measured: of a corruption, of a severity (from 1), of all; NAN: none,
 * or the measurement was stopped. */
double robust_mean_of(const robustness *r, int corruption);
double robust_mean_at(const robustness *r, int severity);
double robust_mean(const robustness *r);

/* Prints one model as a table or as a line of JSON; false without memory. The last one prints a table of
 * several models. */
bool robust_print(FILE *out, output_format format, const robustness *r);
void robust_print_all(FILE *out, const robustness *r, int n);

/* Draws n models into a file: the mean over the corruptions, and each of them, by severity. images: what they
 * are. False with the reason in why. */
bool robust_draw(const robustness *r, int n, const corrupt_list *l, const char *images,
                 const char *path, char *why, size_t size);

#endif
