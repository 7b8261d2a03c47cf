/* class_json.h - what programs print as JSON lines. */
#ifndef CLASS_JSON_H
#define CLASS_JSON_H

#include <jansson.h>

#include "class_names.h"

/* A string; bytes that are not UTF-8 become U+FFFD. NULL without memory. */
json_t *text_as_json(const char *text);
/* A number; null for what JSON cannot say: NaN and infinities. NULL without memory. */
json_t *number_as_json(double x);
/* {"class": i, "name": "parachute", "wnid": "n03888257"}, without wnid if it has none; NULL without
 * memory. */
json_t *class_as_json(const class_names *n, int64_t i);

/* Prints a line and releases it. False without memory, and for a NULL. */
bool print_json_line(FILE *out, json_t *line);

#endif
