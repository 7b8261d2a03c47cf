/* test_kill.c - enwik8 killed with SIGKILL while it spends its time writing checkpoints: there is
 * always a whole one, nothing piles up in the folder, and the end is that of a run never killed.
 *
 *     KILLS=200 test_kill      so many kills, 20 otherwise
 *
 * Odd kills come after a random time, even ones at an event in the folder (a file made, written,
 * closed, renamed), so that each window between two system calls is met. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <tapegrad/file.h>
#include <time.h>
#include <unistd.h>

#include "support_enwik8.h"

TestSuite(kill, .init = enwik8_begin, .fini = program_end, .timeout = 1800);

static uint32_t state = 1;

static uint32_t random_below(uint32_t n)
{
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % n;
}

/* Returns once `count` events of the kind have come from the folder, or after two seconds. */
static void await_events(int watch, uint32_t mask, int count)
{
    char buffer[4096] __attribute__((aligned(8)));
    struct timespec began, now;
    clock_gettime(CLOCK_MONOTONIC, &began);
    do {
        const ssize_t n = read(watch, buffer, sizeof buffer);
        for (char *p = buffer; n > 0 && p < buffer + n;) {
            const struct inotify_event *e = (const struct inotify_event *)(const void *)p;
            if ((e->mask & mask) && --count <= 0) return;
            p += sizeof *e + e->len;
        }
        if (n <= 0) nap(20e-6);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - began.tv_sec < 2);
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

/* The files of the folder; *torn: those that only a kill leaves. */
static int count_files(const char *path, int *torn)
{
    int n = 0;
    DIR *d = opendir(path);
    *torn = 0;
    for (const struct dirent *e; d && (e = readdir(d));) {
        n += e->d_name[0] != '.';
        *torn += strstr(e->d_name, ".tmp-") || strstr(e->d_name, ".new");
    }
    if (d) closedir(d);
    return n;
}

static void expect_same_end(void)
{
    int torn;
    cr_expect(same_bytes("straight/last.safetensors", "killed/last.safetensors"), "last");
    cr_expect(same_bytes("straight/best.safetensors", "killed/best.safetensors"), "best");
    cr_expect(same_log("straight/log.jsonl", "killed/log.jsonl"), "the log has each line once");
    cr_expect_eq(count_files("killed", &torn), 5, "last, best, log, config and lock");
}

#define FLAGS                                                                                      \
    "train " SMALL "--data text --steps 150 --log-every 1 --eval-every 10 --checkpoint-every 1 "   \
    "--ema 0.9 --dropout 0.1 --run-dir "

/* Runs `args` until it is killed. False if it came to its end before. */
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

Test(kill, at_any_moment)
{
    const char *asked = getenv("KILLS"), *again = "train --resume --run-dir killed";
    const int kills = asked ? atoi(asked) : 20, watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    int done = 0, met = 0, ends = 0, torn;
    int64_t update = -1; /* of the checkpoint */
    succeed(FLAGS "straight");
    const int tensors = tensors_in("straight/last.safetensors");
    cr_assert(mkdir("killed", 0777) == 0);
    cr_assert(watch >= 0 && inotify_add_watch(watch, "killed", IN_ALL_EVENTS) >= 0);
    for (int round = 0; done < kills; round++) {
        const bool killed = run_and_kill(update < 0 ? FLAGS "killed" : again, round, watch);
        if (!killed) {
            expect_same_end();
            cr_assert(shell("rm -f killed/*"));
            update = -1;
            ends++;
            continue;
        }
        done++;
        const int files = count_files("killed", &torn);
        cr_expect(torn <= 1 && files - torn <= 5, "round %d: %d files, %d torn", round, files,
                  torn);
        met += torn;
        const bool there = access("killed/last.safetensors", F_OK) == 0;
        cr_assert(there || update < 0, "round %d: the checkpoint is lost", round);
        if (!there) continue;
        const int64_t now = update_in("killed/last.safetensors");
        cr_assert(now >= update && now >= 1, "round %d: update %lld after %lld", round,
                  (long long)now, (long long)update);
        cr_assert_eq(tensors_in("killed/last.safetensors"), tensors, "round %d", round);
        update = now;
    }
    close(watch);
    succeed(update < 0 ? FLAGS "killed" : again);
    expect_same_end();
    cr_expect(met > 0, "no kill met a file half written");
    cr_log_info("%d kills, %d of them with a file half written; %d runs to the end", done, met,
                ends + 1);
}
