/* program.c - runs the programs of examples/ as a user does, in a temporary folder. */
#include "support/program.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tapegrad/file.h>
#include <time.h>
#include <unistd.h>

#include "support/folder.h"

char out[40000], errors[20000];

static const char *program;

void program_begin(const char *name)
{
    program = name;
    make_folder();
    cr_assert(chdir(folder) == 0);
}

void program_begin_in(const char *path, const char *name)
{
    char why[300];
    program = name;
    snprintf(folder, sizeof folder, "%s", path);
    cr_assert(tp_make_folders(path, why, sizeof why), "%s", why);
    cr_assert(chdir(folder) == 0);
}

void program_end(void)
{
    cr_assert(chdir("/") == 0);
    remove_folder();
}

/* ---- commands ---- */

int run_under(const char *prefix, const char *args)
{
    char command[4096];
    snprintf(command, sizeof command, "%s %s/%s %s >out 2>err", prefix, TP_BIN_DIR, program, args);
    const int status = system(command);
    slurp("out", out, sizeof out);
    slurp("err", errors, sizeof errors);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int run(const char *args)
{
    return run_under("", args);
}

void succeed(const char *fmt, ...)
{
    char args[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(args, sizeof args, fmt, ap);
    va_end(ap);
    const int status = run(args);
    cr_assert(status == 0, "%s: %s %s: status %d\n%s", criterion_current_test->name, program, args,
              status, errors);
}

void expect_refusal(const char *args, int status, const char *message)
{
    const int got = run(args);
    cr_expect(got == status && strstr(errors, message),
              "%s: %s %s: status %d, not %d with '%s'\n%s", criterion_current_test->name, program,
              args, got, status, message, errors);
}

pid_t start(const char *args)
{
    char text[4096], *words[80];
    int n = 0;
    snprintf(text, sizeof text, "%s/%s %s", TP_BIN_DIR, program, args);
    for (char *w = strtok(text, " "); w && n < 79; w = strtok(NULL, " ")) words[n++] = w;
    words[n] = NULL;
    const pid_t child = fork();
    if (child == 0) {
        dup2(open("out", O_WRONLY | O_CREAT | O_TRUNC, 0666), STDOUT_FILENO);
        dup2(open("err", O_WRONLY | O_CREAT | O_TRUNC, 0666), STDERR_FILENO);
        signal(SIGINT, SIG_DFL); /* shells make background tests ignore it */
        execv(words[0], words);
        _exit(127);
    }
    cr_assert(child > 0);
    return child;
}

void await_reports(const char *log, int lines)
{
    for (int i = 0; i < 20000; i++) {
        slurp(log, out, sizeof out);
        int n = 0;
        for (const char *s = out; *s; s++) n += *s == '\n';
        if (n >= lines) return;
        nap(0.002);
    }
    cr_assert_fail("%s never had %d reports", log, lines);
}

void nap(double seconds)
{
    const struct timespec t = { .tv_sec = (time_t)seconds,
                                .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9) };
    nanosleep(&t, NULL);
}

/* ---- files ---- */

void slurp(const char *name, char *text, size_t size)
{
    FILE *f = fopen(name, "r");
    const size_t n = f ? fread(text, 1, size - 1, f) : 0;
    text[n] = '\0';
    if (f) fclose(f);
}

bool shell(const char *command)
{
    return system(command) == 0;
}

bool same_bytes(const char *a, const char *b)
{
    char command[256];
    snprintf(command, sizeof command, "cmp -s %s %s", a, b);
    return shell(command);
}

int64_t update_in(const char *path)
{
    int64_t update = -1;
    tp_file *F = tp_file_open(path);
    cr_expect(tp_file_ok(F), "%s", tp_file_why(F));
    tp_file_int(F, "update", &update);
    tp_file_close(F);
    return update;
}

double number_in(const char *json, const char *key)
{
    char name[64];
    snprintf(name, sizeof name, "\"%s\":", key);
    const char *at = strstr(json, name);
    cr_assert(at, "no %s in %s", key, json);
    return strtod(at + strlen(name), NULL);
}
