/* test_cores.c - the CPU quota of a process's cgroup, read from stand-ins for system folders. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <tapegrad/file.h>

#include "support/program.h"
#include "tensor/backend.h"

typedef struct text_file {
    const char *name, *text;
} text_file;

static void write_file(const char *name, const char *text)
{
    char path[400], folder[400], why[500];
    snprintf(path, sizeof path, "root/%s", name);
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    cr_assert(tp_make_folders(folder, why, sizeof why), "%s", why);
    FILE *f = fopen(path, "w");
    cr_assert(f && fputs(text, f) >= 0 && fclose(f) == 0, "%s", path);
}

#define GROUPS "proc/self/cgroup"
#define TREE   "sys/fs/cgroup/"

static const struct {
    const char *what;
    text_file files[5];
    int quota;
} cases[] = {
    { "no files", { { 0 } }, 0 },
    { "no tree", { { GROUPS, "0::/a\n" } }, 0 },
    { "version 2", { { GROUPS, "0::/\n" }, { TREE "cpu.max", "200000 100000\n" } }, 2 },
    { "rounded up", { { GROUPS, "0::/\n" }, { TREE "cpu.max", "150000 100000\n" } }, 2 },
    { "at least 1", { { GROUPS, "0::/\n" }, { TREE "cpu.max", "1000 100000\n" } }, 1 },
    { "no limit", { { GROUPS, "0::/\n" }, { TREE "cpu.max", "max 100000\n" } }, 0 },
    { "no period", { { GROUPS, "0::/\n" }, { TREE "cpu.max", "300000\n" } }, 3 },
    { "a level above",
      { { GROUPS, "0::/a/b\n" },
        { TREE "a/b/cpu.max", "800000 100000" },
        { TREE "a/cpu.max", "300000 100000" },
        { TREE "cpu.max", "max 100000" } },
      3 },
    { "a level below",
      { { GROUPS, "0::/a/b\n" },
        { TREE "a/b/cpu.max", "100000 50000" },
        { TREE "a/cpu.max", "300000 100000" } },
      2 },
    { "names of the host", { { GROUPS, "0::/pod/x\n" }, { TREE "cpu.max", "400000 100000" } }, 4 },
    { "dots", { { GROUPS, "0::/a..b\n" }, { TREE "a..b/cpu.max", "400000 100000" } }, 4 },
    { "outside", { { GROUPS, "0::/../..\n" }, { TREE "cpu.max", "400000 100000" } }, 4 },
    { "version 1",
      { { GROUPS, "9:memory:/d\n4:cpu,cpuacct:/d\n" },
        { TREE "cpu,cpuacct/d/cpu.cfs_quota_us", "250000\n" },
        { TREE "cpu,cpuacct/d/cpu.cfs_period_us", "100000\n" } },
      3 },
    { "version 1, the usual folder",
      { { GROUPS, "4:cpuacct,cpu:/d\n" },
        { TREE "cpu/cpu.cfs_quota_us", "50000\n" },
        { TREE "cpu/cpu.cfs_period_us", "100000\n" } },
      1 },
    { "version 1, no limit",
      { { GROUPS, "1:cpu:/\n" },
        { TREE "cpu/cpu.cfs_quota_us", "-1\n" },
        { TREE "cpu/cpu.cfs_period_us", "100000\n" } },
      0 },
    { "version 1, no period",
      { { GROUPS, "1:cpu:/\n" }, { TREE "cpu/cpu.cfs_quota_us", "100000\n" } },
      0 },
    { "both versions",
      { { GROUPS, "1:cpu:/\n0::/\n" },
        { TREE "cpu/cpu.cfs_quota_us", "500000\n" },
        { TREE "cpu/cpu.cfs_period_us", "100000\n" },
        { TREE "unified/cpu.max", "200000 100000" } },
      2 },
    { "other controllers",
      { { GROUPS, "3:cpuset:/\n2:cpuacct:/\n" },
        { TREE "cpuset/cpu.cfs_quota_us", "100000\n" },
        { TREE "cpuset/cpu.cfs_period_us", "100000\n" } },
      0 },
    { "malformed", { { GROUPS, "0::/\n" }, { TREE "cpu.max", "2x0000 100000\n" } }, 0 },
    { "malformed period", { { GROUPS, "0::/\n" }, { TREE "cpu.max", "200000 0\n" } }, 0 },
    { "empty", { { GROUPS, "0::/\n" }, { TREE "cpu.max", "" } }, 0 },
    { "a folder", { { GROUPS, "0::/\n" }, { TREE "cpu.max/x", "1" } }, 0 },
    { "huge", { { GROUPS, "0::/\n" }, { TREE "cpu.max", "9223372036854775807 1\n" } }, 0 },
    { "no such lines", { { GROUPS, "0\n0:\n\n::\n" }, { TREE "cpu.max", "200000 100000" } }, 2 },
};

Test(cores, quota_of_a_container)
{
    program_begin("true");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_assert(shell("rm -rf root"));
        for (const text_file *f = cases[i].files; f->name; f++) write_file(f->name, f->text);
        const int quota = tp__cpu_quota("root");
        cr_expect_eq(quota, cases[i].quota, "%s: %d", cases[i].what, quota);
    }
    program_end();
}

Test(cores, threads_of_a_device)
{
    const int quota = tp__cpu_quota("");
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .dry = true });
    cr_expect_eq(tp_device_stats(D).threads, tp__max_threads());
    cr_expect(quota == 0 || tp__max_threads() <= quota);
    tp_device_close(D);
}
