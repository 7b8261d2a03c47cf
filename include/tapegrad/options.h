/* options.h - the flags of a program as one table, used to parse, document, store and compare them
 * (train library).
 *
 * Settings are a plain struct, and each row of the table describes one of its members. Rows are
 * written with the macros below:
 *
 *     static const tp_option options[] = {
 *         TP_HEADING("MODEL"),
 *         TP_INT("layers", settings, layers, 1, 128, TP_SAVED, "Layers."),
 *         TP_ROWS(tp_machine_options),
 *         { 0 },
 *     }; */
#ifndef TAPEGRAD_OPTIONS_H
#define TAPEGRAD_OPTIONS_H

#include <stdio.h>

#include <tapegrad/file.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tp_option_kind {
    TP_OPTION_END,     /* the last row */
    TP_OPTION_HEADING, /* name is a heading of the help */
    TP_OPTION_ROWS,    /* the rows of another table, except those with names used before */
    TP_OPTION_MADE,    /* the same for the table that a function makes */
    TP_OPTION_BOOL,    /* bool: --name and --no-name */
    TP_OPTION_INT,     /* int64_t */
    TP_OPTION_NUM,     /* double */
    TP_OPTION_TEXT,    /* char *, owned by the settings; NULL: not given */
    TP_OPTION_CHOICE,  /* int: position in value, "one|two|three" */
    TP_OPTION_WORDS,   /* tp_words: arguments that are not flags */
    TP_OPTION_HELP     /* a flag of every command, "--help"; in no table */
} tp_option_kind;

/* Arguments that are not flags; the strings belong to argv. */
typedef struct tp_words {
    int n;
    char **at;
} tp_words;

/* Tags: what a row means for checkpoints. */
enum {
    TP_SAVED = 1,  /* part of a training checkpoint; a resumed run keeps it */
    TP_FREE = 2,   /* saved, but a resumed run may change it */
    TP_WEIGHTS = 4 /* saved, and determines what weights mean: --init requires it to agree */
};

typedef struct tp_option {
    const char *name; /* without dashes */
    tp_option_kind kind;
    unsigned tags;
    size_t at;       /* offsetof(settings, member) */
    double min, max; /* TP_OPTION_INT, TP_OPTION_NUM */
    /* its name in the help, or the choices. A shell completes names that begin with FILE or DIR,
     * and arguments that are not flags, as paths */
    const char *value;
    const char *help; /* sentences; the help adds range and default */
    const struct tp_option *rows;
    const struct tp_option *(*make)(void); /* may make more rows later, but moves none */
    /* usual values, for shell completion; NULL past the last. May be NULL */
    const char *(*known)(int i);
} tp_option;

#define TP_BIG 9.0e18 /* max: no upper bound worth printing */
enum { TP_MAX_OPTIONS = 192 };

/* clang-format off */
#define TP_HEADING(text)   { .name = text, .kind = TP_OPTION_HEADING }
#define TP_ROWS(table)     { .name = "", .kind = TP_OPTION_ROWS, .rows = table }
#define TP_ROWS_BY(f)      { .name = "", .kind = TP_OPTION_MADE, .make = f }
#define TP_FLAG(flag, S, member, tag, text) \
    { .name = flag, .kind = TP_OPTION_BOOL, .tags = tag, .at = offsetof(S, member), .help = text }
#define TP_INT(flag, S, member, lo, hi, tag, text) \
    { .name = flag, .kind = TP_OPTION_INT, .tags = tag, .at = offsetof(S, member), .min = lo, \
      .max = hi, .value = "N", .help = text }
#define TP_NUM(flag, S, member, lo, hi, tag, text) \
    { .name = flag, .kind = TP_OPTION_NUM, .tags = tag, .at = offsetof(S, member), .min = lo, \
      .max = hi, .value = "X", .help = text }
#define TP_STRING_OF(flag, S, member, what, names, tag, text) \
    { .name = flag, .kind = TP_OPTION_TEXT, .tags = tag, .at = offsetof(S, member), .value = what, \
      .help = text, .known = names }
#define TP_STRING(flag, S, member, what, tag, text) \
    TP_STRING_OF(flag, S, member, what, NULL, tag, text)
#define TP_CHOICE(flag, S, member, words, tag, text) \
    { .name = flag, .kind = TP_OPTION_CHOICE, .tags = tag, .at = offsetof(S, member), \
      .value = words, .help = text }
#define TP_ARGUMENTS_OF(S, member, what, names, text) \
    { .name = "", .kind = TP_OPTION_WORDS, .at = offsetof(S, member), .value = what, .help = text, \
      .known = names }
#define TP_ARGUMENTS(S, member, what, text) TP_ARGUMENTS_OF(S, member, what, NULL, text)
/* clang-format on */

/* A command of a program: its manual and its table. */
typedef struct tp_command {
    const char *name;     /* "enwik8 train" */
    const char *summary;  /* a line without a full stop */
    const char *synopsis; /* follows the name in the help; NULL: "[flag ...]" */
    const char *about;    /* paragraphs, which the help wraps */
    const tp_option *table;
    const char *more; /* further sections, printed verbatim; may be NULL */
    /* False with the reason in why if flags contradict each other. May be NULL. Used by
     * tp_command_main; a tp_training has settings_of instead. */
    bool (*check)(const void *settings, char *why, size_t size);
} tp_command;

/* A command of a program with several; a table of rows ends with one without a name. run receives
 * the arguments after the command's name and returns the exit status. */
typedef struct tp_subcommand {
    const char *name, *what;
    int (*run)(int argc, char **argv);
} tp_subcommand;

/* The main function of such a program: runs the command named by argv[1], or handles --help,
 * --version, --man, --completion and --commands. about: a line without a full stop. Returns the
 * exit status. */
TP_API int tp_subcommands_main(const char *program, const char *about, const tp_subcommand *rows,
                               int argc, char **argv);

/* The names of the flags given on a command line. */
typedef struct tp_given_flags {
    int n;
    const char *name[TP_MAX_OPTIONS];
} tp_given_flags;

/* True if the flag of that name was given. */
TP_API bool tp_was_given(const tp_given_flags *g, const char *name);

enum { TP_PARSED = -1 }; /* the program continues */

/* Parses argv[0..argc-1], flags only, into settings; given may be NULL. Returns TP_PARSED or an
 * exit status: 0 after printing what --help, --version, --man or --completion ask for, 2 after a
 * message on stderr. */
TP_API int tp_options_parse(const tp_command *c, int argc, char **argv, void *settings,
                            tp_given_flags *given);

/* Prints "command: why" on stderr, in one line as tp_plain_at writes it: the reason may have a name
 * from a file or an argument, which must not command a terminal. */
TP_API void tp_command_complain(const char *command, const char *why);

/* The main function of a command: parses into settings, which hold the defaults, checks and runs,
 * reports a failure on stderr, and frees the texts of the settings. run: false with the reason in
 * why, or "" if it was reported already. Refuses to run in several processes of a launcher. Returns
 * the exit status: 1 failed, 2 bad flags, 128 + signal if a signal ended it (tp_catch_signals). */
TP_API int tp_command_main(const tp_command *c, int argc, char **argv, void *settings,
                           bool (*run)(void *settings, char *why, size_t size));

/* Prints the manual with the given defaults. */
TP_API void tp_options_help(const tp_command *c, const void *defaults, FILE *out);

/* Lists the rows of a table with those of nested tables in place. Returns their number. */
TP_API int tp_options_list(const tp_option *table, const tp_option *row[TP_MAX_OPTIONS]);
TP_API const tp_option *tp_option_find(const tp_option *table, const char *name); /* or NULL */

/* Converts one value from and to text. set: false with the reason in why. get: truncated to
 * size. */
TP_API bool tp_option_set(const tp_option *o, void *settings, const char *text, char *why,
                          size_t size);
TP_API void tp_option_get(const tp_option *o, const void *settings, char *text, size_t size);

/* tp_options_copy duplicates the texts of settings that were copied by assignment; tp_options_free
 * frees them. */
TP_API void tp_options_copy(const tp_option *table, void *to, const void *from);
TP_API void tp_options_free(const tp_option *table, void *settings);

/* Writes the rows with tags as metadata "train.NAME" of a checkpoint and reads them. A setting that
 * an older file does not contain keeps its value. read: false with the reason in why. */
TP_API void tp_options_write(const tp_option *table, const void *settings, tp_writer *W);
TP_API bool tp_options_read(const tp_option *table, void *settings, const tp_file *F, char *why,
                            size_t size);

/* Lists differing rows with one of the tags, "--layers 4 (checkpoint: 12), ..."; if given is not
 * NULL, only those given on the command line. False if there are none. */
TP_API bool tp_options_differ(const tp_option *table, const void *a, const void *b, unsigned tags,
                              const tp_given_flags *given, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
