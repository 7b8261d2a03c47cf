/* options_inner.h - what the files of the option tables share. */
#ifndef TP_OPTIONS_INNER_H
#define TP_OPTIONS_INNER_H

#include <jansson.h>
#include <tapegrad/options.h>

/* Room for a value as text. */
enum { TP_OPTION_ROOM = 4200 };

/* Is it a row that a command line can name? */
bool tp__option_is_flag(const tp_option *o);

/* Where the row's value lies. */
void *tp__option_member(const tp_option *o, void *settings);
const void *tp__option_value(const tp_option *o, const void *settings);

/* The bounds as words: "1 to 128", "at least 1". */
void tp__option_range(const tp_option *o, char *text, size_t size);

/* A text that a checkpoint is to hold but cannot, as it is not UTF-8; NULL: there is none. */
const tp_option *tp__options_unfit(const tp_option *table, const void *settings);

/* All flags as one JSON object: config.json. */
json_t *tp__options_json(const tp_option *table, const void *settings);

/* The first thing in a main function: standard streams that are closed become /dev/null. The files
 * that a program opens would have their numbers, and its messages would go into them. */
void tp__open_streams(void);

#endif
