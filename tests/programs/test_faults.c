/* test_faults.c - training on disks that are full, broken, read-only or removed, stopped at any
 * moment. No checkpoint is lost, the message says what failed, where, and what to do, and the
 * resumed run gives the same bits as an undisturbed one (docs/faults.md). Each test runs for every
 * training program (support/runs.c). */
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/runs.h"

TestSuite(faults, .timeout = 1800);

#define RESUME "--resume --steps 6 --run-dir run"

typedef void (*check)(const run_kind *k);

/* The folder of the tests that `process` runs. */
static const char *root_of(pid_t process)
{
    static char path[300];
    const char *tmp = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/tapegrad-faults-%ld", tmp ? tmp : "/tmp", (long)process);
    return path;
}

ReportHook(POST_ALL)(struct criterion_global_stats *stats)
{
    char command[400];
    (void)stats;
    snprintf(command, sizeof command, "rm -rf %s", root_of(getpid()));
    shell(command);
}

/* Makes a folder with data, `straight`, a run of 6 updates, and `base`, the same run after 2. The
 * first test trains them, the others copy; all use the same path, which the runs record. */
static void begin(const run_kind *k)
{
    char path[400], command[100];
    const int number = (int)(k - run_kinds);
    snprintf(path, sizeof path, "%s/%d", root_of(getppid()), number);
    program_begin_in(path, k->command);
    snprintf(command, sizeof command, "test -d ../kept-%d && cp -a ../kept-%d/. .", number, number);
    if (shell(command)) return;
    k->make_data();
    succeed("%s %s --steps 6 --run-dir straight", k->train, k->often);
    succeed("%s %s --steps 2 --run-dir base", k->train, k->often);
    snprintf(command, sizeof command, "cp -a . ../kept-%d", number);
    cr_assert(shell(command));
}

static void for_each_program(check f)
{
    for (int i = 0; i < run_kind_count; i++) {
        const run_kind *k = &run_kinds[i];
        if (!run_kind_wanted(k)) continue;
        begin(k);
        f(k);
        program_end();
    }
}

/* Defines a test that runs the function body that follows for each training program. */
#define FAULT(name)                                                                                \
    static void name(const run_kind *k);                                                           \
    Test(faults, name)                                                                             \
    {                                                                                              \
        for_each_program(name);                                                                    \
    }                                                                                              \
    static void name(const run_kind *k)

/* Expects an intact checkpoint and no temporary file, and that the resumed run ends the same. */
static void expect_recovery(const run_kind *k, const char *fault)
{
    char name[400];
    snprintf(name, sizeof name, "%s, %s", k->command, fault);
    const int64_t update = update_in("run/last.safetensors");
    cr_expect(update >= 2, "%s: update %lld", name, (long long)update);
    cr_expect(!shell("ls run | grep -q -e tmp-"), "%s: a temporary file is left", name);
    const int status = run(RESUME);
    cr_expect_eq(status, 0, "%s: resuming: %s", name, errors);
    cr_expect(same_bytes("straight/last.safetensors", "run/last.safetensors"), "%s: last", name);
    cr_expect(same_bytes("straight/best.safetensors", "run/best.safetensors"), "%s: best", name);
    cr_expect(same_log("straight/log.jsonl", "run/log.jsonl"), "%s: log", name);
}

static void expect_message(const char *name, int status, const char *const *parts, int n)
{
    cr_expect_eq(status, 1, "%s: status %d\n%s", name, status, errors);
    for (int i = 0; i < n; i++)
        cr_expect(strstr(errors, parts[i]), "%s: no '%s' in: %s", name, parts[i], errors);
}

/* ---- system calls that fail ---- */

#define ROOM  "make room on the disk"
#define CHECK "check the disk"

FAULT(system_calls)
{
    static const struct {
        const char *call;
        int nth, error;
        const char *part, *file, *advice; /* the message contains the last two */
    } cases[] = {
        { "open", 1, ENOSPC, "/last.safetensors.tmp-", "run/last.safetensors", ROOM },
        { "open", 1, EROFS, "/best.safetensors.tmp-", "run/best.safetensors", "writable" },
        { "open", 1, ENOSPC, "/log.jsonl.tmp-", "log run/log.jsonl", ROOM },
        { "open", 1, EACCES, "run/log.jsonl$", "log run/log.jsonl", "writable" },
        { "open", 1, EDQUOT, "/config.json.tmp-", "config.json", ROOM },
        { "open", 1, EROFS, "run/lock$", "run folder run", "writable" },
        { "write", 1, ENOSPC, "/last.safetensors.tmp-", "run/last.safetensors", ROOM },
        { "write", 9, ENOSPC, "/last.safetensors.tmp-", "run/last.safetensors", ROOM },
        { "write", 200, EIO, "/last.safetensors.tmp-", "run/last.safetensors", CHECK },
        { "write", 5, ENOSPC, "/best.safetensors.tmp-", "run/best.safetensors", ROOM },
        { "write", 1, ENOSPC, "run/log.jsonl$", "log run/log.jsonl", ROOM },
        { "write", 3, EDQUOT, "run/log.jsonl$", "log run/log.jsonl", ROOM },
        { "write", 1, ENOSPC, "/log.jsonl.tmp-", "log run/log.jsonl", ROOM },
        { "write", 1, ENOSPC, "/config.json.tmp-", "config.json", ROOM },
        { "fsync", 2, ENOSPC, "/last.safetensors.tmp-", "run/last.safetensors", ROOM },
        { "fsync", 1, EIO, "/best.safetensors.tmp-", "run/best.safetensors", CHECK },
        { "fsync", 1, EIO, "/run$", "syncing folder run", CHECK },
        { "fsync", 1, EIO, "/log.jsonl.tmp-", "log run/log.jsonl", CHECK },
        { "fsync", 1, ENOSPC, "/config.json.tmp-", "config.json", ROOM },
        { "close", 1, EDQUOT, "/last.safetensors.tmp-", "run/last.safetensors", ROOM },
        { "close", 1, EIO, "/best.safetensors.tmp-", "run/best.safetensors", CHECK },
        { "close", 1, EIO, "/log.jsonl.tmp-", "log run/log.jsonl", CHECK },
        { "close", 1, ENOSPC, "/config.json.tmp-", "config.json", ROOM },
        { "rename", 2, ENOSPC, "run/last.safetensors$", "run/last.safetensors", ROOM },
        { "rename", 1, EIO, "run/best.safetensors$", "run/best.safetensors", CHECK },
        { "rename", 1, ENOSPC, "run/log.jsonl$", "log run/log.jsonl", ROOM },
        { "rename", 1, EROFS, "run/config.json$", "config.json", "writable" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char prefix[512], name[128];
        if (!run_kind_takes(k, (int)i)) continue;
        snprintf(name, sizeof name, "%s %d of %s", cases[i].call, cases[i].nth, cases[i].part);
        snprintf(prefix, sizeof prefix,
                 "ASAN_OPTIONS=$ASAN_OPTIONS:verify_asan_link_order=0 LD_PRELOAD=%s "
                 "FAULT='%s %d %d %s'",
                 TP_FAULT_CALLS, cases[i].call, cases[i].nth, cases[i].error, cases[i].part);
        cr_assert(shell("rm -rf run; cp -r base run"));
        const int status = run_under(prefix, RESUME);
        const char *const parts[] = { cases[i].file, strerror(cases[i].error), cases[i].advice };
        expect_message(name, status, parts, 3);
        expect_recovery(k, name);
    }
}

/* The file of adaptations belongs to the best model. */
Test(faults, adaptations)
{
    const run_kind *k = &run_of_adaptations;
    char prefix[400];
    if (!run_kind_wanted(k)) return;
    run_kind_begin(k);
    succeed("%s %s --steps 6 --run-dir straight", k->train, k->often);
    succeed("%s %s --steps 2 --run-dir run", k->train, k->often);
    snprintf(prefix, sizeof prefix,
             "ASAN_OPTIONS=$ASAN_OPTIONS:verify_asan_link_order=0 LD_PRELOAD=%s "
             "FAULT='write 1 %d /adapter.safetensors.tmp-'",
             TP_FAULT_CALLS, ENOSPC);
    const int status = run_under(prefix, RESUME);
    const char *const parts[] = { "run/adapter.safetensors", strerror(ENOSPC), ROOM };
    expect_message("adaptations", status, parts, 3);
    expect_recovery(k, "adaptations");
    cr_expect(same_bytes("straight/adapter.safetensors", "run/adapter.safetensors"));
    program_end();
}

/* ---- streams ---- */

/* With closed standard streams, no message ends up in a file of the run. */
FAULT(closed_streams)
{
    static const char *const closed[] = { "<&-", ">&-", "2>&-", "<&- >&- 2>&-" };
    for (size_t i = 0; i < sizeof closed / sizeof closed[0]; i++) {
        char prefix[200];
        if (!run_kind_takes(k, (int)i)) continue;
        cr_assert(shell("rm -rf run; cp -r base run"));
        snprintf(prefix, sizeof prefix, "sh -c '\"$@\" %s' sh", closed[i]);
        const int status = run_under(prefix, RESUME);
        cr_expect_eq(status, 0, "%s, %s: status %d", k->command, closed[i], status);
        cr_expect(shell("test ! -s run/lock"), "%s, %s: lock", k->command, closed[i]);
        expect_recovery(k, closed[i]);
    }
}

/* ---- memory ---- */

/* Too little memory ends training with a message, never with a hang. OpenBLAS takes 40 MiB and maps
 * 128 MiB for each thread. */
FAULT(little_memory)
{
#ifdef __SANITIZE_ADDRESS__
    (void)k;
    cr_skip_test("the address sanitizer wants terabytes of addresses");
#endif
    for (int threads = 1; threads <= 2; threads++) {
        char prefix[200], args[1024];
        int mib = 60, status = 1;
        snprintf(args, sizeof args, "%s %s --threads %d --steps 2 --run-dir run --overwrite",
                 k->train, k->often, threads);
        for (; mib < 1000; mib += 20) {
            snprintf(prefix, sizeof prefix, "ulimit -v %d; exec timeout -s KILL 60", mib * 1024);
            status = run_under(prefix, args);
            if (status == 0) break;
            cr_expect(status == 1 && (strstr(errors, "memory") || strstr(errors, "thread")),
                      "%s, %d threads, %d MiB: status %d: %s", k->command, threads, mib, status,
                      errors);
        }
        cr_expect(status == 0 && mib > 140, "%s: status %d with %d MiB", k->command, status, mib);
    }
}

/* ---- disks ---- */

/* The signal sent when a file exceeds the size limit does not kill the program. */
FAULT(limit_of_file_size)
{
    cr_assert(shell("cp -r base run"));
    const int status = run_under("ulimit -f 16; exec", RESUME);
    expect_message("ulimit", status,
                   (const char *const[]){ "run/", "File too large", "raise the limit" }, 3);
    expect_recovery(k, "ulimit");
}

/* Skips the test if this user may not mount file systems. */
static void need_mounts(void)
{
    if (shell("unshare -rm sh -c 'mkdir -p m && mount -t tmpfs none m' 2>/dev/null")) return;
    program_end();
    cr_skip_test("this user cannot mount file systems (unshare -rm)");
}

/* The run is on its own file system with little room left; its files are copied out at the end. */
FAULT(full_disk)
{
    static const int rooms[] = { 0, 4, 8, 16, 32, 64, 96, 128, 160 }; /* KiB */
    need_mounts();
    for (size_t i = 0; i < sizeof rooms / sizeof rooms[0]; i++) {
        char prefix[600], name[32];
        if (!run_kind_takes(k, (int)i)) continue;
        snprintf(name, sizeof name, "%d KiB left", rooms[i]);
        snprintf(
            prefix, sizeof prefix,
            "rm -rf run; mkdir run; unshare -rm sh -c '"
            "mount -t tmpfs -o size=64m none run; cp base/* run; head -c %dk /dev/zero >run/room;"
            "cat /dev/zero >run/filler 2>/dev/null; rm run/room; \"$@\"; s=$?; rm run/filler;"
            "mkdir after; cp run/* after; exit $s' sh",
            rooms[i]);
        const int status = run_under(prefix, RESUME);
        expect_message(name, status,
                       (const char *const[]){ "run", "No space left on device", ROOM }, 3);
        cr_assert(shell("rm -rf run; mv after run"));
        expect_recovery(k, name);
    }
}

FAULT(read_only_folder)
{
    need_mounts();
    cr_assert(shell("cp -r base run"));
    const int status = run_under("unshare -rm sh -c 'mount --bind run run;"
                                 "mount -o remount,bind,ro run; exec \"$@\"' sh",
                                 RESUME);
    expect_message("read-only", status,
                   (const char *const[]){ "run folder run", "Read-only", "choose another" }, 3);
    expect_recovery(k, "read-only");
}

/* Training continues if it cannot write its output. */
FAULT(full_output)
{
    char command[600];
    snprintf(command, sizeof command, TP_BIN_DIR "/%s " RESUME " >/dev/full", k->command);
    cr_assert(shell("cp -r base run"));
    cr_assert(shell(command));
    expect_recovery(k, "/dev/full");
}

/* ---- folders ---- */

/* Stops the child when it has no temporary file open, which would end up in the changed folder. */
static void hold(pid_t child)
{
    for (bool writing = true; writing;) {
        kill(child, SIGSTOP);
        cr_assert_eq(waitpid(child, NULL, WUNTRACED), child);
        writing = shell("ls run | grep -q tmp-");
        if (writing) kill(child, SIGCONT);
    }
}

/* Runs a command on the folder while a long run is using it. */
static int run_while(const run_kind *k, const char *command)
{
    int status;
    char args[1024];
    snprintf(args, sizeof args, "%s %s --steps 1000000 --run-dir run", k->train, k->seldom);
    const pid_t child = start(args);
    await_reports("run/log.jsonl", 5);
    hold(child);
    const bool done = shell(command);
    kill(child, SIGCONT);
    cr_assert(done, "%s", command);
    waitpid(child, &status, 0);
    slurp("err", errors, sizeof errors);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

FAULT(vanished_folder)
{
    static const char *const ways[] = { "rm -rf run", "mv run elsewhere" };
    for (int i = 0; i < 2; i++) {
        cr_assert(shell("rm -rf run elsewhere"));
        const int status = run_while(k, ways[i]);
        expect_message(ways[i], status,
                       (const char *const[]){ "run folder run was removed", "recreated",
                                              "continue with --resume" },
                       3);
        cr_expect(update_in("run/last.safetensors") > 0, "%s", ways[i]);
        expect_resumed(k, k->seldom, ways[i]);
    }
}

/* If another run has replaced the folder, the program leaves that run alone, unless the change came
 * between the program's check and its write, which is rare here. */
FAULT(replaced_folder)
{
    bool alone = false;
    for (int i = 0; i < 10 && !alone; i++) {
        cr_assert(shell("rm -rf run elsewhere"));
        const int status = run_while(k, "mv run elsewhere; cp -r base run");
        expect_message("replaced", status, (const char *const[]){ "run folder run was replaced" },
                       1);
        alone = same_bytes("base/last.safetensors", "run/last.safetensors") &&
                same_bytes("base/log.jsonl", "run/log.jsonl");
    }
    cr_expect(alone, "%s", k->command);
}

/* A second process is refused, whatever its command; the lock file of a dead process does not
 * block a new one. */
FAULT(one_process_a_folder)
{
    char message[128], args[1024];
    int status;
    snprintf(args, sizeof args, "%s %s --steps 1000000 --run-dir run", k->train, k->often);
    const pid_t first = start(args);
    await_reports("run/log.jsonl", 3);
    snprintf(message, sizeof message, "run folder run: is in use by process %ld; wait for it",
             (long)first);
    expect_refusal(RESUME, 1, message);
    snprintf(args, sizeof args, "%s --overwrite --steps 1 --run-dir run", k->train);
    expect_refusal(args, 1, message);
    kill(first, SIGKILL);
    waitpid(first, &status, 0);
    cr_expect(WIFSIGNALED(status), "the first process continues");
    const int64_t update = update_in("run/last.safetensors");
    succeed("--resume --run-dir run --steps %lld", (long long)update + 2);
    cr_expect_eq(update_in("run/last.safetensors"), update + 2);
}

/* Removing the lock file neither admits a second process nor harms the run. */
FAULT(lock_is_removed)
{
    char args[1024];
    int status;
    snprintf(args, sizeof args, "%s %s --steps 1000000 --run-dir run", k->train, k->often);
    const pid_t first = start(args);
    await_reports("run/log.jsonl", 3);
    cr_assert(shell("rm run/lock"));
    snprintf(args, sizeof args, "%s --overwrite --steps 1 --run-dir run", k->train);
    expect_refusal(args, 1, "run folder run: is in use by a process whose lock file was removed");
    expect_refusal(RESUME, 1, "run folder run: is in use");
    const int64_t update = update_in("run/last.safetensors");
    nap(0.3);
    kill(first, SIGTERM);
    waitpid(first, &status, 0);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGTERM, "status %x", status);
    cr_expect(update_in("run/last.safetensors") > update, "%s: the run has ended", k->command);
}

/* Of two processes started together, one trains. */
FAULT(starts_together)
{
    char command[4000];
    snprintf(command, sizeof command,
             "rm -rf run; for i in 1 2; do (" TP_BIN_DIR "/%s %s --steps 1 --run-dir run "
             ">out$i 2>err$i; echo $? >status$i) & done; wait; cat status1 status2 | sort >status; "
             "printf '0\n1\n' | cmp -s - status && cat err1 err2 | "
             "grep -q -e 'is in use by process' -e 'already holds a run'",
             k->command, k->train);
    for (int i = 0; i < 8; i++) {
        if (!run_kind_takes(k, i)) continue;
        cr_expect(shell(command), "%s, round %d", k->command, i);
        cr_expect_eq(update_in("run/last.safetensors"), 1, "%s, round %d", k->command, i);
    }
}

/* On a file system without locks, training works and says so. */
FAULT(no_locks)
{
    static const int errors_of_locks[] = { ENOLCK, ENOSYS, EOPNOTSUPP, EINVAL };
    for (size_t i = 0; i < sizeof errors_of_locks / sizeof errors_of_locks[0]; i++) {
        char prefix[512];
        if (!run_kind_takes(k, (int)i)) continue;
        snprintf(prefix, sizeof prefix,
                 "ASAN_OPTIONS=$ASAN_OPTIONS:verify_asan_link_order=0 LD_PRELOAD=%s "
                 "FAULT='locks 1 %d /run'",
                 TP_FAULT_CALLS, errors_of_locks[i]);
        cr_assert(shell("rm -rf run; cp -r base run"));
        const int status = run_under(prefix, RESUME);
        cr_expect_eq(status, 0, "%s, %s: %s", k->command, strerror(errors_of_locks[i]), errors);
        cr_expect(strstr(out, "has no locks"), "%s, %s: %s", k->command,
                  strerror(errors_of_locks[i]), out);
        expect_recovery(k, "no locks");
    }
}

/* The next start repairs a log that ends within a line or has future lines or garbage. */
FAULT(damaged_log)
{
    static const char *const damages[] = {
        "printf '{\"step\":3,\"lo' >>run/log.jsonl",
        "tail -n 1 straight/log.jsonl >>run/log.jsonl",
        "printf 'nonsense\\n{}\\n[1]\\n' >>run/log.jsonl",
        "printf '{\"step\":3,\"loss\":1,\"x\":\\0\\0\\0\\0\\n' >>run/log.jsonl",
        "head -c 100000 /dev/zero >>run/log.jsonl",
        "{ printf '\\357\\273\\277'; cat base/log.jsonl; } >run/log.jsonl", /* a byte order mark */
    };
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        if (!run_kind_takes(k, (int)i)) continue;
        cr_assert(shell("rm -rf run; cp -r base run") && shell(damages[i]));
        expect_recovery(k, damages[i]);
        const bool said = strstr(out, "of run/log.jsonl were left out") != NULL;
        cr_expect_eq(said, i != 1 && i != 5, "%s, %s: %s", k->command, damages[i], out);
    }
}

/* The program does not wait on a pipe in place of the log. */
FAULT(log_that_is_a_pipe)
{
    (void)k;
    cr_assert(shell("cp -r base run; rm run/log.jsonl; mkfifo run/log.jsonl"));
    expect_refusal(RESUME, 1, "run/log.jsonl: is a pipe, not a regular file; remove it");
}

/* The program neither waits nor replaces it. */
FAULT(config_that_is_a_pipe)
{
    (void)k;
    cr_assert(shell("cp -r base run; rm run/config.json; mkfifo run/config.json"));
    expect_refusal(RESUME, 1, "run/config.json");
}

/* Only a missing file means that there is no best model yet. */
FAULT(unreadable_best)
{
    cr_assert(shell("cp -r base run; head -c 100 base/best.safetensors >run/best.safetensors"));
    const int status = run(RESUME);
    expect_message(k->command, status,
                   (const char *const[]){ "the best model so far cannot be read",
                                          "run/best.safetensors", "move it away" },
                   3);
    cr_expect_eq(update_in("run/last.safetensors"), 2, "%s", k->command);
    cr_assert(shell("cp base/best.safetensors run"));
    expect_recovery(k, "unreadable best");
}

/* Flips the bit at this position of the file, given in thousandths of its length. A second call
 * restores it. */
static void flip(const char *path, int part)
{
    FILE *f = fopen(path, "r+b");
    cr_assert(f && fseek(f, 0, SEEK_END) == 0);
    const long bit = ftell(f) * 8 / 1000 * part + part % 8;
    cr_assert_eq(fseek(f, bit / 8, SEEK_SET), 0);
    const int byte = fgetc(f);
    cr_assert(byte != EOF && fseek(f, bit / 8, SEEK_SET) == 0);
    cr_assert(fputc(byte ^ 1 << bit % 8, f) != EOF && fclose(f) == 0);
}

/* No run resumes from a damaged checkpoint, wherever the damage is. */
FAULT(flipped_bits)
{
    for (int part = 0; part < 1000; part += 37) {
        char name[64];
        if (!run_kind_takes(k, part / 37)) continue;
        snprintf(name, sizeof name, "%s, %d", k->command, part);
        cr_assert(shell("rm -rf run; cp -r base run"));
        flip("run/last.safetensors", part);
        cr_assert(shell("cp run/last.safetensors damaged"));
        const int status = run(RESUME);
        expect_message(name, status, (const char *const[]){ "run/last.safetensors: " }, 1);
        cr_expect(same_bytes("damaged", "run/last.safetensors"), "%s: touched", name);
        flip("run/last.safetensors", part);
        if (part % 10 == 0) expect_recovery(k, name);
    }
}
