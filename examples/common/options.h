/* options.h - command-line flags as one table a program, which parses, documents, prints and
 * compares them. Settings are a plain struct; a row of the table names one of its members. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <tapegrad/file.h>

typedef enum option_kind {
    OPT_END,     /* the last row                                  */
    OPT_HEADING, /* name is a heading of the help                 */
    OPT_BOOL,    /* bool: --name and --no-name                    */
    OPT_INT,     /* int64_t                                       */
    OPT_NUM,     /* double                                        */
    OPT_TEXT,    /* char *, owned by the settings; NULL: not given */
    OPT_CHOICE,  /* int: position in value, "one|two|three"       */
    OPT_WORDS    /* words: what is no flag; argv's                */
} option_kind;

typedef struct words {
    int n;
    char **at;
} words;

typedef struct option {
    const char *name; /* without dashes */
    option_kind kind;
    unsigned tags;     /* the program's own marks                   */
    size_t at;         /* offsetof(settings, member)                */
    double min, max;   /* OPT_INT, OPT_NUM                          */
    const char *value; /* how the help calls the value; the choices */
    const char *help;
} option;

#define OPT_BIG 9.0e18 /* max: no upper bound worth printing */
enum { OPT_MAX = 128 };

typedef struct program {
    const char *name;     /* "enwik8 train"               */
    const char *summary;  /* a line without a full stop   */
    const char *synopsis; /* what follows the name        */
    const char *about;    /* paragraphs, wrapped          */
    const option *table;
    const char *more; /* further sections, printed as they are; may be NULL */
} program;

enum { OPTIONS_RUN = -1 }; /* parsed: go on */

/* Reads argv[0..argc-1] into settings; given[i] (OPT_MAX of them, may be NULL) tells which rows
 * were named. Returns OPTIONS_RUN, or the exit status: 0 after --help, 2 after a message on stderr.
 */
int options_parse(const program *p, int argc, char **argv, void *settings, bool *given);

/* One value from text, and back. set: false with the reason in why. */
bool option_set(const option *o, void *settings, const char *text, char *why, size_t size);
void option_get(const option *o, const void *settings, char *text, size_t size);

void options_copy(const option *table, void *to,
                  const void *from); /* a struct assignment besides */
void options_free(const option *table, void *settings);
json_t *options_json(const option *table, const void *settings);
void options_help(const program *p, const void *defaults, FILE *out);

/* options_file.c: rows with tags in a checkpoint and back; false with the reason in why. differ:
 * "--layers 4 (checkpoint: 12), ..." for the rows with one of the tags that differ and, if `given`
 * is not NULL, were given; false if none does. */
void options_write(const option *table, const void *settings, tp_writer *W);
bool options_read(const option *table, void *settings, const tp_file *F, char *why, size_t size);
bool options_differ(const option *table, const void *a, const void *b, unsigned tags,
                    const bool *given, char *text, size_t size);

/* Flags that every example has; members of a struct `c` inside the settings type S. */
typedef struct common_settings {
    char *data, *device, *run_dir;
    int dtype; /* of tp_dtype: f32, f64, bf16 */
    int64_t threads, seed, steps, batch, checkpoint_every, eval_every, log_every;
    double lr;
    bool resume;
} common_settings;

/* clang-format off */
#define OPTION_DATA(S, tag) \
    { "data", OPT_TEXT, tag, offsetof(S, c.data), 0, 0, "FILE", \
      "The text: enwik8, text8 or any file, plain or packed with gzip, xz, zip, zstd or bzip2." }
#define OPTION_RUN_DIR(S, tag) \
    { "run-dir", OPT_TEXT, tag, offsetof(S, c.run_dir), 0, 0, "DIR", \
      "The run's folder: last.safetensors, best.safetensors, log.jsonl, config.json." }
#define OPTIONS_MACHINE(S, dtype_tag) \
    { "device", OPT_TEXT, 0, offsetof(S, c.device), 0, 0, "NAME", "cpu, cuda or cuda:1." }, \
    { "dtype", OPT_CHOICE, dtype_tag, offsetof(S, c.dtype), 0, 0, "f32|f64|bf16", \
      "What products are computed in; f64 keeps the weights in f64 too (CPU only)." }, \
    { "threads", OPT_INT, 0, offsetof(S, c.threads), 0, 1024, "N", \
      "CPU threads; 0: OMP_NUM_THREADS, or every core. Results do not depend on it." }
/* clang-format on */

#endif
