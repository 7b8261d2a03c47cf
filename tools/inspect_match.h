/* inspect_match.h - which weights of a model are in a file, for tp-inspect. */
#ifndef INSPECT_MATCH_H
#define INSPECT_MATCH_H

#include <stdbool.h>

/* Prints which weights of the model are in the file, and every difference. False, after a message on
 * standard error if the file or the model is at fault, unless all can be loaded. */
bool inspect_match(const char *model, const char *path);

/* Prints the models of the table whose weights can all be loaded from the file. False if none. */
bool inspect_match_any(const char *path);

#endif
