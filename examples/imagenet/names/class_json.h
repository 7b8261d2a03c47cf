/* class_json.h - a class as JSON. */
#ifndef CLASS_JSON_H
#define CLASS_JSON_H

#include "class_names.h"
#include "reports/json_lines.h"

/* {"class": i, "name": "parachute", "wnid": "n03888257"}, without wnid if it has none. NULL: out of
 * memory. */
json_t *class_as_json(const class_names *n, int64_t i);

#endif
