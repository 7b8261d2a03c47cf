/* support_enwik8.h - the program enwik8 as a user runs it, in a folder of its own with a small
 * made-up text. */
#ifndef TP_SUPPORT_ENWIK8_H
#define TP_SUPPORT_ENWIK8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A model whose updates take about a millisecond. */
#define SMALL                                                                                      \
    "--threads 1 --layers 2 --dim 32 --hidden 48 --heads 2 --chunk 8 --window 16 --tokens 32 "     \
    "--mem-len 32 --batch 2 --warmup 4 --eval-tokens 200 "

void enwik8_begin(void); /* makes the folder, with `text`, and goes there */
void enwik8_end(void);   /* removes it                                    */

/* What a command printed, and how it ended. */
extern char out[20000], errors[20000];

/* Runs `PREFIX enwik8 ARGS` through the shell; returns its exit status, -1 if a signal ended it.
 * The prefix is for variables, limits and the like. */
int enwik8_under(const char *prefix, const char *args);
int enwik8(const char *args);
void succeed(const char *args); /* asserts the status 0 */
void expect_refusal(const char *args, int status, const char *message);

/* Starts `enwik8 ARGS` (words without quotes), its output discarded. */
pid_t start(const char *args);
void await_reports(const char *log, int lines);

double bpc_printed(int64_t *tokens); /* by eval, and of how many tokens */

void slurp(const char *name, char *text, size_t size);
bool same_bytes(const char *a, const char *b);
bool same_log(const char *a, const char *b); /* but for what depends on clock and memory */
void nap(double seconds);
int64_t update_in(const char *checkpoint);

#endif
