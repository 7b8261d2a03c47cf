/* binding.c - the cores of a process among others on its host.
 *
 * The number of threads follows from the cores that a process may use. Open MPI binds one or two
 * processes a host to one core each, and more to a socket, so that all of them start a thread for
 * each of its cores; MPICH binds none, with the same effect. So each process gets a stretch of its
 * own of the cores that the launcher may use, in the order of sockets and cores: hardware threads
 * of a core stay together. */
#define _GNU_SOURCE /* sched_setaffinity */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tensor/backend.h"
#include "train/peers/inner.h"

/* ---- the launcher's cores ---- */

static pid_t parent_of(pid_t process)
{
    char path[64], text[512];
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
    FILE *f = fopen(path, "re");
    const size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) fclose(f);
    text[n] = '\0';
    const char *end = strrchr(text, ')'); /* of the name, which may hold anything */
    return end && sscanf(end + 1, " %*c %d", &parent) == 1 ? (pid_t)parent : 0;
}

/* Was the process started with this variable? Another user's was not. */
static bool has_variable(pid_t process, const char *variable)
{
    const size_t length = strlen(variable);
    char path[64], *line = NULL;
    size_t size = 0;
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/environ", (int)process);
    FILE *f = fopen(path, "re");
    while (f && !found && getdelim(&line, &size, '\0', f) > 0)
        found = strncmp(line, variable, length) == 0 && line[length] == '=';
    if (f) fclose(f);
    free(line);
    return found;
}

/* Between the launcher and this process there may be scripts, which have the variable, too. */
static bool launchers_cores(const char *variable, cpu_set_t *cores)
{
    pid_t process = getppid();
    while (process > 1 && has_variable(process, variable)) process = parent_of(process);
    return process > 0 && sched_getaffinity(process, sizeof *cores, cores) == 0;
}

/* ---- cores in the order of sockets ---- */

typedef struct core {
    int socket, core, cpu;
} core;

static int topology(int cpu, const char *what)
{
    char path[128];
    int value = 0;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, what);
    FILE *f = fopen(path, "re");
    if (f && fscanf(f, "%d", &value) != 1) value = 0;
    if (f) fclose(f);
    return value;
}

static int compare(const void *x, const void *y)
{
    const core *a = x, *b = y;
    if (a->socket != b->socket) return a->socket < b->socket ? -1 : 1;
    if (a->core != b->core) return a->core < b->core ? -1 : 1;
    return a->cpu < b->cpu ? -1 : a->cpu > b->cpu;
}

static int list(const cpu_set_t *set, core *all)
{
    int n = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET((size_t)cpu, set))
            all[n++] =
                (core){ topology(cpu, "physical_package_id"), topology(cpu, "core_id"), cpu };
    qsort(all, (size_t)n, sizeof *all, compare);
    return n;
}

/* ---- this process's part ---- */

/* With more processes than cores, they share. The quota of a process alone is known elsewhere. */
static void take(const core *all, int n, int rank, int ranks, cpu_set_t *part)
{
    const int quota = tp__cpu_quota("");
    int first = (int)((int64_t)n * rank / ranks), end = (int)((int64_t)n * (rank + 1) / ranks);
    if (ranks > 1 && quota > 0 && end - first > quota / ranks) end = first + quota / ranks;
    if (end <= first) end = first + 1;
    CPU_ZERO(part);
    for (int i = first; i < end; i++) CPU_SET((size_t)all[i].cpu, part);
}

void tp__peers_divide_cores(int local_rank, int local_ranks, const char *launcher, bool by_default)
{
    cpu_set_t mine, whole, part;
    core all[CPU_SETSIZE];
    if (sched_getaffinity(0, sizeof mine, &mine) != 0 || !launchers_cores(launcher, &whole)) return;
    if (!by_default && !CPU_EQUAL(&mine, &whole)) return; /* bound on purpose */
    take(all, list(&whole, all), local_rank, local_ranks, &part);
    sched_setaffinity(0, sizeof part, &part);
}
