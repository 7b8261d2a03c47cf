/* cores.c - the number of threads a process may run, from its cores and its CPU quota.
 *
 * A container's quota is set on its cgroup or one above: cpu.max in version 2, cpu.cfs_quota_us and
 * cpu.cfs_period_us in version 1, in folders named in /proc/self/cgroup. A container sees its own
 * cgroup at the root of the mounted tree, so every level up to the root is tried; missing levels
 * limit nothing. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_getaffinity */
#endif
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tensor/backend.h"

enum { PATH = 4096 };

/* Reads the first two words of a file, the second perhaps empty; false on error. */
static bool words_of(const char *folder, const char *name, char first[32], char second[32])
{
    char path[PATH + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "re");
    *second = '\0';
    const int n = f ? fscanf(f, "%31s %31s", first, second) : 0;
    if (f) fclose(f);
    return n > 0;
}

/* Parses a number above 0; 0 if the text is not one. */
static int64_t number(const char *text)
{
    char *end;
    const long long n = strtoll(text, &end, 10);
    return end == text || *end || n < 0 ? 0 : n;
}

/* Lowers *cpus (0: no limit) to quota / period, rounded up. */
static void limit(int *cpus, int64_t quota, int64_t period)
{
    if (quota <= 0 || period <= 0) return;
    const int64_t n = quota / period + (quota % period != 0);
    if (n < 1 << 20 && (*cpus == 0 || n < *cpus)) *cpus = (int)n;
}

/* Applies one's limits. */
static void limit_by(int *cpus, const char *folder)
{
    char quota[32], period[32], rest[32];
    if (words_of(folder, "cpu.max", quota, period))
        limit(cpus, number(quota), *period ? number(period) : 100000);
    else if (words_of(folder, "cpu.cfs_quota_us", quota, rest) &&
             words_of(folder, "cpu.cfs_period_us", period, rest))
        limit(cpus, number(quota), number(period));
}

/* Applies the limits of cgroup `group` ("/a/b") in a mounted tree and its ancestors. */
static void limit_by_all(int *cpus, const char *tree, const char *group)
{
    char folder[PATH];
    const size_t root = strlen(tree);
    const bool outside = strncmp(group, "/..", 3) == 0; /* of the visible tree */
    const int n = snprintf(folder, sizeof folder, "%s%s", tree, outside ? "" : group);
    if (n < 0 || n >= PATH) return;
    for (char *slash = folder + n; slash >= folder + root; *slash = '\0') {
        limit_by(cpus, folder);
        slash = strrchr(folder, '/');
        if (!slash) return;
    }
}

/* Is "cpu" among the controllers "cpu,cpuacct"? */
static bool has_cpu(const char *controllers)
{
    for (const char *at = controllers; at; at = strchr(at, ','), at = at ? at + 1 : NULL)
        if (strncmp(at, "cpu", 3) == 0 && (at[3] == ',' || at[3] == '\0')) return true;
    return false;
}

/* Applies a line of /proc/self/cgroup: "0::/a/b" (v2) or "4:cpu,cpuacct:/a/b" (v1). */
static void limit_by_line(int *cpus, const char *root, char *line)
{
    static const char *const trees[] = { "", "/unified" };
    char tree[PATH];
    char *controllers = strchr(line, ':'),
         *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group) return;
    *group++ = '\0';
    group[strcspn(group, "\n")] = '\0';
    controllers++;
    for (size_t i = 0; !*controllers && i < sizeof trees / sizeof *trees; i++) {
        snprintf(tree, sizeof tree, "%s/sys/fs/cgroup%s", root, trees[i]);
        limit_by_all(cpus, tree, group);
    }
    if (!has_cpu(controllers)) return;
    snprintf(tree, sizeof tree, "%s/sys/fs/cgroup/%s", root, controllers);
    limit_by_all(cpus, tree, group);
    snprintf(tree, sizeof tree, "%s/sys/fs/cgroup/cpu", root);
    limit_by_all(cpus, tree, group);
}

int tp__cpu_quota(const char *root)
{
    char line[PATH];
    int cpus = 0;
    snprintf(line, sizeof line, "%s/proc/self/cgroup", root);
    FILE *f = fopen(line, "re");
    while (f && fgets(line, sizeof line, f)) limit_by_line(&cpus, root, line);
    if (f) fclose(f);
    return cpus;
}

int tp__max_threads(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    long n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                         : sysconf(_SC_NPROCESSORS_ONLN);
    const int quota = tp__cpu_quota("");
    if (quota > 0 && quota < n) n = quota;
    return n > 0 ? (int)n : 1;
}
