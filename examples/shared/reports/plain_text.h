/* plain_text.h - names and paths, which may hold any bytes, in all kinds of output; text from
 * streams. */
#ifndef PLAIN_TEXT_H
#define PLAIN_TEXT_H

#include <stddef.h>
#include <stdio.h>

/* For people: control characters and non-UTF-8 bytes become \n, \t or \xHH, so that text stays on
 * one line and cannot control a terminal. Cut to size between characters. Returns buf. */
char *plain_line(const char *text, char *buf, size_t size);
/* Columns of such a line, one per character. */
int plain_columns(const char *line);

/* For JSON: non-UTF-8 bytes become U+FFFD. The caller frees it; NULL: out of memory. */
char *plain_utf8(const char *text);

/* Writes a CSV field, quoted as RFC 4180 requires. An apostrophe precedes what a spreadsheet would
 * take for a formula: = + - @, a tab or a line end at the start. Other control characters and
 * non-UTF-8 bytes become \xHH, so that the file cannot control a terminal. */
void plain_csv(FILE *out, const char *text);

/* Makes part of a file name: keeps ASCII letters and digits, turns the rest into single dashes,
 * cuts to size. Returns buf, which is never empty. */
char *plain_file_name(const char *text, char *buf, size_t size);

/* Reads a whole stream and appends a zero. The caller frees it; NULL: out of memory. ferror reports
 * whether the stream failed. */
char *plain_read(FILE *in, size_t *n);

#endif
