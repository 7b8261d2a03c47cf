/* bench_models.c - time and memory of training steps of any model of the table, as JSON lines.
 *
 *     bench_models [--model NAME] [--tokens n] [--batch n] [--steps n] [--threads n]
 *                  [--recompute none|attention|block] [--drop-path p] [--device cpu|cuda]
 *                  [--dtype f32|bf16] [--clock wall|cpu] [--graph yes] [--profile yes]
 *                  [--generate yes] [--smoke yes]
 *
 * A step is forward, cross entropy, backward and AdamW, on random images or tokens that are fed as
 * a loader would; the cache of a language model has as many rows as the segment. "utilisation" is
 * the rate of the FLOPs that the model's closed form counts (2 a multiply-add, backward twice
 * forward, recomputation not counted) over "sgemm_gflops", the rate of a 1024^3 f32 product by
 * OpenBLAS over the same threads, in the same run (blas_rate.h); "matmul_gflops" is the rate of
 * tapegrad's own. "predicted_mb" is what a dry device said before of "device_peak_mb". --clock cpu
 * counts processor time of all threads: with one thread, a fair figure on a busy machine. --profile
 * prints the time of each op instead.
 *
 * On CUDA the steps follow each other without a wait, as in training; "matmul_gflops" is the rate
 * of a product of 8192^3 in --dtype, of which "utilisation" is a share, and "kernel_seconds" what
 * the kernels of a step take by the card's clock (0 on the CPU). --graph launches forward and
 * backward as one recording (tp_capture). --smoke makes that product and the work before measured
 * kernels small, to try the program: its figures say nothing.
 *
 * --generate decodes token after token, as a sampler does (Transformer-LS language models). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blas_rate.h"
#include "model_steps.h"

enum { PRODUCTS = 40, LINES = 64 };

/* ---- the machine ---- */

/* Best rate of tp_matmul on n^3, FLOP/s. */
static double matmul_rate(tp_device *D, tp_dtype dt, int64_t n)
{
    const double flop = 2.0 * (double)n * (double)n * (double)n;
    tp_params *P = tp_params_new(D, NULL); /* random: zeros are quicker on a card */
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = dt });
    const tp_init draw = { TP_INIT_UNIFORM, 1.0, 0.0 };
    const tp_tensor a = tp_param(P, "a", TP_SHAPE(n, n), draw, TP_FROZEN);
    double best = 1e9;
    for (int i = 0; i < PRODUCTS; i++) {
        tp_reset(T);
        tp_device_sync(D);
        const double start = now();
        tp_matmul(T, a, a);
        tp_device_sync(D);
        const double seconds = now() - start;
        if (seconds < best) best = seconds;
    }
    tp_tape_free(T);
    tp_params_free(P);
    return flop / best;
}

/* ---- the report ---- */

typedef struct figures {
    double seconds, kernels; /* of a step                                     */
    double blas, matmul;     /* FLOP/s of the machine; blas 0: on CUDA        */
    double predicted;        /* MiB                                           */
} figures;

static void report(const setup *s, tp_device *D, const figures *f)
{
    static const char *const recomputation[] = { "none", "attention", "block" };
    const tp_model_opts o = tp_model_get(&s->model);
    const tp_stats stats = tp_device_stats(D);
    const double best = f->blas > 0.0 ? f->blas : f->matmul;
    const double macs = tp_model_flops(&s->model, s->tokens, s->tokens).macs;
    const double rate = 3.0 * 2.0 * macs * s->batch / f->seconds;
    printf("{\"model\": \"%s\", \"dtype\": \"%s\", ", s->name, tp_dtype_name(s->dtype));
    if (is_text(s)) printf("\"tokens\": %lld, ", (long long)s->tokens);
    printf("\"batch\": %d, \"recompute\": \"%s\", \"graph\": %d, \"threads\": %d, \"isa\": \"%s\", "
           "\"seconds\": %.6f, ",
           s->batch, recomputation[o.recompute], s->graph, stats.threads, stats.isa, f->seconds);
    if (is_text(s))
        printf("\"tokens_per_s\": %.1f, ", (double)s->tokens * s->batch / f->seconds);
    else
        printf("\"images_per_s\": %.2f, ", s->batch / f->seconds);
    printf("\"gflops\": %.1f, \"sgemm_gflops\": %.1f, \"matmul_gflops\": %.1f, \"utilisation\": "
           "%.3f, \"kernel_seconds\": %.6f, \"device_peak_mb\": %.0f, \"predicted_mb\": %.0f, "
           "\"process_peak_mb\": %.0f%s}\n",
           rate * 1e-9, f->blas * 1e-9, f->matmul * 1e-9, rate / best, f->kernels,
           (double)stats.peak_bytes / 1048576.0, f->predicted, process_peak_mb(),
           s->smoke ? ", \"smoke\": true" : "");
    fflush(stdout);
}

static void print_profile(tp_device *D, int steps)
{
    tp_op_time line[LINES];
    const int n = tp_device_profile(D, line, LINES);
    double sum = 0.0;
    for (int i = 0; i < n && i < LINES; i++) sum += line[i].seconds;
    for (int i = 0; i < n && i < LINES; i++)
        printf("%-20s %-8s %8.2f ms a step %5.1f %%\n", line[i].op,
               line[i].backward ? "backward" : "forward", 1e3 * line[i].seconds / steps,
               100.0 * line[i].seconds / sum);
}

static int profile(const setup *s)
{
    static double unused[MAX_STEPS];
    const tp_device_opts o = { .threads = s->threads, .profile = true };
    tp_device *D = tp_device_open(s->device, &o);
    const bool done = take_steps(D, s, TP_NONE, unused);
    if (done) print_profile(D, s->steps);
    tp_device_close(D);
    return !done;
}

static int run(const setup *s)
{
    static double seconds[MAX_STEPS];
    const int64_t side = s->smoke ? 64 : on_cuda(s) ? 8192 : 1024;
    figures f = { .predicted = predicted_mb(s), .kernels = on_cuda(s) ? kernel_seconds(s) : 0.0 };
    tp_device *D = tp_device_open(s->device, &(tp_device_opts){ .threads = s->threads });
    f.blas = on_cuda(s) ? 0.0 : blas_rate(tp_device_stats(D).threads, timer);
    f.matmul = matmul_rate(D, s->dtype, side);
    tp_device_trim(D);
    tp_device_reset_peak(D);
    const bool done = take_steps(D, s, TP_NONE, seconds);
    f.seconds = median(seconds, s->steps);
    if (done) report(s, D, &f);
    tp_device_close(D);
    return !done;
}

/* ---- arguments ---- */

/* What the flags say; -1: not given. */
typedef struct arguments {
    const char *model, *device;
    int tokens, batch, steps, threads;
    int recompute, dtype, clock, graph, profile, generate, smoke; /* which of the words */
    double drop_path;
} arguments;

typedef struct flag {
    const char *name, *words; /* words: "none|attention|block"; NULL: a text or number */
    const char **text;
    int *number; /* at least 1, or 0 where a machine decides; or which of the words */
    double *real;
} flag;

static int refuse(const flag *flags, const char *what, const char *word)
{
    fprintf(stderr, "bench_models: %s%s\nusage: bench_models", what, word);
    for (; flags->name; flags++)
        fprintf(stderr, " [%s %s]", flags->name,
                flags->words  ? flags->words
                : flags->text ? "NAME"
                : flags->real ? "p"
                              : "n");
    fprintf(stderr, "\n");
    return 2;
}

/* Which of "none|attention|block" it is, or -1. */
static int which(const char *words, const char *value)
{
    const size_t n = strlen(value);
    for (int i = 0; *words; i++) {
        const size_t length = strcspn(words, "|");
        if (length == n && memcmp(words, value, n) == 0) return i;
        words += length + (words[length] == '|');
    }
    return -1;
}

static bool take(const flag *f, const char *value)
{
    char *end = NULL;
    errno = 0;
    if (f->words) return (*f->number = which(f->words, value)) >= 0;
    if (f->text) return *(*f->text = value) != '\0';
    if (f->real) {
        *f->real = strtod(value, &end);
        return end != value && !*end && *f->real >= 0.0 && *f->real < 1.0;
    }
    const long n = strtol(value, &end, 10);
    *f->number = (int)n;
    return end != value && !*end && !errno && n >= 1 && n <= 1 << 24;
}

/* The setup that the arguments mean; 0, or the exit status. */
static int configure(setup *s, const arguments *a)
{
    char why[512];
    *s = (setup){ .name = a->model,
                  .device = a->device,
                  .dtype = a->dtype == 1 ? TP_BF16 : TP_F32,
                  .steps = a->steps,
                  .threads = a->threads,
                  .graph = a->graph == 1,
                  .smoke = a->smoke == 1,
                  .profile = a->profile == 1 };
    if (!tp_model_preset(&s->model, a->model, why, sizeof why)) {
        fprintf(stderr, "bench_models: %s\n", why);
        return 2;
    }
    tp_model_opts o = tp_model_get(&s->model);
    s->batch = a->batch ? a->batch : is_text(s) ? 1 : 4;
    s->tokens = !is_text(s) ? 0 : a->tokens ? a->tokens : o.cache;
    if (is_text(s)) o.cache = s->tokens;
    o.recompute = (tp_recompute)a->recompute;
    o.drop_path = a->drop_path;
    tp_model_set(&s->model, &o);
    if (a->tokens && !is_text(s))
        snprintf(why, sizeof why, "--tokens: %s takes images", a->model);
    else if (a->steps > MAX_STEPS)
        snprintf(why, sizeof why, "--steps must be 1 to %d", MAX_STEPS);
    else if (!tp_model_check(&s->model, why, sizeof why))
        return 0;
    fprintf(stderr, "bench_models: %s\n", why);
    return 2;
}

int main(int argc, char **argv)
{
    arguments a = { .model = "ls_lm-small", .device = "cpu", .steps = 5 };
    const flag flags[] = {
        { .name = "--model", .text = &a.model },
        { .name = "--tokens", .number = &a.tokens },
        { .name = "--batch", .number = &a.batch },
        { .name = "--steps", .number = &a.steps },
        { .name = "--threads", .number = &a.threads },
        { .name = "--recompute", .words = "none|attention|block", .number = &a.recompute },
        { .name = "--drop-path", .real = &a.drop_path },
        { .name = "--device", .text = &a.device },
        { .name = "--dtype", .words = "f32|bf16", .number = &a.dtype },
        { .name = "--clock", .words = "wall|cpu", .number = &a.clock },
        { .name = "--graph", .words = "no|yes", .number = &a.graph },
        { .name = "--profile", .words = "no|yes", .number = &a.profile },
        { .name = "--generate", .words = "no|yes", .number = &a.generate },
        { .name = "--smoke", .words = "no|yes", .number = &a.smoke },
        { .name = NULL },
    };
    setup s;
    for (int i = 1; i < argc; i += 2) {
        const flag *f = flags;
        while (f->name && strcmp(f->name, argv[i]) != 0) f++;
        if (!f->name) return refuse(flags, "unknown option ", argv[i]);
        if (i + 1 == argc || !take(f, argv[i + 1])) return refuse(flags, "no value for ", argv[i]);
    }
    timer = a.clock == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
    const int status = configure(&s, &a);
    if (status) return status;
    return a.generate == 1 ? decode(&s) : s.profile ? profile(&s) : run(&s);
}
