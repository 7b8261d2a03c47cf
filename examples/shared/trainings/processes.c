/* processes.c - runs commands of the program in child processes: each has its own memory, and its
 * end is not the program's. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "trainings.h"

/* ---- flags ---- */

static void add(command_flags *f, const char *text, size_t n)
{
    if (f->n + 1 >= COMMAND_WORDS || f->used + n + 1 > sizeof f->room) {
        f->full = true;
        return;
    }
    char *to = f->room + f->used;
    memcpy(to, text, n);
    to[n] = '\0';
    f->used += n + 1;
    f->word[f->n++] = to;
    f->word[f->n] = NULL;
}

void command_flag(command_flags *f, const char *name, const char *value)
{
    char flag[80];
    const int n = snprintf(flag, sizeof flag, "--%s", name);
    add(f, flag, (size_t)n);
    add(f, value, strlen(value));
}

void command_number(command_flags *f, const char *name, double value)
{
    char text[40];
    snprintf(text, sizeof text, "%.10g", value);
    command_flag(f, name, text);
}

void command_words(command_flags *f, const char *text)
{
    while (text && *text) {
        const size_t blank = strspn(text, " "), n = strcspn(text + blank, " ");
        if (n > 0) add(f, text + blank, n);
        text += blank + n;
    }
}

void command_copy(command_flags *f, const tp_option *options, const char *name, const void *s)
{
    char text[64];
    tp_option_get(tp_option_find(options, name), s, text, sizeof text);
    command_flag(f, name, text);
}

/* ---- processes ---- */

/* Waits for the child and forwards the first signal. Polls, since a signal does not end waitpid. */
static int await(pid_t child, char *why, size_t size)
{
    const struct timespec pause = { .tv_nsec = 20000000 };
    int status = 0;
    bool told = false;
    pid_t ended;
    while ((ended = waitpid(child, &status, WNOHANG)) != child) {
        if (ended < 0 && errno != EINTR) {
            snprintf(why, size, "waiting for a process failed: %s", strerror(errno));
            return -1;
        }
        if (tp_stop_signal() && !told) told = kill(child, tp_stop_signal()) == 0;
        nanosleep(&pause, NULL);
    }
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    snprintf(why, size, "the process was ended by signal %d", WTERMSIG(status));
    return -1;
}

int command_apart(command_flags *f, int (*command)(int argc, char **argv), const char *to,
                  char *why, size_t size)
{
    const int out = f->full ? -1 : to ? open(to, O_WRONLY | O_CREAT | O_TRUNC, 0666) : 0;
    if (out < 0) {
        if (f->full)
            snprintf(why, size, "too many flags for a training");
        else
            snprintf(why, size, "%s cannot be written: %s", to, strerror(errno));
        return -1;
    }
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0); /* Ctrl-C reaches only the parent */
        dup2(to ? out : STDERR_FILENO, STDOUT_FILENO);
        const int status = command(f->n, f->word);
        const bool written = fflush(NULL) == 0;
        _exit(status == 0 && !written ? 1 : status);
    }
    const int error = errno;
    if (to) close(out);
    if (child > 0) return await(child, why, size);
    snprintf(why, size, "no process can be started: %s", strerror(error));
    return -1;
}
