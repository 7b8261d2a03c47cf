/* test_kept.c - the checkpoints that --keep-last and --keep-best keep: which ones, that each is
 * complete and can be used, and that a kill at any moment loses none. */
#define _GNU_SOURCE /* linkat in link */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/program.h"
#include "support/scripted.h"
#include "support/train_with.h"

static int link_error; /* errno of all links; 0: they succeed */

/* In place of the C library's: a file system without links. */
int link(const char *from, const char *to)
{
    errno = link_error;
    return link_error ? -1 : linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}

static void begin(void)
{
    link_error = 0;
    scripted_begin();
}

TestSuite(kept, .init = begin, .fini = scripted_end, .timeout = 600);

/* The checkpoints in the folder, in order: "best best-9 last". */
static void expect_files(const char *path, const char *names)
{
    char command[200], list[1000];
    snprintf(command, sizeof command,
             "cd %s && ls | sed -n 's/\\.safetensors$//; t keep; b; :keep; s/-0*/-/; p' | "
             "LC_ALL=C sort -t- -k1,1 -k2,2n | tr '\\n' ' ' >../list",
             path);
    cr_assert(shell(command));
    slurp("list", list, sizeof list);
    cr_expect_str_eq(list, names, "%s: %s, not %s", path, list, names);
}

static void expect_update(const char *path, int64_t update)
{
    tp_file *F = tp_file_open(path);
    cr_expect(tp_file_ok(F) && tp_file_verify(F), "%s", tp_file_why(F));
    tp_file_close(F);
    cr_expect_eq(update_in(path), update);
}

/* ---- which ones ---- */

Test(kept, last)
{
    scripted_scores((double[]){ 1 }, 1);
    scripted_run("--run-dir run --steps 7 --checkpoint-every 3 --keep-last 3", 0, "Continue");
    expect_files("run", "best last last-4 last-6 last-7 ");
    cr_expect(same_bytes("run/last.safetensors", "run/last-000000007.safetensors"));
    expect_update("run/last-000000004.safetensors", 4);
    expect_update("run/last-000000006.safetensors", 6);
    scripted_run("--run-dir run --resume --steps 8", 0, "Continue");
    expect_files("run", "best last last-6 last-7 last-8 ");
    scripted_run("--run-dir run --resume --steps 9 --keep-last 1", 0, "Continue");
    expect_files("run", "best last last-9 ");
    scripted_run("--run-dir run --resume --steps 12 --keep-last 0", 0, "Continue");
    expect_files("run", "best last last-9 ");
    scripted_run("--run-dir run --steps 2", 1, "already holds a run");
    scripted_run("--run-dir run --steps 2 --overwrite", 0, "Continue");
    expect_files("run", "best last ");
}

Test(kept, best)
{
    scripted_scores((double[]){ 5, 3, 3, (double)NAN, 4, 2, 3, 6 }, 8);
    scripted_run("--run-dir run --steps 40 --keep-best 3", 0, "best 2.00");
    expect_files("run", "best best-4 best-6 best-12 last ");
    cr_expect(same_bytes("run/best.safetensors", "run/best-000000012.safetensors"));
    expect_meta("run/best-000000004.safetensors", "points", "3.0");
    expect_update("run/best-000000006.safetensors", 6);
    scripted.higher = true;
    scripted_run("--run-dir high --steps 40 --keep-best 2 --patience 2", 0, "best 5.00");
    expect_files("high", "best best-2 best-4 last ");
}

/* Later ones than the run that was moved back are none of its oldest. */
Test(kept, moved_back)
{
    scripted_scores((double[]){ 1 }, 1);
    scripted_run("--run-dir run --steps 8 --keep-last 3", 0, "Continue");
    expect_files("run", "best last last-4 last-6 last-8 ");
    cr_assert(shell("cp run/last-000000004.safetensors run/last.safetensors"));
    scripted_run("--run-dir run --resume --steps 5", 0, "Continue");
    expect_files("run", "best last last-4 last-5 last-6 last-8 ");
    scripted_run("--run-dir run --resume --steps 24", 0, "Done: 24 updates");
    expect_files("run", "best last last-20 last-22 last-24 ");
}

/* Averages are swapped in for a validation, so what is kept of it holds them. */
Test(kept, averages)
{
    scripted_scores((double[]){ 1, 2 }, 2);
    scripted_run("--run-dir all --steps 4 --ema 0.9 --keep-best 2", 0, "Continue");
    scripted_scores((double[]){ 2, 1 }, 2);
    scripted_run("--run-dir one --steps 4 --ema 0.9", 0, "Continue");
    expect_files("all", "best best-2 best-4 last ");
    cr_assert(shell("tail -c 256 all/best-000000004.safetensors >a; "
                    "tail -c 256 one/best.safetensors >b")); /* the 64 weights */
    cr_expect(same_bytes("a", "b"));
}

Test(kept, is_found_by_other_runs)
{
    scripted_scores((double[]){ 1 }, 1);
    scripted_run("--run-dir run --steps 4 --keep-last 2", 0, "Continue");
    scripted_run("--run-dir other --steps 2 --init run/last-000000002.safetensors", 0, "Continue");
    cr_assert(shell("rm run/last.safetensors run/best.safetensors"));
    scripted_run("--run-dir run", 1, "holds kept checkpoints of a run without a last checkpoint");
    cr_assert(shell("cp run/last-000000004.safetensors run/last.safetensors"));
    scripted_run("--run-dir run --resume --steps 6", 0, "Continue");
    expect_files("run", "best last last-4 last-6 ");
}

/* ---- file systems and faults ---- */

Test(kept, copies_without_links)
{
    scripted_scores((double[]){ 3, 2, 1 }, 3);
    link_error = EPERM;
    scripted_run("--run-dir run --steps 6 --keep-last 2 --keep-best 2", 0, "Continue");
    expect_files("run", "best best-4 best-6 last last-4 last-6 ");
    expect_update("run/last-000000004.safetensors", 4);
    expect_update("run/best-000000004.safetensors", 4);
    cr_expect(same_bytes("run/last.safetensors", "run/last-000000006.safetensors"));
    struct stat a, b;
    cr_assert(stat("run/last.safetensors", &a) == 0);
    cr_assert(stat("run/last-000000006.safetensors", &b) == 0);
    cr_expect(a.st_ino != b.st_ino);
    cr_expect(shell("! ls run | grep tmp"));
    link_error = ENOSPC;
    scripted_run("--run-dir run --resume --steps 8", 1,
                 "last-000000006.safetensors cannot be written: No space left on device; make");
}

Test(kept, unreadable_ones)
{
    scripted_scores((double[]){ 3, 2, 1 }, 3);
    scripted_run("--run-dir run --steps 2 --keep-best 2", 0, "Continue");
    cr_assert(shell("cp run/best-000000002.safetensors mine; "
                    "head -c 20 mine >short; mv short run/best-000000002.safetensors"));
    scripted_run("--run-dir run --resume --steps 4", 1,
                 "a kept checkpoint cannot be read: run/bes");
    cr_assert(shell("cp mine run/best-000000002.safetensors"));
    scripted.score = "marks";
    scripted_run("--run-dir run --resume --steps 4", 1,
                 "best-000000002.safetensors has no score 'marks': it is of another run; move");
}

/* ---- kills ---- */

static const char *const flags = "--steps 24 --checkpoint-every 1 --keep-last 3 --keep-best 3";

/* Every kept file is complete, and of the last ones no more than the oldest may be missing. */
static void check_set(int round)
{
    char text[4000], *rest = NULL;
    int last = 0;
    cr_assert(shell("ls run | grep -- '-.*safetensors$' >list || true"));
    slurp("list", text, sizeof text);
    for (char *name = strtok_r(text, "\n", &rest); name; name = strtok_r(NULL, "\n", &rest)) {
        char path[300];
        snprintf(path, sizeof path, "run/%s", name);
        expect_update(path, atoll(name + strlen("last-")));
        last += strncmp(name, "last", 4) == 0;
    }
    if (access("run/last.safetensors", F_OK) != 0) return;
    const int64_t update = update_in("run/last.safetensors");
    cr_expect(last >= (update - 1 < 3 ? update - 1 : 3) && last <= 4, "round %d: %d kept at %lld",
              round, last, (long long)update);
}

/* Starts over after comparing all files. */
static void expect_same_end(void)
{
    cr_assert(shell("for f in straight/*.safetensors; do cmp $f run/${f##*/} || exit 1; done; "
                    "[ $(ls straight | wc -l) = $(ls run | wc -l) ] && rm -r run"));
}

Test(kept, kill_at_any_moment)
{
    enum { ROUNDS = 40 };
    char straight[200], fresh[200];
    int kills = 0;
    scripted_scores((double[]){ 5, 4, 4.5, 6, 3, 3.5, 3, 2, 8, 2.5, 2, 7 }, 12);
    snprintf(straight, sizeof straight, "--run-dir straight %s", flags);
    snprintf(fresh, sizeof fresh, "--run-dir run %s", flags);
    const double began = tp_seconds();
    scripted_run(straight, 0, "Done: 24");
    const double took = tp_seconds() - began;
    srand(7);
    for (int round = 0; round < ROUNDS; round++) {
        const bool begun = access("run/last.safetensors", F_OK) == 0;
        const pid_t child = fork();
        if (child == 0) {
            if (!freopen("/dev/null", "w", stdout)) _exit(9);
            _exit(train_with(&scripted, NULL, begun ? "--run-dir run --resume" : fresh));
        }
        int status;
        nap(took * (rand() % 100) / 100);
        kill(child, SIGKILL);
        cr_assert(waitpid(child, &status, 0) == child);
        kills += WIFSIGNALED(status);
        check_set(round);
        if (WIFSIGNALED(status)) continue;
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "round %d", round);
        expect_same_end();
    }
    if (access("run/last.safetensors", F_OK) != 0) scripted_run(fresh, 0, "Done: 24");
    scripted_run("--run-dir run --resume", 0, "Done: 24");
    expect_same_end();
    cr_expect(kills > ROUNDS / 4, "%d kills", kills);
    cr_log_info("%d kills", kills);
}
