/* log.h - log.jsonl: one JSON object a line, one line a report. */
#ifndef LOG_H
#define LOG_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct run_log {
    int fd; /* -1: not open */
    char path[4200];
    json_t *last;   /* the last report that stayed when the log was opened, or NULL */
    char why[4600]; /* empty while all is well */
} run_log;

/* Opens the log for reports after step `keep`: earlier ones stay, later ones (of a run that was
 * killed after its last checkpoint) go, and so does a line cut short. */
bool log_open(run_log *L, const char *path, int64_t keep);

/* A number of the last report that stayed; 0 if there is none. */
double log_last(const run_log *L, const char *key);

/* Appends the object, which must have a "step", in one write. Takes it over. */
bool log_write(run_log *L, json_t *object);
void log_close(run_log *L);

/* A JSON number; null where JSON has none (NaN, infinity). */
json_t *log_number(double x);

#endif
