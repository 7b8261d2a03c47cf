/* options_inner.h - shared by the option table files. */
#ifndef TP_OPTIONS_INNER_H
#define TP_OPTIONS_INNER_H

#include <jansson.h>
#include <tapegrad/options.h>

/* Room for a value as text. */
enum { TP_OPTION_ROOM = 4200 };

/* Does this row set a member of the settings by a flag? */
bool tp__option_is_flag(const tp_option *o);

/* The rows of tp_options_list, then --help and the like, which every command has. */
enum { TP_MAX_ROWS = TP_MAX_OPTIONS + 8 };
int tp__options_all(const tp_option *table, const tp_option *row[TP_MAX_ROWS]);

/* The help of a row with its range and default. */
void tp__option_help(const tp_option *o, const void *defaults, char *text, size_t size);

/* The address of the row's value. */
void *tp__option_member(const tp_option *o, void *settings);
const void *tp__option_value(const tp_option *o, const void *settings);

/* The bounds as text: "1 to 128", "at least 1". */
void tp__option_range(const tp_option *o, char *text, size_t size);

/* The first saved text that a checkpoint cannot hold because it is not UTF-8, or NULL. */
const tp_option *tp__options_unfit(const tp_option *table, const void *settings);

/* tp_option_set, but an empty text is a text that is not given, as in checkpoints. */
bool tp__option_restore(const tp_option *o, void *settings, const char *value, char *why,
                        size_t size);

/* The object in a config.json; NULL with the reason in why, which begins with the path. why may be
 * NULL. */
json_t *tp__config_read(const char *path, char *why, size_t size);

/* Reads the settings of a config.json of `program` over those of a table. has: the names of the
 * rows that it sets; without --resume, --overwrite, --plan, --lr-range and --config.
 * by_hand: a person wrote it, no run. False with the reason in why, which begins with the path. */
bool tp__settings_read(const tp_option *table, const char *program, const char *path,
                       void *settings, tp_given_flags *has, bool *by_hand, char *why, size_t size);

/* All flags as one JSON object: config.json. */
json_t *tp__options_json(const tp_option *table, const void *settings);

/* Points to the manual after a usage error. Returns the exit status. */
int tp__bad_usage(const char *command);

void tp__print_version(const char *command);

/* Did all output reach standard output? Returns the exit status: 0, or 1 after a message. */
int tp__printed(const char *command);

/* ---- man pages and completion scripts ---- */

void tp__man_of_command(const tp_command *c, const void *defaults, FILE *out);
void tp__man_of_program(const char *program, const char *about, const tp_subcommand *rows,
                        FILE *out);

/* A command whose name has a blank ("enwik8 train") is part of a program. Its script is then
 * part of the program's, which tp__complete_program prints around it; false after a command's
 * message. */
typedef enum tp_shell { TP_BASH, TP_ZSH } tp_shell;
void tp__complete_command(const tp_command *c, tp_shell shell, FILE *out);
bool tp__complete_program(const char *program, const tp_subcommand *rows, tp_shell shell,
                          FILE *out);

/* If argv[i] is --completion, takes the shell from it or from argv[i + 1]. Returns TP_PARSED for
 * any other argument, 0, or 2 after a message. */
int tp__shell_of(const char *command, int argc, char **argv, int i, tp_shell *shell);

/* Call first in a main function. Opens /dev/null for closed standard streams: otherwise a file
 * opened later could get such a descriptor, and messages would go into it. Makes a write beyond the
 * file size limit fail instead of killing the process. */
void tp__prepare_process(void);

#endif
