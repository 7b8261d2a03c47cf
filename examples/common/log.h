/* log.h - log.jsonl: one JSON object a line, one line a report. */
#ifndef LOG_H
#define LOG_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct run_log {
    int fd; /* -1: not open */
    char path[4200];
    char why[4600]; /* empty while all is well */
} run_log;

/* Opens the log for reports after step `keep`: earlier ones stay, later ones (of a run that was
 * killed after its last checkpoint) go, and so does a line cut short. */
bool log_open(run_log *L, const char *path, int64_t keep);

/* Appends the object, which must have a "step", in one write. Takes it over. */
bool log_write(run_log *L, json_t *object);
void log_close(run_log *L);

/* A JSON number; null where JSON has none (NaN, infinity). */
json_t *log_number(double x);

#endif
