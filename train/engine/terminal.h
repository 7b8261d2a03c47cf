/* terminal.h - terminal features of an output stream. */
#ifndef TP_TERMINAL_H
#define TP_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

/* Is it a terminal that can redraw a line? Not with TERM=dumb. */
bool tp__is_terminal(FILE *out);

/* Is it such a terminal, and are colours wanted? Not with NO_COLOR (https://no-color.org). */
bool tp__has_colours(FILE *out);

/* Prints a text, e.g. with file names, so that it cannot control a terminal (tp_plain_at). */
void tp__print_plain(FILE *out, const char *text);

int tp__columns(FILE *out); /* a terminal's width; 80 if unknown */

#endif
