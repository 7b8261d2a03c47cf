/* signals.c - stop signals, standard streams and paths for commands. */
#include "options_inner.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/train.h>
#include <unistd.h>

/* ---- signals: the only global state, because a process has only one set of handlers ---- */

static volatile sig_atomic_t stop_signal;

/* SIGUSR1 for launchers: Open MPI passes SIGTERM on but kills a second later. */
static const int stopping[] = { SIGINT, SIGTERM, SIGHUP, SIGUSR1 };

/* Ignored signals stay ignored: nohup relies on it, and so do shells for background jobs. */
static void handle(void (*handler)(int))
{
    struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART }, before;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof stopping / sizeof *stopping; i++)
        if (sigaction(stopping[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(stopping[i], &action, NULL);
}

static void note(int signal)
{
    stop_signal = signal;
    handle(SIG_DFL); /* a second stop signal of any kind kills the process */
}

void tp_catch_signals(void)
{
    handle(note);
}

int tp_stop_signal(void)
{
    return stop_signal;
}

/* ---- standard streams ---- */

void tp__prepare_process(void)
{
    signal(SIGXFSZ, SIG_IGN);
    int fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO) fd = open("/dev/null", O_RDWR);
    if (fd >= 0) close(fd);
}

/* ---- paths ---- */

void tp_absolute_path(char **path)
{
    char here[4096], full[8200];
    if (!path || !*path || (*path)[0] == '/' || !getcwd(here, sizeof here)) return;
    snprintf(full, sizeof full, "%s/%s", here, *path);
    char *copy = strdup(full);
    if (!copy) return;
    free(*path);
    *path = copy;
}
