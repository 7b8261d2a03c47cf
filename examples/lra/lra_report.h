/* lra_report.h - accuracy and loss as text, as JSON and as a file. */
#ifndef LRA_REPORT_H
#define LRA_REPORT_H

#include <jansson.h>
#include <stdio.h>

#include "doc_score.h"

typedef struct lra_report {
    const doc_score *v;
    const char *part; /* "test" */
    double seconds;
    bool stopped; /* by a signal, before the last example */
} lra_report;

json_t *lra_report_json(const lra_report *r); /* NULL without memory */

/* A line of text, or of JSON. False without memory or if the stream fails. */
bool lra_report_print(FILE *out, bool json, const lra_report *r);

/* Writes the object to a file, which is replaced at once. False with the reason in why. */
bool lra_report_write(const lra_report *r, const char *path, char *why, size_t size);

#endif
