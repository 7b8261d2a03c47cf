/* test_mpi_faults.c - runs in several processes of which one dies, hangs or fails: the others
 * end within the limit with one sentence, nothing is lost beyond the last checkpoint, and the
 * run that continues gets the bits of one without a fault. Also scripts/run-elastic.sh, and
 * hosts whose cable is cut or slow (network namespaces). What a machine lacks is skipped. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/data.h>
#include <tapegrad/file.h>
#include <unistd.h>

#include "support/mpi.h"
#include "support/program.h"

#define SUPPORT TP_SOURCE_DIR "/tests/support/"
#define ELASTIC TP_SOURCE_DIR "/scripts/run-elastic.sh"

enum { AT = 8, SAVED = 5 }; /* the update of the fault and of the checkpoint before it */

/* Seconds, only where silence is the subject: a busy machine is slow. */
#define LIMIT   "3"
#define LIMITED "--peer-timeout " LIMIT " "

static char host[100]; /* this one */

static void begin(void)
{
    program_begin("faults_program");
    if (!has_mpi(OPEN_MPI) && !has_mpi(MPICH)) cr_skip_test("no launcher, or no plugin");
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1); /* for run-elastic.sh */
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    gethostname(host, sizeof host - 1);
}

TestSuite(mpi_faults, .init = begin, .fini = program_end, .timeout = 600);

/* ---- runs ---- */

/* The flags of all runs. The folder's whole path distinguishes their processes from others'. */
static const char *flags_of(const char *run)
{
    static char text[5000];
    char here[4096];
    cr_assert(getcwd(here, sizeof here));
    snprintf(text, sizeof text, "--steps 20 --checkpoint-every %d --run-dir %s/%s ", SAVED, here,
             run);
    return text;
}

static int train(mpi_kind m, int ranks, const char *run, const char *more)
{
    char args[5200], prefix[300];
    snprintf(args, sizeof args, "%s%s", flags_of(run), more);
    snprintf(prefix, sizeof prefix, "ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 %s",
             mpi_command(m, ranks)); /* MPI leaks */
    return run_under(prefix, args);
}

static mpi_kind any_mpi(void)
{
    return has_mpi(MPICH) ? MPICH : OPEN_MPI;
}

/* A run without a fault. */
static void train_reference(int ranks)
{
    if (access("reference", F_OK) == 0) return;
    cr_assert_eq(train(any_mpi(), ranks, "reference", ""), 0, "%s", errors);
}

static void expect_nobody_left(const char *what)
{
    const char *const left = "pgrep -f \"^[^ ]*faults_program .*$(pwd)\"";
    char command[200];
    for (int i = 0; i < 50 && shell(left); i++) nap(0.1);
    cr_expect(!shell(left), "%s: these are left", what);
    snprintf(command, sizeof command, "%s | xargs -r kill -9", left);
    shell(command);
}

/* Reads all data of the checkpoint, and so its checksums. */
static void expect_whole(const char *path, int64_t update)
{
    tp_file *F = tp_file_open(path);
    int64_t found = -1;
    tp_file_int(F, "update", &found);
    for (int i = 0; i < tp_file_count(F); i++) {
        cr_expect(tp_file_data(F, tp_file_at(F, i)));
    }
    cr_expect(tp_file_ok(F), "%s", tp_file_why(F));
    cr_expect_eq(found, update, "update %lld", (long long)found);
    tp_file_close(F);
}

static void expect_same_end(const char *what)
{
    cr_expect(same_bytes("reference/last.safetensors", "run/last.safetensors"), "%s", what);
    cr_expect(same_bytes("reference/best.safetensors", "run/best.safetensors"), "%s", what);
    cr_expect(shell("grep -o '\"step\": *[0-9]*' reference/log.jsonl >a; "
                    "grep -o '\"step\": *[0-9]*' run/log.jsonl | cmp - a"),
              "%s: each report comes once", what);
}

/* ---- one fault in one process ---- */

typedef struct fault {
    const char *kind;
    int rank;
    const char *message; /* after "rank R on host H" */
    bool waits;          /* until the limit is over */
} fault;

static const fault faults[] = {
    { "stop", 1, " has not answered rank 0 on host ", true },
    { "hang", 0, " has not answered rank 1 on host ", true },
    { "slow", 1, " has not answered rank 0 on host ", true },
    { "memory", 1, ": tp_full: out of memory on cpu: requested 1.00 GiB", false },
    { "nan", 1, ": the loss is nan at update 8; ", false },
    { "disk", 0, ": log ", false },
    { "fail", 1, ": the disk with the data is gone", false },
    { "kill", 1, NULL, false }, /* here the launchers tell */
    { "exit", 1, NULL, false },
};

static void expect_sentence(const fault *f, mpi_kind m)
{
    char text[300];
    snprintf(text, sizeof text, "faults_program: rank %d on host %s%s", f->rank, host,
             f->message ? f->message : "");
    const char *found = f->message ? strstr(errors, text) : NULL;
    if (f->message)
        cr_expect(found && !strstr(found + 1, "faults_program: rank "), "%s, %s: '%s' once\n%s",
                  mpi_name(m), f->kind, text, errors);
    else if (m == OPEN_MPI)
        cr_expect(strstr(errors, "process rank 1 ") && strstr(errors, host), "%s: %s", f->kind,
                  errors);
    else if (strcmp(f->kind, "kill") == 0)
        cr_expect(strstr(out, "RUNNING AT") && strstr(out, host), "%s", out);
}

static void expect_survived(const fault *f, mpi_kind m)
{
    char flags[100];
    snprintf(flags, sizeof flags, LIMITED "--fault %s --fault-rank %d --fault-at %d", f->kind,
             f->rank, AT);
    cr_assert(shell("rm -rf run"));
    const double began = tp_seconds();
    const int status = train(m, 2, "run", flags);
    const double took = tp_seconds() - began;
    const bool hidden = m == MPICH && strcmp(f->kind, "exit") == 0; /* its status is 0 */
    cr_expect(hidden || status != 0, "%s, %s", mpi_name(m), f->kind);
    cr_expect_lt(took, (f->waits ? 1.1 * atoi(LIMIT) : 0) + 10, "%s, %s: %.1f s", mpi_name(m),
                 f->kind, took);
    expect_sentence(f, m);
    expect_nobody_left(f->kind);
    expect_whole("run/last.safetensors", SAVED);
    cr_expect_eq(train(m, 2, "run", "--resume"), 0, "%s", errors);
    expect_same_end(f->kind);
}

Test(mpi_faults, one_process)
{
    train_reference(2);
    for (int m = 0; m < MPI_KINDS; m++)
        for (size_t i = 0; has_mpi((mpi_kind)m) && i < sizeof faults / sizeof *faults; i++)
            expect_survived(&faults[i], (mpi_kind)m);
}

/* A limit of addresses before the start, on one process. */
Test(mpi_faults, no_memory_at_the_start)
{
    char command[6000];
    const mpi_kind m = any_mpi();
    snprintf(command, sizeof command,
             "%s sh -c '[ ${PMI_RANK:-$OMPI_COMM_WORLD_RANK} = 0 ] || ulimit -v 300000; "
             "exec %s/faults_program %s' >out 2>err",
             mpi_command(m, 2), TP_BIN_DIR, flags_of("run"));
    cr_expect(!shell(command));
    slurp("err", errors, sizeof errors);
    cr_expect(strstr(errors, "memory") || strstr(errors, "OpenBLAS"), "%s", errors);
    expect_nobody_left("no memory at the start");
}

/* ---- scripts/run-elastic.sh ---- */

static const char *launcher_of(mpi_kind m)
{
    return m == MPICH ? "mpirun.mpich" : "'mpirun.openmpi --oversubscribe'";
}

/* run-elastic.sh with a run in three processes. */
static const char *elastic(mpi_kind m, const char *more)
{
    static char text[7000];
    snprintf(text, sizeof text, "%s -n 3 --mpirun %s %s/faults_program %s %s", ELASTIC,
             launcher_of(m), TP_BIN_DIR, flags_of("run"), more);
    return text;
}

/* KILLS and SEED in the environment change how many there are, and which. */
static void kill_at_random(mpi_kind m)
{
    const char *kills = getenv("KILLS"), *seed = getenv("SEED");
    const int n = kills ? atoi(kills) : 3;
    char more[100], command[9000];
    snprintf(more, sizeof more, "--steps %d --nap 20", 50 * n);
    cr_assert(shell("rm -rf run reference"));
    cr_assert_eq(train(any_mpi(), 3, "reference", more), 0, "%s", errors);
    snprintf(command, sizeof command,
             "%skill_ranks.sh %d %s run %s >kills 2>&1 && grep -qx 'kills: %d, status 0' kills",
             SUPPORT, n, seed ? seed : "1", elastic(m, more), n);
    const bool done = shell(command);
    if (!done) shell("grep -a '^kill\\|run-elastic' kills | tail >&2");
    cr_expect(done, "%s, seed %s", mpi_name(m), seed ? seed : "1");
    expect_same_end("random kills");
    expect_nobody_left("random kills");
}

Test(mpi_faults, random_kills)
{
    for (int m = 0; m < MPI_KINDS; m++)
        if (has_mpi((mpi_kind)m)) kill_at_random((mpi_kind)m);
}

/* A signal to the script stops the run, which it does not begin again. */
Test(mpi_faults, a_signal_to_the_script)
{
    static const char *const signals[] = { "TERM", "INT", "USR1" };
    char command[9000];
    train_reference(3);
    for (int m = 0; m < MPI_KINDS; m++)
        for (int i = 0; has_mpi((mpi_kind)m) && i < 3; i++) {
            snprintf(command, sizeof command,
                     "rm -rf run; env --default-signal %s >out 2>err & p=$!; "
                     "until grep -qs '\"step\": *6,' run/log.jsonl; do sleep 0.1; "
                     "kill -0 $p || exit 1; done; kill -%s $p; wait $p; echo status $? >>out",
                     elastic((mpi_kind)m, "--nap 100"), signals[i]);
            shell(command);
            slurp("out", out, sizeof out);
            slurp("err", errors, sizeof errors);
            cr_expect(strstr(out, "stopped by SIGUSR1 after update "), "%s, %s: %s\n%s",
                      mpi_name((mpi_kind)m), signals[i], out, errors);
            expect_nobody_left(signals[i]);
            cr_expect(update_in("run/last.safetensors") >= 6);
            cr_expect(shell(elastic((mpi_kind)m, "--resume >out 2>err")), "%s", signals[i]);
            expect_same_end(signals[i]);
        }
}

/* What cannot begin is not begun again; a run that makes no progress ends. */
Test(mpi_faults, the_script_gives_up)
{
    const mpi_kind m = any_mpi();
    cr_expect(!shell(elastic(m, "--no-such-flag >out 2>err")));
    slurp("err", errors, sizeof errors);
    cr_expect(strstr(errors, "--no-such-flag") && !strstr(errors, "continuing"), "%s", errors);
    cr_expect(!shell(elastic(m, "--fault fail --fault-at 8 >out 2>err")));
    slurp("err", errors, sizeof errors);
    cr_expect(strstr(errors, "three failures without a new checkpoint after update 5"), "%s",
              errors);
    cr_expect(shell(elastic(m, "--resume >out 2>err")));
    cr_expect_eq(update_in("run/last.safetensors"), 20);
}

/* ---- hosts ---- */

#define NETNS SUPPORT "netns.sh "

static void end_hosts(void)
{
    shell(NETNS "down");
    program_end();
}

static void begin_hosts(void)
{
    begin();
    if (!shell(NETNS "possible")) {
        fprintf(stderr, "test_mpi_faults: network namespaces are skipped: they need root, ip, tc "
                        "and a kernel with veth and tbf\n");
        cr_skip_test("no network namespaces");
    }
}

TestSuite(mpi_hosts, .init = begin_hosts, .fini = end_hosts, .timeout = 300);

/* Runs on two hosts, and `then` once the run has come to update 6. True if it succeeds. */
static bool run_on_hosts(mpi_kind m, const char *more, const char *then)
{
    char command[9000];
    snprintf(command, sizeof command,
             "rm -rf run; timeout 100 " NETNS "run %s 2 %s/faults_program " LIMITED "%s %s "
             "</dev/null >out 2>err & p=$!; "
             "until grep -qs '\"step\": *6,' run/log.jsonl; do sleep 0.1; "
             "kill -0 $p || break; done; %s; wait $p",
             m == MPICH ? "mpich" : "openmpi", TP_BIN_DIR, flags_of("run"), more, then);
    const bool done = shell(command);
    slurp("out", out, sizeof out);
    slurp("err", errors, sizeof errors);
    return done;
}

/* The processes end within the limit. The launcher may wait for the lost host, so run-elastic.sh
 * ends it, and continues: by then the cable is mended. */
static const char *const cut_and_mend =
    "until grep -qs '\"step\": *6,' run/log.jsonl; do sleep 0.1; kill -0 $p || break; done; " NETNS
    "cut 2; for i in $(seq 80); do sleep 0.1; "
    "pgrep -f \"^[^ ]*faults_program .*$(pwd)\" >/dev/null || break; done; echo $i >ticks; "
    "for i in $(seq 150); do grep -q run-elastic.sh: err && break; sleep 0.1; done; " NETNS
    "mend 2; wait $p";

static void cut_cable(mpi_kind m)
{
    char command[9000];
    cr_assert(shell(NETNS "up 2"));
    snprintf(command, sizeof command,
             "rm -rf run; timeout 100 %s -n 2 --mpirun '%srun %s 2' %s/faults_program %s " LIMITED
             "--nap 200 </dev/null >out 2>err & p=$!; %s",
             ELASTIC, NETNS, m == MPICH ? "mpich" : "openmpi", TP_BIN_DIR, flags_of("run"),
             cut_and_mend);
    cr_expect(shell(command), "the run continues after its cable is mended");
    slurp("err", errors, sizeof errors);
    slurp("ticks", out, sizeof out);
    cr_expect_lt(atoi(out), 80, "%s: all end within 8 s", mpi_name(m));
    cr_expect(strstr(errors, "faults_program: rank 1 on host ") &&
                  strstr(errors, " has not answered rank 0 on host ") &&
                  strstr(errors, "(last checkpoint: update 5)"),
              "%s: %s", mpi_name(m), errors);
    expect_nobody_left("a cut cable");
    expect_same_end("a cut cable");
    cr_assert(shell(NETNS "down"));
}

Test(mpi_hosts, a_cable_is_cut)
{
    train_reference(2);
    for (int m = 0; m < MPI_KINDS; m++)
        if (has_mpi((mpi_kind)m)) cut_cable((mpi_kind)m);
}

/* The exchanges of an update take about a second. */
Test(mpi_hosts, a_slow_cable)
{
    for (int m = 0; m < MPI_KINDS; m++) {
        if (!has_mpi((mpi_kind)m)) continue;
        cr_assert(shell(NETNS "up 2 10mbit"));
        cr_expect(run_on_hosts((mpi_kind)m, "--steps 2 --width 20000", ":"), "%s: %s",
                  mpi_name((mpi_kind)m), errors);
        cr_expect_eq(update_in("run/last.safetensors"), 2);
        cr_assert(shell(NETNS "down"));
    }
}

/* Delays on the way change no bit. */
Test(mpi_hosts, a_long_way)
{
    cr_assert(shell(NETNS "up 2"));
    if (!shell(NETNS "delay 2 50ms 2>/dev/null")) {
        fprintf(stderr, "test_mpi_faults: a delay is skipped: this kernel lacks netem\n");
        cr_skip_test("no netem");
    }
    train_reference(2);
    cr_expect(run_on_hosts(any_mpi(), "", ":"), "%s", errors);
    expect_same_end("a delay");
}
