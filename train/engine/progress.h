/* progress.h - progress output: on a terminal a line that is redrawn, elsewhere one per report. */
#ifndef TP_PROGRESS_H
#define TP_PROGRESS_H

#include <stdarg.h>
#include <tapegrad/train.h>

typedef struct tp_progress {
    bool silent;    /* prints nothing, because another process does */
    tp_ticker line; /* on stdout */
    int64_t first;
    double limit;
} tp_progress;

/* A line's content. */
typedef struct tp_progress_text {
    const char *unit, *text; /* text: fields separated by two blanks */
    int64_t done, last;
    double left; /* seconds; NaN: unknown */
} tp_progress_text;

/* "12:05", "3:20:00", "2d07h". */
void tp__print_time(char *text, size_t size, double seconds);

/* "step 3/10  TEXT  ETA 12:05". With columns > 0, adds a bar before the text and stays below that
 * width: the last fields are dropped, then the bar. colour: colours the bar. */
void tp__progress_print(char *line, size_t size, const tp_progress_text *what, int columns,
                        bool colour);

/* Call before steps first+1 .. last; limit > 0: the run ends after that many seconds. */
void tp__progress_start(tp_progress *p, int64_t first, int64_t last, double limit, bool silent);

/* Call after a step. A terminal's line is redrawn a few times a second; else only reports print. */
void tp__progress_step(tp_progress *p, int64_t step, bool report, const char *what);

/* Prints a message on its own line, above the progress line. */
void tp__progress_say(tp_progress *p, const char *fmt, va_list ap);
void tp__progress_end(tp_progress *p);

#endif
