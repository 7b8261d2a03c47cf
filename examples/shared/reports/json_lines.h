/* json_lines.h - what programs print as JSON, one object per line. */
#ifndef JSON_LINES_H
#define JSON_LINES_H

#include <jansson.h>
#include <stdbool.h>

/* A string; bytes that are not UTF-8 become U+FFFD. NULL without memory. */
json_t *text_as_json(const char *text);
/* A number; null for what JSON cannot say: NaN and infinities. NULL without memory. */
json_t *number_as_json(double x);

/* Prints a line and releases it. False without memory, and for a NULL. */
bool print_json_line(FILE *out, json_t *line);

#endif
