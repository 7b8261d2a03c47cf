/* plain_text.h - names and paths, which may hold any bytes, in outputs of every kind; texts from streams. */
#ifndef PLAIN_TEXT_H
#define PLAIN_TEXT_H

#include <stddef.h>
#include <stdio.h>

/* For people: control characters and bytes that are not UTF-8 become \n, \t or \xHH, so that a text is one
 * line and cannot command a terminal. Cut to size between characters. Returns buf. */
char *plain_line(const char *text, char *buf, size_t size);
/* The columns that such a line takes, one a character. */
int plain_columns(const char *line);

/* For JSON: bytes that are not UTF-8 become U+FFFD. The caller frees it; NULL without memory. */
char *plain_utf8(const char *text);

/* A field of CSV, quoted where RFC 4180 asks for it. An apostrophe is put before what a spreadsheet would take for a
 * formula: a field that begins with = + - @, a tab or a line end. Other control characters and bytes that are not UTF-8
 * become \xHH, so that the file cannot command a terminal. */
void plain_csv(FILE *out, const char *text);

/* Part of a file's name: letters and digits of ASCII stay, everything else becomes single dashes. Cut to
 * size. Returns buf, which is never empty. */
char *plain_file_name(const char *text, char *buf, size_t size);

/* All bytes of a stream, and a zero after them. The caller frees it; NULL without memory. ferror tells whether the stream
 * failed. */
char *plain_read(FILE *in, size_t *n);

#endif
