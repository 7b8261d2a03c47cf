/* bench_ops.c - time of single ops, forward and backward, as JSON lines (--help).
 *
 * "utilisation" is a rate divided by one of two rates of the same run: "sgemm_gflops" of the first
 * line, a 1024^3 f32 product split by rows over threads that call single-threaded OpenBLAS
 * (timing.h), or that of the case "copy", a pass over more memory than the caches hold. FLOPs are
 * those that the result needs (for ls_attention by the closed form: visible vectors and the band),
 * so repeated work does not count; memory-bound ops count the bytes they must move. Backward counts
 * twice forward. "ms" is the median of the repetitions, rates are of the best. The growing contexts
 * (those from 16K tokens on only with --long yes) compare their time with the closed form,
 * extrapolated from the first. "mb" is the device memory of inputs, results, gradients, saved
 * tensors and scratch. --clock cpu counts the CPU time of all threads; with one thread that is a
 * fair measure on a busy machine.
 *
 * A case that fails prints a line with "error", the others go on, and the exit status is 1.
 *
 * On CUDA the cases are larger and times are those of the op's kernels by the GPU's clock
 * (tp_device_profile); the two rates are those of "matmul" and "copy" there. Cases run in a child
 * process; one that takes longer than a minute is abandoned. --smoke makes these
 * cases small, to try the program; its figures mean nothing. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <tapegrad/options.h>
#include <tapegrad/tapegrad.h>
#include <unistd.h>

#include "op_case.h"
#include "timing.h"

enum { MAX_REPS = 400, MIN_REPS = 2, LONG_CONTEXT = 16384, HEAD_START = 134217728, SHRINK = 4096 };
enum { LONGEST = 60 }; /* seconds of a case on a GPU */

typedef struct settings {
    tp_device_opts device;
    bool cuda;
    char *filter, *device_name;
    int64_t threads;
    int isa, bf16, clock, run_long, smoke, list; /* indices of the choices      */
    double seconds;                              /* of each case and direction  */
    tp_dtype dtype;                              /* of matrix products          */
} settings;

/* ---- measuring ---- */

/* The machine's rates in this run: MFLOP/s of OpenBLAS (CUDA: of "matmul") and MB/s of "copy"; 0:
 * unknown. */
typedef struct rates {
    double products, copies;
} rates;

/* Prints one line. Returns the case's rate, of FLOPs if it counts them, else of bytes. */
static double report(const op_case *k, const settings *s, bool backward, double *seconds, int n,
                     const tp_stats *stats, const rates *machine)
{
    const tp_dtype dt = s->dtype;
    static double first_rate[2]; /* of an op's first growing context, by direction */
    static const char *first_op = "";
    const bool bytes = k->mflop == 0.0;
    const double middle = median(seconds, n);
    const double share = (double)tp_dtype_size(dt) / 4.0; /* of the bytes of f32 */
    const double size = bytes ? share * k->mbyte : k->mflop;
    const double size_back = k->mbyte_back > 0.0 ? share * k->mbyte_back : 2.0 * size;
    const double rate = (backward ? size_back : size) / seconds[0];
    const double best = bytes ? machine->copies : machine->products;
    printf("{\"op\": \"%s\", \"direction\": \"%s\", \"shape\": \"%s\", \"dtype\": \"%s\", "
           "\"threads\": %d, "
           "\"isa\": \"%s\", \"ms\": %.4f, \"best_ms\": %.4f, \"%s\": %.1f, \"mb\": %.1f",
           k->op, backward ? "backward" : "forward", k->shape, tp_dtype_name(dt), stats->threads,
           stats->isa, 1e3 * middle, 1e3 * seconds[0], bytes ? "gbytes_per_s" : "gflops",
           1e-3 * rate, (double)stats->peak_bytes / 1048576.0);
    if (best > 0.0) printf(", \"utilisation\": %.3f", rate / best);
    if (s->smoke) printf(", \"smoke\": true");
    if (k->tokens > 0) {
        if (strcmp(first_op, k->op) != 0) first_rate[0] = first_rate[1] = 0.0;
        first_op = k->op;
        if (first_rate[backward] == 0.0) first_rate[backward] = rate;
        printf(", \"time_to_closed_form\": %.3f, \"bytes_a_token\": %.0f",
               first_rate[backward] / rate, (double)stats->peak_bytes / (double)k->tokens);
    }
    puts("}");
    fflush(stdout);
    return rate;
}

/* Prints the line of a case that failed, with the first line of why. */
static void report_error(const op_case *k, const settings *s, const char *why)
{
    printf("{\"op\": \"%s\", \"shape\": \"%s\", \"dtype\": \"%s\", \"error\": \"", k->op, k->shape,
           tp_dtype_name(s->dtype));
    for (; *why && *why != '\n'; why++) putchar(*why == '"' || *why == '\\' ? '\'' : *why);
    puts("\"}");
    fflush(stdout);
}

/* Measures a case and returns its forward rate; 0: the tape or the device has failed. h is for a
 * GPU. */
static double measure(tp_tape *T, const op_case *k, const settings *s, const head_start *h,
                      const rates *machine)
{
    static double forward[MAX_REPS], backward[MAX_REPS];
    double total = 0.0;
    case_inputs in;
    case_inputs_place(T, k, &in);
    int n = -1; /* the first run warms up memory and caches */
    const int least = s->smoke ? 1 : MIN_REPS;
    for (; n < MAX_REPS && (n < least || total < 2.0 * s->seconds) && tp_ok(T); n++) {
        double f = 0.0, b = 0.0;
        if (s->cuda)
            gpu_step(T, k, &in, h, s->dtype, &f, &b);
        else
            cpu_step(T, k, &in, &f, &b);
        if (n < 0) continue;
        forward[n] = f;
        backward[n] = b;
        total += f + b;
    }
    tp_stats stats = tp_device_stats(tp_device_of(T));
    if (s->cuda) stats.peak_bytes -= h->bytes;
    case_inputs_release(T, k, &in);
    if (!tp_ok(T) || !tp_device_ok(tp_device_of(T))) return 0.0;
    const double rate = report(k, s, false, forward, n, &stats, machine);
    if (!k->update && !k->forward_only) report(k, s, true, backward, n, &stats, machine);
    return rate;
}

static bool wanted(const op_case *k, const settings *s)
{
    char name[128];
    snprintf(name, sizeof name, "%s %s", k->op, k->shape);
    if (k->update && s->dtype != TP_F32) return false; /* parameters are f32 */
    return strstr(name, s->filter) && (k->tokens < LONG_CONTEXT || s->run_long);
}

/* ---- processes ----
 *
 * After a kernel's error a process cannot use the GPU any more, and a kernel that does not end
 * holds its process up. So the cases run in a child process, and those that are left in another
 * one. */

enum { DONE = 0, MORE = 100 }; /* statuses of a child */

/* Memory that child processes share with this one, cleared; NULL: none is left. */
static void *shared_memory(size_t bytes)
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

/* Calls work(env) in a child process, and again in a new one as long as it returns false or its
 * process ends early. In the latter case lost(env, how) is called in this process before, and
 * returns whether there is work left. env is shared memory. False: no process could be started. */
static bool in_processes(bool (*work)(void *env), bool (*lost)(void *env, const char *how),
                         void *env)
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

/* ---- all cases ---- */

/* What is left of a run, in memory that its processes share. */
typedef struct progress {
    const settings *s;
    int at, failed; /* cases: the next or current one, and how many have failed */
    rates machine;
} progress;

/* The case of that number; NULL: there are no more. */
static const op_case *case_at(const settings *s, int number)
{
    const op_case *k = !s->cuda ? op_cases_cpu : s->smoke ? op_cases_smoke : op_cases_cuda;
    for (; k->op && number > 0; number--) k++;
    return k->op ? k : NULL;
}

static bool list(const settings *s)
{
    const op_case *k;
    for (int i = 0; (k = case_at(s, i)); i++)
        if (wanted(k, s)) op_case_print(k);
    return true;
}

static void run_case(tp_device *D, const op_case *k, const head_start *h, progress *p)
{
    const settings *s = p->s;
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .train = true, .compute = s->dtype });
    if (s->cuda && !s->smoke) alarm(LONGEST); /* ends the process */
    const double rate = measure(T, k, s, h, &p->machine);
    alarm(0);
    if (!tp_ok(T) || !tp_device_ok(D)) {
        report_error(k, s, tp_ok(T) ? tp_device_why(D) : tp_why(T));
        p->failed++;
    }
    if (p->at == 0 && s->cuda) p->machine.products = rate;
    if (p->at == 1) p->machine.copies = rate;
    tp_tape_free(T);
}

/* Runs the cases from p->at on. False: the device has failed, and the rest needs another process.
 * If it failed before the first case, another would fare no better. */
static bool run_cases(void *env)
{
    progress *p = env;
    const settings *s = p->s;
    const int first = p->at;
    tp_device *D = tp_device_open(s->device_name, &s->device);
    const op_case *k;
    head_start h = { 0 };
    if (s->cuda) {
        h = head_start_new(D, s->smoke ? HEAD_START / SHRINK : HEAD_START);
    } else if (tp_device_ok(D)) {
        p->machine.products = 1e-6 * blas_rate(tp_device_stats(D).threads);
        printf("{\"sgemm_gflops\": %.1f}\n", 1e-3 * p->machine.products);
    }
    for (; tp_device_ok(D) && (k = case_at(s, p->at)); p->at++)
        if (p->at < 2 || wanted(k, s)) run_case(D, k, &h, p);
    const bool ok = tp_device_ok(D), stuck = !ok && p->at == first;
    if (stuck) fprintf(stderr, "%s\n", tp_device_why(D));
    p->failed += stuck;
    head_start_free(&h);
    tp_device_close(D);
    return ok || stuck;
}

/* The process of case p->at has ended. */
static bool lose_case(void *env, const char *how)
{
    progress *p = env;
    const op_case *k = case_at(p->s, p->at++);
    p->failed++;
    if (k) report_error(k, p->s, how);
    return k != NULL;
}

/* True if no case failed. */
static bool run(const settings *s)
{
    progress here = { .s = s }, *p = s->cuda ? shared_memory(sizeof *p) : &here;
    if (p) *p = here;
    const bool ran = p && (s->cuda ? in_processes(run_cases, lose_case, p) : run_cases(p));
    if (!ran)
        fprintf(stderr, "there is no memory for another process\n");
    else if (p->failed > 0)
        fprintf(stderr, "cases that failed: %d\n", p->failed);
    return ran && p->failed == 0;
}

/* ---- arguments ---- */

#define S   settings
#define YES "no|yes"

static const tp_option table[] = {
    TP_HEADING("OPTIONS"),
    TP_STRING("filter", S, filter, "TEXT", 0, "Run only cases whose name contains TEXT."),
    TP_INT("threads", S, threads, 0, 1024, 0, "CPU threads; 0: all cores."),
    TP_CHOICE("isa", S, isa, "auto|base|avx2|avx512|amx", 0, "Instruction set of the CPU kernels."),
    TP_NUM("seconds", S, seconds, 0.001, 3600, 0, "Duration of each case and direction."),
    TP_CHOICE("long", S, run_long, YES, 0, "Also run contexts from 16K tokens on."),
    TP_CHOICE("clock", S, clock, "wall|cpu", 0, "Elapsed time, or CPU time of all threads."),
    TP_STRING("device", S, device_name, "NAME", 0, "cpu or cuda."),
    TP_CHOICE("dtype", S, bf16, "f32|bf16", 0, "Element type of matrix products."),
    TP_CHOICE("smoke", S, smoke, YES, 0, "Run small cases on cuda, to try the program."),
    TP_CHOICE("list", S, list, YES, 0, "Print the cases and their calls instead of running them."),
    { 0 },
};

static bool on_gpu(const settings *s)
{
    return strncmp(s->device_name, "cuda", 4) == 0;
}

static const tp_command manual = {
    .name = "bench_ops",
    .summary = "measures single ops, forward and backward",
    .about = "Prints a JSON line for each case: time, rate, and the fraction of the machine's own "
             "rate. The head of bench/bench_ops.c explains the figures.",
    .table = table,
};

static bool start(void *options, char *why, size_t size)
{
    static const tp_isa isas[] = { TP_ISA_AUTO, TP_ISA_BASE, TP_ISA_AVX2, TP_ISA_AVX512,
                                   TP_ISA_AMX };
    settings *s = options;
    (void)why, (void)size; /* run prints its own message */
    s->cuda = on_gpu(s);
    s->dtype = s->bf16 ? TP_BF16 : TP_F32;
    s->device =
        (tp_device_opts){ .threads = (int)s->threads, .isa = isas[s->isa], .profile = s->cuda };
    timer = s->clock ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
    return s->list ? list(s) : run(s);
}

int main(int argc, char **argv)
{
    settings s = { .filter = strdup(""), .device_name = strdup("cpu"), .seconds = 0.5 };
    return tp_command_main(&manual, argc - 1, argv + 1, &s, start);
}
