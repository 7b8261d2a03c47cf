/* log.h - log.jsonl: one JSON object per line, one line per report. */
#ifndef TP_LOG_H
#define TP_LOG_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct tp_run_log {
    int fd; /* -1: not open */
    char path[4200];
    json_t *last;    /* the last report kept when the log was opened, or NULL */
    int64_t damaged; /* lines that were no whole reports, and were dropped then */
    char why[6000];  /* empty unless it failed */
} tp_run_log;

/* Opens the log for reports after step `keep`. Reports up to it are kept; later ones, of a run that
 * was killed after its last checkpoint, and a truncated line are dropped. */
bool tp__log_open(tp_run_log *L, const char *path, int64_t keep);

/* A number of the last report that was kept; 0 if there is none. */
double tp__log_last(const tp_run_log *L, const char *key);

/* Appends the object, which must have a "step", in one write. Takes ownership of it. */
bool tp__log_write(tp_run_log *L, json_t *object);
void tp__log_close(tp_run_log *L);

/* A JSON number; null for NaN and infinity, which JSON lacks. */
json_t *tp__log_number(double x);

#endif
