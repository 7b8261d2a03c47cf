/* in_processes.c - see the header. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "in_processes.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DONE = 0, MORE = 100 }; /* statuses of a child */

void *shared_memory(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static int wait_for(pid_t child)
{
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return 1;
    return status;
}

/* After a fault nothing of the GPU may be relied on, handlers at exit included. */
static void run_child(bool (*work)(void *env), void *env)
{
    if (work(env)) exit(DONE);
    fflush(NULL);
    _exit(MORE);
}

bool in_processes(bool (*work)(void *env), bool (*lost)(void *env, const char *how), void *env)
{
    for (;;) {
        char how[128];
        fflush(NULL);
        const pid_t child = fork();
        if (child < 0) return false;
        if (child == 0) run_child(work, env);
        const int status = wait_for(child);
        if (WIFEXITED(status) && WEXITSTATUS(status) == DONE) return true;
        if (WIFEXITED(status) && WEXITSTATUS(status) == MORE) continue;
        if (WIFSIGNALED(status))
            snprintf(how, sizeof how, "its process ended by signal %d (%s)", WTERMSIG(status),
                     strsignal(WTERMSIG(status)));
        else
            snprintf(how, sizeof how, "its process ended with status %d", WEXITSTATUS(status));
        if (!lost(env, how)) return true;
    }
}
