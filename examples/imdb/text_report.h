/* text_report.h - what `imdb eval` says: accuracy and loss, by length of the texts, confusions, calibration. */
#ifndef TEXT_REPORT_H
#define TEXT_REPORT_H

#include <jansson.h>
#include <stdio.h>

#include "reports/calibration.h"
#include "text_data.h"
#include "text_score.h"

/* One text: its length in tokens before it was cut. */
typedef struct text_result {
    int64_t length;
    double loss;
    bool right, scored; /* scored: false if a signal came before */
} text_result;

/* Texts of about the same length. */
typedef struct length_group {
    int64_t shortest, longest, count, right;
    double loss; /* sum */
} length_group;

enum { MOST_GROUPS = 100 };

/* Divides n texts, which it sorts, into groups of equally many by length. Returns how many there are: `groups`, or
 * fewer if there are fewer texts. */
int length_groups(text_result *r, int64_t n, int groups, length_group out[MOST_GROUPS]);

/* Standard error of an accuracy in percent. */
double accuracy_error(int64_t right, int64_t count);

typedef struct text_report {
    const text_score *v;
    const class_list *classes;
    const calibration_result *c;
    const length_group *group;
    int groups;
    const char *part; /* "test" */
    double seconds;
    bool stopped; /* by a signal, before the last text */
} text_report;

/* Text for people, or a JSON object. False without memory or if the stream fails. */
bool text_report_print(FILE *out, bool json, const text_report *r);

#endif
