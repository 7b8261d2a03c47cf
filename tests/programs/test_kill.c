/* test_kill.c - training programs killed with SIGKILL while they mostly write checkpoints. There is
 * always an intact checkpoint, no files accumulate, and the result equals that of a run never
 * killed.
 *
 *     KILLS=200 test_kill      200 kills of each program; by default 15 of every third, 4 of the
 *                              others, which share its engine
 *     PROGRAM=coco test_kill   this program only
 *
 * Odd kills come after a random time, even ones at an event in the folder (a file created, written,
 * closed, renamed), so that kills hit each window between two system calls. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <tapegrad/device.h>
#include <tapegrad/file.h>
#include <unistd.h>

#include "support/runs.h"

TestSuite(kill, .timeout = 1800);

static uint32_t state = 1;

static uint32_t random_below(uint32_t n)
{
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % n;
}

/* Waits for `count` events of these kinds in the folder, at most two seconds. */
static void await_events(int watch, uint32_t mask, int count)
{
    char buffer[4096] __attribute__((aligned(8)));
    const double began = tp_seconds();
    do {
        const ssize_t n = read(watch, buffer, sizeof buffer);
        for (char *p = buffer; n > 0 && p < buffer + n;) {
            const struct inotify_event *e = (const struct inotify_event *)(const void *)p;
            if ((e->mask & mask) && --count <= 0) return;
            p += sizeof *e + e->len;
        }
        if (n <= 0) nap(20e-6);
    } while (tp_seconds() - began < 2);
}

static void forget_events(int watch)
{
    char buffer[4096];
    while (read(watch, buffer, sizeof buffer) > 0) continue;
}

static void wait_for_moment(int round, int watch)
{
    static const uint32_t events[] = { IN_CREATE, IN_MODIFY, IN_CLOSE_WRITE, IN_MOVED_TO };
    if (round % 2)
        nap(1e-6 * random_below(400000));
    else
        await_events(watch, events[round / 2 % 4], 1 + (int)random_below(60));
}

static int tensors_in(const char *path)
{
    tp_file *F = tp_file_open(path);
    cr_assert(tp_file_ok(F), "%s", tp_file_why(F));
    const int n = (int)tp_file_count(F);
    tp_file_close(F);
    return n;
}

/* Counts the files in the folder; *torn: temporary ones, which only a kill leaves. */
static int count_files(const char *path, int *torn)
{
    int n = 0;
    DIR *d = opendir(path);
    *torn = 0;
    for (const struct dirent *e; d && (e = readdir(d));) {
        n += e->d_name[0] != '.';
        *torn += strstr(e->d_name, ".tmp-") != NULL;
    }
    if (d) closedir(d);
    return n;
}

static void expect_same_end(const run_kind *k)
{
    int torn;
    const char *name = k->command;
    cr_expect(same_bytes("straight/last.safetensors", "killed/last.safetensors"), "%s: last", name);
    cr_expect(same_bytes("straight/best.safetensors", "killed/best.safetensors"), "%s: best", name);
    cr_expect(same_log("straight/log.jsonl", "killed/log.jsonl"), "%s: the log has each line once",
              name);
    cr_expect_eq(count_files("killed", &torn), k->files, "%s: last, best, log, config, lock ...",
                 name);
}

/* Runs `args` and kills it. False if it had ended. */
static bool run_and_kill(const char *args, int round, int watch)
{
    int status;
    forget_events(watch);
    const pid_t child = start(args);
    wait_for_moment(round, watch);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) return true;
    slurp("err", errors, sizeof errors);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "round %d: %s", round, errors);
    return false;
}

/* Returns the checkpoint's update, which must be at least `before`; -1: no checkpoint yet. */
static int64_t check_folder(const run_kind *k, int round, int64_t before, int *met)
{
    int torn;
    const int files = count_files("killed", &torn);
    cr_expect(torn <= 1 && files - torn <= k->files, "%s, round %d: %d files, %d torn", k->command,
              round, files, torn);
    *met += torn;
    const bool there = access("killed/last.safetensors", F_OK) == 0;
    cr_assert(there || before < 0, "%s, round %d: the checkpoint is lost", k->command, round);
    if (!there) return -1;
    const int64_t now = update_in("killed/last.safetensors");
    cr_assert(now >= before && now >= 1, "%s, round %d: update %lld after %lld", k->command, round,
              (long long)now, (long long)before);
    return now;
}

enum { KILLS = 15, FEW = 4 }; /* few may meet no file half written */

static void kill_often(const run_kind *k, int kills)
{
    const int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    int done = 0, met = 0, ends = 0;
    int64_t update = -1; /* of the checkpoint */
    char fresh[1024], again[128];
    snprintf(fresh, sizeof fresh, "%s %s --ema 0.9 --steps %d --run-dir killed", k->train, k->often,
             k->updates);
    snprintf(again, sizeof again, "--resume --steps %d --run-dir killed", k->updates);
    succeed("%s %s --ema 0.9 --steps %d --run-dir straight", k->train, k->often, k->updates);
    const int tensors = tensors_in("straight/last.safetensors");
    cr_assert(mkdir("killed", 0777) == 0);
    cr_assert(watch >= 0 && inotify_add_watch(watch, "killed", IN_ALL_EVENTS) >= 0);
    for (int round = 0; done < kills; round++) {
        if (run_and_kill(update < 0 ? fresh : again, round, watch)) {
            update = check_folder(k, round, update, &met);
            if (update >= 0) cr_assert_eq(tensors_in("killed/last.safetensors"), tensors);
            done++;
        } else {
            expect_same_end(k);
            cr_assert(shell("rm -f killed/*"));
            update = -1;
            ends++;
        }
    }
    close(watch);
    succeed("%s", update < 0 ? fresh : again);
    expect_same_end(k);
    cr_expect(met > 0 || kills <= FEW, "%s: no kill met a file half written", k->command);
    cr_log_info("%s: %d kills, %d of them with a file half written; %d runs to the end", k->command,
                done, met, ends + 1);
}

Test(kill, at_any_moment)
{
    const char *asked = getenv("KILLS");
    for (int i = 0; i < run_kind_count; i++) {
        if (!run_kind_wanted(&run_kinds[i])) continue;
        run_kind_begin(&run_kinds[i]);
        kill_often(&run_kinds[i], asked ? atoi(asked) : i % 3 == 0 ? KILLS : FEW);
        program_end();
    }
    if (!run_kind_wanted(&run_of_adaptations)) return;
    run_kind_begin(&run_of_adaptations);
    kill_often(&run_of_adaptations, asked ? atoi(asked) : FEW);
    cr_expect(same_bytes("straight/adapter.safetensors", "killed/adapter.safetensors"));
    program_end();
}
