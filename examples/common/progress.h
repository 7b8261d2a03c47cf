/* progress.h - what a program says while it trains: one line that is rewritten on a terminal, one
 * line a report elsewhere. */
#ifndef PROGRESS_H
#define PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct progress {
    bool terminal, shown; /* shown: an unfinished line is on the terminal */
    int64_t first, last;  /* steps                                        */
    double began, drawn, limit;
} progress;

double seconds_now(void); /* of a clock that never jumps */

/* "12:05", "3:20:00", "2d07h". */
void print_time(char *text, size_t size, double seconds);

/* Steps first+1 .. last follow; limit > 0: no more than that many seconds. */
void progress_start(progress *p, int64_t first, int64_t last, double limit);

/* After a step: "step 3/10  (what)  ETA 12:05". On a terminal the line is redrawn a few times a
 * second; elsewhere only a report prints. */
void progress_step(progress *p, int64_t step, bool report, const char *what);

/* A message on a line of its own, above the progress line. */
void progress_say(progress *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void progress_end(progress *p);

#endif
