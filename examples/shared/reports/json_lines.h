/* json_lines.h - JSON objects, printed one per line. */
#ifndef JSON_LINES_H
#define JSON_LINES_H

#include <jansson.h>
#include <stdbool.h>

/* A string; non-UTF-8 bytes become U+FFFD. NULL: out of memory. */
json_t *text_as_json(const char *text);
/* A number; null for NaN and infinities, which JSON lacks. NULL: out of memory. */
json_t *number_as_json(double x);

/* Prints and releases a line. False if NULL or out of memory. */
bool print_json_line(FILE *out, json_t *line);

#endif
