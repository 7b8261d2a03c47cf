/* predictions.h - the most likely classes of an image, for people or programs. */
#ifndef PREDICTIONS_H
#define PREDICTIONS_H

#include "names/class_names.h"

/* Values of --format, in the order of its choices. */
typedef enum output_format { FORMAT_TABLE, FORMAT_JSON, FORMAT_CSV } output_format;

/* A class and its probability. */
typedef struct prediction {
    int32_t label;
    double p;
} prediction;

enum { PREDICTIONS_MOST = 1000 };

/* An image's results. */
typedef struct predicted {
    const char *path;
    const prediction *best; /* [n], best first */
    int n;
    const float *logits; /* [classes], for JSON; NULL: not printed */
    int64_t classes;
} predicted;

/* The n likeliest classes, best first, 1 <= n <= classes, PREDICTIONS_MOST; logits [classes]. False
 * on NaN or infinity; minus infinity has probability 0. */
bool predictions_of(const float *logits, int64_t classes, int n, prediction *best);

/* Prints what precedes all images. */
void predictions_begin(FILE *out, output_format format);
/* Prints an image's predictions: a table, a line of JSON or n lines of CSV. False: out of
 * memory. */
bool predictions_print(FILE *out, output_format format, const class_names *names,
                       const predicted *p);

#endif
