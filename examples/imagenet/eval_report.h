/* eval_report.h - what `imagenet eval` prints: loss and accuracy, and those of each class. */
#ifndef EVAL_REPORT_H
#define EVAL_REPORT_H

#include "names/class_names.h"
#include "predictions.h"
#include "reports/calibration.h"
#include "score.h"

typedef struct eval_report {
    const score *v;
    const class_names *names;
    int64_t classes;
    double seconds;
    tp_corrupt corrupt; /* how the images were corrupted */
    int severity;
    const calibration_result *calibration; /* NULL: not asked for */
    bool by_class, stopped;                /* stopped: by a signal, before the last image */
} eval_report;

/* Prints it as text, or as a line of JSON. False without memory. */
bool eval_report_print(FILE *out, output_format format, const eval_report *r);

#endif
