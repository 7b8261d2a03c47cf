/* program.h - runs the programs of examples/ as a user does, in a temporary folder. */
#ifndef TP_SUPPORT_PROGRAM_H
#define TP_SUPPORT_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Creates a folder and changes to it. The functions below run this program; its name may include
 * the first arguments ("enwik8 train"). Its threads do not spin while waiting, to spare a busy
 * machine. */
void program_begin(const char *name);
void program_begin_in(const char *path, const char *name); /* makes this folder instead */
void program_end(void);                                    /* removes the folder */

/* The output of the last command. */
extern char out[40000], errors[20000];

/* Runs `PREFIX PROGRAM ARGS` in the shell. Returns its exit status, or -1 if a signal ended it. The
 * prefix may set variables, limits and so on. */
int run_under(const char *prefix, const char *args);
int run(const char *args);
void succeed(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* asserts status 0 */
void expect_refusal(const char *args, int status, const char *message);

/* Starts `PROGRAM ARGS` (words without quotes) with output to the files out and err. */
pid_t start(const char *args);
void await_reports(const char *log, int lines);
void nap(double seconds);

void slurp(const char *name, char *text, size_t size);
bool shell(const char *command); /* true on success */
bool same_bytes(const char *a, const char *b);
int64_t update_in(const char *checkpoint);
double number_in(const char *json,
                 const char *key); /* the first with this key; asserts that it exists */

#endif
