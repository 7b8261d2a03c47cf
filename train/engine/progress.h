/* progress.h - output of a program while it trains: on a terminal one line that is redrawn,
 * elsewhere one line per report. */
#ifndef TP_PROGRESS_H
#define TP_PROGRESS_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tp_progress {
    bool silent;          /* prints nothing, because another process does  */
    bool terminal, shown; /* shown: an unfinished line is on the terminal */
    int64_t first, last;  /* steps                                        */
    double began, drawn, limit;
} tp_progress;

/* "12:05", "3:20:00", "2d07h". */
void tp__print_time(char *text, size_t size, double seconds);

/* Call before steps first+1 .. last; limit > 0: the run ends after that many seconds. */
void tp__progress_start(tp_progress *p, int64_t first, int64_t last, double limit, bool silent);

/* After a step: "step 3/10  (what)  ETA 12:05". On a terminal the line is redrawn a few times a
 * second; elsewhere only a report prints. */
void tp__progress_step(tp_progress *p, int64_t step, bool report, const char *what);

/* Prints a message on its own line, above the progress line. */
void tp__progress_say(tp_progress *p, const char *fmt, va_list ap);
void tp__progress_end(tp_progress *p);

#endif
