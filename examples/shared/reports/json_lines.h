/* json_lines.h - JSON objects, printed one per line or written to a file. */
#ifndef JSON_LINES_H
#define JSON_LINES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

/* A string; non-UTF-8 bytes become U+FFFD. NULL: out of memory. */
json_t *text_as_json(const char *text);
/* A number; null for NaN and infinities, which JSON lacks. NULL: out of memory. */
json_t *number_as_json(double x);

/* Prints and releases a line. False if NULL or out of memory. */
bool print_json_line(FILE *out, json_t *line);

/* Replaces a file by a value in this form (json_dumps), and releases the value. False with the
 * reason in why; NULL: out of memory. */
bool json_replace(const char *path, json_t *all, size_t flags, char *why, size_t size);

#endif
