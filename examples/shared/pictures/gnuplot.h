/* gnuplot.h - a gnuplot process that draws one picture after another. */
#ifndef GNUPLOT_H
#define GNUPLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

/* Initialise to { 0 }; the process starts with the first picture. */
typedef struct gnuplot {
    pid_t pid;            /* 0: no process */
    int channel;          /* socket: the process's standard input and output */
    FILE *drawn, *errors; /* unnamed files: the picture, standard error */
} gnuplot;

/* Runs a script, which must draw to GNUPLOT_OUTPUT and end with a newline. Returns the picture's
 * bytes, which the caller frees. False with the reason in why; the next call starts a new
 * process. */
#define GNUPLOT_OUTPUT "/dev/fd/3"
bool gnuplot_run(gnuplot *g, const char *script, size_t n, char **bytes, size_t *size, char *why,
                 size_t room);

/* Ends the process, if any, and resets g to { 0 }. */
void gnuplot_end(gnuplot *g);

#endif
