/* test_mpi.c - processes under the launchers of Open MPI and MPICH: what they exchange, their
 * cores, what is refused, and that nobody waits for one that hangs or dies. peers_program is the
 * process. What a machine lacks is skipped. */
#define _GNU_SOURCE /* sched_getaffinity */
#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tapegrad/data.h>
#include <time.h>
#include <unistd.h>

#include "support/program.h"

enum { MPIS = 2 };

static const struct {
    const char *name, *launcher, *plugin, *flags;
} mpis[MPIS] = {
    { "Open MPI", "mpirun.openmpi", "libtapegrad_openmpi.so", "--oversubscribe" },
    { "MPICH", "mpirun.mpich", "libtapegrad_mpich.so", "" },
};

/* ---- launchers ---- */

static bool there(int m)
{
    char command[400];
    snprintf(command, sizeof command, "command -v %s >/dev/null && test -f %s/../lib/%s",
             mpis[m].launcher, TP_BIN_DIR, mpis[m].plugin);
    return shell(command);
}

static void begin(void)
{
    program_begin("peers_program");
    if (!there(0) && !there(1)) cr_skip_test("no mpirun.openmpi or mpirun.mpich, or no plugin");
}

TestSuite(mpi, .init = begin, .fini = program_end, .timeout = 120);

#define MAY_BE_ROOT "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
#define MAY_LEAK    "ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 " /* as MPI does */

/* Starts a program under a launcher; true if it succeeds. Its words are in out and errors. */
static bool launch(int m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool launch(int m, const char *fmt, ...)
{
    char args[1000], command[2000];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(args, sizeof args, fmt, ap);
    va_end(ap);
    snprintf(command, sizeof command,
             MAY_BE_ROOT MAY_LEAK "timeout -k 1 30 %s %s </dev/null >out 2>err", mpis[m].launcher,
             args);
    const bool done = shell(command);
    slurp("out", out, sizeof out);
    slurp("err", errors, sizeof errors);
    return done;
}

static int count(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part)) n++;
    return n;
}

/* ---- exchanges ---- */

/* Sums have the same bits in every run, on all ranks, under both MPIs. */
static void expect_sums(int ranks, char bits[17])
{
    int lines = 0;
    for (const char *at = out; (at = strstr(at, "sum ")); at += 4, lines++) {
        if (!*bits) snprintf(bits, 17, "%.16s", at + 4);
        cr_expect(strncmp(at + 4, bits, 16) == 0, "%.16s, not %s", at + 4, bits);
    }
    cr_expect_eq(lines, ranks, "%s", out);
}

Test(mpi, exchanges)
{
    char bits[4][17] = { "", "", "", "" };
    for (int m = 0; m < MPIS; m++)
        for (int run = 0; there(m) && run < 3; run++) {
            const int ranks = run < 2 ? 2 : 3;
            cr_expect(
                launch(m, "%s -n %d %s/peers_program exchanges", mpis[m].flags, ranks, TP_BIN_DIR),
                "%s, %d ranks\n%s", mpis[m].name, ranks, errors);
            cr_expect_eq(count(out, "well"), ranks, "%s", out);
            for (int k = 0; k < ranks; k++) {
                char who[100];
                snprintf(who, sizeof who, "rank %d of %d, local %d of %d, %s ", k, ranks, k, ranks,
                         mpis[m].name);
                cr_expect_eq(count(out, who), 1, "%s: %s", who, out);
            }
            expect_sums(ranks, bits[ranks]);
        }
    cr_expect(strcmp(bits[2], bits[3]) != 0, "another number of ranks sums other numbers");
}

/* MPI itself moves bytes only while it is called. */
Test(mpi, messages_arrive_while_the_processes_compute)
{
    for (int m = 0; m < MPIS; m++)
        if (there(m))
            cr_expect(launch(m, "%s -n 2 %s/peers_program computes", mpis[m].flags, TP_BIN_DIR),
                      "%s: %s", mpis[m].name, errors);
}

/* ---- cores ---- */

static int own_cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

/* Reads the lines "cores 0 1" of all ranks: how often each core occurs. Returns the lines. */
static int read_cores(int often[CPU_SETSIZE])
{
    int lines = 0;
    memset(often, 0, CPU_SETSIZE * sizeof *often);
    for (char *at = out; (at = strstr(at, "cores")); lines++) {
        at += strlen("cores");
        while (*at == ' ') often[strtol(at, &at, 10) % CPU_SETSIZE]++;
    }
    return lines;
}

Test(mpi, each_process_has_its_own_cores)
{
    static int often[CPU_SETSIZE];
    const int cores = own_cores();
    if (cores < 2) cr_skip_test("one core");
    for (int m = 0; m < MPIS; m++) {
        if (!there(m)) continue;
        int total = 0;
        cr_assert(launch(m, "-n 2 %s/peers_program cores", TP_BIN_DIR), "%s", errors);
        cr_assert_eq(read_cores(often), 2, "%s", out);
        for (int i = 0; i < CPU_SETSIZE; i++) {
            cr_expect_leq(often[i], 1, "%s: two processes have core %d", mpis[m].name, i);
            total += often[i];
        }
        cr_expect(total >= 2 && total <= cores, "%s", out);
        total = 0;
        cr_assert(launch(m, "-n 1 %s/peers_program cores", TP_BIN_DIR), "%s", errors);
        read_cores(often);
        for (int i = 0; i < CPU_SETSIZE; i++) total += often[i];
        cr_expect_eq(total, cores, "%s: alone on its host a process has all: %s", mpis[m].name,
                     out);
    }
}

Test(mpi, who_was_bound_on_purpose_stays)
{
    static int often[CPU_SETSIZE];
    if (own_cores() < 2) cr_skip_test("one core");
    for (int m = 0; m < MPIS; m++) {
        if (!there(m)) continue;
        cr_assert(launch(m, "-bind-to core -n 1 %s/peers_program cores", TP_BIN_DIR), "%s", errors);
        cr_assert_eq(read_cores(often), 1, "%s", out);
        int total = 0;
        for (int i = 0; i < CPU_SETSIZE; i++) total += often[i];
        cr_expect_lt(total, own_cores(), "%s: %s", mpis[m].name, out);
        cr_assert(launch(m, "-n 1 taskset -c 1 %s/peers_program kept", TP_BIN_DIR), "%s", errors);
        cr_expect(strstr(out, "cores 1\n"), "%s: %s", mpis[m].name, out);
    }
}

/* ---- refusals ---- */

Test(mpi, alone_under_a_launcher)
{
    for (int m = 0; m < MPIS; m++)
        if (there(m))
            cr_expect(launch(m, "-n 1 %s/peers_program exchanges", TP_BIN_DIR) &&
                          strcmp(out, "alone\n") == 0,
                      "%s: %s%s", mpis[m].name, out, errors);
}

Test(mpi, without_its_plugin)
{
    for (int m = 0; m < MPIS; m++) {
        if (!there(m)) continue;
        cr_assert(shell("mkdir -p bin lib && cp " TP_BIN_DIR "/peers_program bin"));
        cr_expect(!launch(m, "%s -n 2 bin/peers_program exchanges", mpis[m].flags));
        cr_expect(strstr(errors, mpis[m].plugin) && strstr(errors, "build tapegrad again"), "%s",
                  errors);
    }
}

/* The plugin of one MPI under the launcher of the other believes to be alone. */
Test(mpi, under_the_launcher_of_another)
{
    if (!there(0) || !there(1)) cr_skip_test("only one MPI");
    for (int m = 0; m < MPIS; m++) {
        char command[1000];
        snprintf(command, sizeof command,
                 "rm -rf bin lib && mkdir -p bin lib && cp %s/peers_program bin && "
                 "cp %s/../lib/%s lib/%s",
                 TP_BIN_DIR, TP_BIN_DIR, mpis[1 - m].plugin, mpis[m].plugin);
        cr_assert(shell(command));
        cr_expect(!launch(m, "%s -n 2 bin/peers_program exchanges", mpis[m].flags));
        cr_expect(strstr(errors, "rank 1 of 2, but ") && strstr(errors, "rank 0 of 1") &&
                      strstr(errors, mpis[1 - m].name),
                  "%s", errors);
    }
}

Test(mpi, srun_without_a_way_to_meet)
{
    cr_expect_eq(run_under("SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=1", "exchanges"), 1);
    cr_expect(strstr(errors, "srun started 4 processes") && strstr(errors, "--mpi=pmix"), "%s",
              errors);
    cr_expect_eq(run_under("SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1", "exchanges"), 0);
    cr_expect(strcmp(out, "alone\n") == 0, "a batch script: %s", out);
}

Test(mpi, flags_are_refused_once)
{
    for (int m = 0; m < MPIS; m++) {
        if (!there(m)) continue;
        cr_expect(!launch(m, "%s -n 2 %s/first_text --stepps 3", mpis[m].flags, TP_BIN_DIR));
        cr_expect_eq(count(errors, "Try 'first_text --help'"), 1, "%s", errors);
        cr_expect(launch(m, "%s -n 2 %s/first_text --help", mpis[m].flags, TP_BIN_DIR));
        cr_expect_eq(count(out, "EXIT STATUS"), 1, "%s", out);
    }
}

/* ---- runs ---- */

/* Starts a run of first_text and sends a signal after so many lines of its log: to the launcher, or
 * to the last process. Returns for how many seconds the run goes on. */
static double signal_run(int m, const char *flags, int lines, const char *signal, bool to_launcher)
{
    char command[2000];
    snprintf(command, sizeof command,
             MAY_BE_ROOT MAY_LEAK
             "%s %s -n 2 %s/first_text --eval-every 0 %s </dev/null >out 2>err & "
             "p=$!; until [ $(cat run/log.jsonl 2>/dev/null | wc -l) -ge %d ]; do "
             "kill -0 $p 2>/dev/null || break; sleep 0.05; done; sleep 0.2; "
             "kill -%s $(%s); date +%%s >signalled; wait $p; echo status $? >>out",
             mpis[m].launcher, mpis[m].flags, TP_BIN_DIR, flags, lines, signal,
             to_launcher ? "echo $p" : "pgrep -n -f \"first_text .*$(pwd)\"");
    shell(command);
    slurp("out", out, sizeof out);
    slurp("err", errors, sizeof errors);
    char text[30] = "";
    slurp("signalled", text, sizeof text);
    return difftime(time(NULL), (time_t)atoll(text));
}

Test(mpi, usr1_stops_a_run_which_resumes)
{
    for (int m = 0; m < MPIS; m++) {
        if (!there(m)) continue;
        cr_assert(shell("rm -rf run"));
        signal_run(m, "--log-every 1 --steps 3000 --epochs 0 --run-dir run", 5, "USR1", true);
        cr_expect(strstr(out, "stopped by SIGUSR1"), "%s: %s%s", mpis[m].name, out, errors);
        const int64_t update = update_in("run/last.safetensors");
        cr_expect(update >= 5 && update < 3000, "%lld", (long long)update);
        cr_expect(launch(m, "%s -n 2 %s/first_text --resume --steps %d --run-dir run",
                         mpis[m].flags, TP_BIN_DIR, (int)update + 3),
                  "%s", errors);
        cr_expect_eq(update_in("run/last.safetensors"), update + 3);
    }
}

/* The sentence names rank, host and update. Reports, which have twenty times as long, are rare; the
 * signal comes between two. */
Test(mpi, a_run_ends_when_a_process_hangs)
{
    for (int m = 0; m < MPIS; m++) {
        char flags[700];
        if (!there(m)) continue;
        cr_assert(shell("rm -rf run; mkdir run"));
        snprintf(flags, sizeof flags,
                 "--log-every 100 --steps 200000 --epochs 0 --peer-timeout 2 --overwrite "
                 "--run-dir $(pwd)/run");
        const double took = signal_run(m, flags, 1, "STOP", false);
        cr_expect(took < 40 && !strstr(out, "status 0"), "%.0f s: %s", took, out);
        cr_expect(strstr(errors, "first_text: rank ") && strstr(errors, " for 2 s, in update "),
                  "%s: %s", mpis[m].name, errors);
        cr_expect(!shell("pgrep -f \"first_text .*$(pwd)\" >/dev/null"), "none is left");
    }
}

/* ---- processes that hang or die ---- */

/* Expects that the processes whose numbers were printed end. */
static void expect_nobody_left(const char *what)
{
    for (const char *at = out; (at = strstr(at, "pid ")); at += 4) {
        const pid_t process = (pid_t)atoi(at + 4);
        bool gone = false;
        for (int i = 0; i < 50 && !gone; i++) {
            gone = kill(process, 0) != 0 && errno == ESRCH;
            if (!gone) nap(0.1);
        }
        cr_expect(gone, "%s: process %d is left", what, (int)process);
        if (!gone) kill(process, SIGKILL);
    }
}

/* The limit of peers_program is 2 s. */
static void expect_end(int m, const char *task, double limit)
{
    const double began = tp_seconds();
    cr_expect(!launch(m, "%s -n 3 %s/peers_program %s", mpis[m].flags, TP_BIN_DIR, task));
    const double took = tp_seconds() - began;
    cr_expect_lt(took, limit, "%s, %s: %.1f s", mpis[m].name, task, took);
    expect_nobody_left(task);
}

Test(mpi, nobody_waits_for_a_process_that_hangs)
{
    for (int m = 0; m < MPIS; m++) {
        if (!there(m)) continue;
        expect_end(m, "stop", 10);
        cr_expect(strstr(errors, "peers_program: rank 2 on host ") &&
                      strstr(errors, " has not answered rank ") &&
                      strstr(errors, " for 2 s, in the test"),
                  "%s: %s", mpis[m].name, errors);
        cr_expect_leq(count(errors, "has not answered"), 2, "%s", errors);
        expect_end(m, "early", 40); /* some mpiruns lose their way when processes close */
        cr_expect(strstr(errors, "another rank has not answered rank "), "%s: %s", mpis[m].name,
                  errors);
    }
}

Test(mpi, nobody_waits_for_a_process_that_died)
{
    for (int m = 0; m < MPIS; m++)
        if (there(m)) expect_end(m, "kill", 10);
}
