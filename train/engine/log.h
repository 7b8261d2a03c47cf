/* log.h - log.jsonl: one JSON object a line, one line a report. */
#ifndef TP_LOG_H
#define TP_LOG_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct tp_run_log {
    int fd; /* -1: not open */
    char path[4200];
    json_t *last;   /* the last report that stayed when the log was opened, or NULL */
    char why[6000]; /* empty while all is well */
} tp_run_log;

/* Opens the log for reports after step `keep`: earlier ones stay, later ones (of a run that was
 * killed after its last checkpoint) go, and so does a line cut short. */
bool tp__log_open(tp_run_log *L, const char *path, int64_t keep);

/* A number of the last report that stayed; 0 if there is none. */
double tp__log_last(const tp_run_log *L, const char *key);

/* Appends the object, which must have a "step", in one write. Takes it over. */
bool tp__log_write(tp_run_log *L, json_t *object);
void tp__log_close(tp_run_log *L);

/* A JSON number; null where JSON has none (NaN, infinity). */
json_t *tp__log_number(double x);

#endif
