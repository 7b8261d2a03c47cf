/* options_inner.h - shared by the files of the option tables. */
#ifndef TP_OPTIONS_INNER_H
#define TP_OPTIONS_INNER_H

#include <jansson.h>
#include <tapegrad/options.h>

/* Room for a value as text. */
enum { TP_OPTION_ROOM = 4200 };

/* Can the command line name this row? */
bool tp__option_is_flag(const tp_option *o);

/* The address of the row's value. */
void *tp__option_member(const tp_option *o, void *settings);
const void *tp__option_value(const tp_option *o, const void *settings);

/* The bounds as text: "1 to 128", "at least 1". */
void tp__option_range(const tp_option *o, char *text, size_t size);

/* The first saved text that a checkpoint cannot hold because it is not UTF-8, or NULL. */
const tp_option *tp__options_unfit(const tp_option *table, const void *settings);

/* All flags as one JSON object: config.json. */
json_t *tp__options_json(const tp_option *table, const void *settings);

/* Prints where the manual is, after a message on a wrong command line. Returns the exit status. */
int tp__bad_usage(const char *command);

void tp__print_version(const char *command);

/* Call first in a main function: opens /dev/null for closed standard streams. Otherwise a file that
 * the program opens could get such a descriptor, and messages would be written into the file. */
void tp__open_streams(void);

#endif
