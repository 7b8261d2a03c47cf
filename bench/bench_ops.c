/* bench_ops.c - time of single ops, forward and backward, as JSON lines.
 *
 *     bench_ops [--threads n] [--isa base|avx2|avx512] [--filter text] [--seconds s] [--long yes]
 *               [--clock wall|cpu]
 *
 * "utilisation" is a rate over one of two of the same run: "sgemm_gflops" of the first line, a
 * 1024^3 f32 product split by rows over the threads, each calling single-threaded OpenBLAS
 * (blas_rate.h), or that of the case "copy", a pass over more memory than the caches hold. FLOPs
 * are those the result needs (for ls_attention by the closed form: visible vectors and the band),
 * so that work done twice earns nothing; ops bound by memory count the bytes they must move.
 * Backward counts twice forward. "ms" is the median of the repetitions, rates are of the best. The
 * growing contexts (from 16K tokens on with --long yes only) compare their time with the closed
 * form, extrapolated from the first of them. "mb" is the device memory of inputs, results,
 * gradients, all that is saved in between, and scratch. --clock cpu counts processor time of all
 * threads: with one thread, a fair figure on a busy machine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/op.h>
#include <tapegrad/tapegrad.h>
#include <time.h>

#include "blas_rate.h"

enum { MAX_IN = 9, MAX_REPS = 400, MIN_REPS = 2, LONG_CONTEXT = 16384 };

typedef struct settings {
    tp_device_opts device;
    const char *filter;
    double seconds; /* of each case and direction */
    bool run_long;
} settings;

typedef struct input {
    tp_shape shape;
    int64_t below; /* > 0: integers in [0, below) */
} input;

typedef struct bench_case {
    const char *op, *shape;
    tp_tensor (*apply)(tp_tape *T, const tp_tensor *x, const struct bench_case *k);
    double mflop, mbyte; /* forward, millions; 0: does not apply */
    tp_ls_cfg cfg;       /* attention and projection             */
    bool causal;         /* attention                            */
    int64_t tokens;      /* > 0: one of the growing contexts     */
    input in[MAX_IN];
} bench_case;

static clockid_t timer = CLOCK_MONOTONIC;

static double now(void)
{
    struct timespec t;
    clock_gettime(timer, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- an op that ends the graph: its backward notes when the one of the timed op begins * ---- */

static double backward_began;

static tp_code end_shape(tp_infer *q)
{
    q->y[0] = (tp_view){ .dtype = TP_F32 };
    return TP_OK;
}

static tp_code end_forward(const tp_call *c)
{
    *(float *)c->y[0].data = 0.0f;
    return TP_OK;
}

static tp_code end_backward(const tp_call *c)
{
    float *g = c->dx[0].data;
    for (int64_t i = 0; i < c->dx[0].numel; i++) g[i] = 1e-3f * (float)(i % 17 - 8);
    backward_began = now();
    return TP_OK;
}

static const tp_op end_op = { .name = "end",
                              .nx = 1,
                              .ny = 1,
                              .shape = end_shape,
                              .forward = { [TP_CPU] = end_forward },
                              .backward = { [TP_CPU] = end_backward } };

/* ---- cases ---- */

static tp_tensor matmul(tp_tape *T, const tp_tensor *x, const bench_case *k)
{
    (void)k;
    return tp_matmul(T, x[0], x[1]);
}

static tp_tensor linear(tp_tape *T, const tp_tensor *x, const bench_case *k)
{
    (void)k;
    return tp_linear(T, x[0], x[1], x[2], TP_ACT_NONE);
}

static tp_tensor gelu_linear(tp_tape *T, const tp_tensor *x, const bench_case *k)
{
    (void)k;
    return tp_linear(T, x[0], x[1], x[2], TP_ACT_GELU);
}

static tp_tensor copy(tp_tape *T, const tp_tensor *x, const bench_case *k)
{
    (void)k;
    return tp_scale(T, x[0], 2.0);
}

static tp_tensor layernorm(tp_tape *T, const tp_tensor *x, const bench_case *k)
{
    (void)k;
    return tp_layernorm(T, x[0], x[1], x[2], 1e-5);
}

static tp_tensor cross_entropy(tp_tape *T, const tp_tensor *x, const bench_case *k)
{
    (void)k;
    return tp_cross_entropy(T, x[0], x[1], TP_MEAN);
}

static tp_tensor chunk_project(tp_tape *T, const tp_tensor *x, const bench_case *k)
{
    return tp_chunk_project(T, x[0], x[1], k->cfg.heads, k->cfg.chunk, k->cfg.rank);
}

static tp_tensor attention(tp_tape *T, const tp_tensor *x, const bench_case *k)
{
    return tp_attention(T, x[0], x[1], x[2], TP_NONE, TP_NONE,
                        (tp_attn_cfg){ .heads = k->cfg.heads, .causal = k->causal });
}

static tp_tensor ls_attention(tp_tape *T, const tp_tensor *x, const bench_case *k)
{
    return tp_ls_attention(
        T, (tp_ls_in){ x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], x[8], 0, 0 }, k->cfg);
}

/* N tokens after a cache of N, width 512, 8 heads, window 512, chunks of 16, rank 1: 3 N w d MACs
 * for the window, 3 N n d for the n vectors that a query sees in the mean. */
#define LS_CASE(N)                                                                                 \
    .cfg = { .heads = 8, .chunk = 16, .rank = 1, .window = 512 },                                  \
    .mflop = 6e-6 * N * 512.0 * (512.0 + N / 16.0 + (N / 16.0 - 1.0) / 2.0),                       \
    .in = {                                                                                        \
        { { 3, { 1, N, 512 } }, 0 },       { { 3, { 1, 512 + N, 512 } }, 0 },                      \
        { { 3, { 1, 512 + N, 512 } }, 0 }, { { 3, { 1, N / 8, 512 } }, 0 },                        \
        { { 3, { 1, N / 8, 512 } }, 0 },   { { 2, { 512, 512 } }, 0 },                             \
        { { 2, { N / 8, 512 } }, 0 },      { { 2, { 8, 64 } }, 0 },                                \
        { { 2, { 8, 64 } }, 0 },                                                                   \
    }

/* N tokens from the start of a text: no cache, so that the last query sees N / 16 vectors. */
#define LS_CONTEXT(N)                                                                              \
    .tokens = N, .cfg = { .heads = 8, .chunk = 16, .rank = 1, .window = 512, .masked = true },     \
    .mflop = 6e-6 * 512.0 * (N * 512.0 - 512.0 * 511.0 / 2.0 + N * (N / 16.0 - 1.0) / 2.0),        \
    .in = {                                                                                        \
        { { 3, { 1, N, 512 } }, 0 },      { { 3, { 1, N, 512 } }, 0 },                             \
        { { 3, { 1, N, 512 } }, 0 },      { { 3, { 1, N / 16, 512 } }, 0 },                        \
        { { 3, { 1, N / 16, 512 } }, 0 }, { { 2, { 512, 512 } }, 0 },                              \
        { { 2, { N / 16, 512 } }, 0 },    { { 2, { 8, 64 } }, 0 },                                 \
        { { 2, { 8, 64 } }, 0 },                                                                   \
    }

/* N tokens, 8 heads of 64, each seeing all (share 1) or half of them. */
#define ATTENTION_CASE(N, SHARE)                                                                   \
    .cfg = { .heads = 8 }, .causal = (SHARE) < 1.0, .mflop = 4e-6 * N * 512.0 * N * (SHARE),       \
    .in = { { { 3, { 1, N, 512 } }, 0 },                                                           \
            { { 3, { 1, N, 512 } }, 0 },                                                           \
            { { 3, { 1, N, 512 } }, 0 } }

#define LINEAR_CASE(K, N)                                                                          \
    .mflop = 2e-6 * 2048.0 * K * N,                                                                \
    .in = { { { 2, { 2048, K } }, 0 }, { { 2, { N, K } }, 0 }, { { 1, { N } }, 0 } }

/* clang-format off */
static const bench_case cases[] = {
    { "matmul", "1024x1024x1024", matmul, .mflop = 2e-6 * 1024.0 * 1024.0 * 1024.0,
      .in = { { { 2, { 1024, 1024 } }, 0 }, { { 2, { 1024, 1024 } }, 0 } } },
    { "copy", "y = 2x, 64 MB", copy, .mbyte = 8e-6 * 16777216.0,
      .in = { { { 1, { 16777216 } }, 0 } } },
    { "linear", "2048x512->512", linear, LINEAR_CASE(512, 512) },
    { "linear", "2048x2048->512", linear, LINEAR_CASE(2048, 512) },
    { "linear_gelu", "2048x512->2048", gelu_linear, LINEAR_CASE(512, 2048) },
    { "layernorm", "2048x512", layernorm, .mbyte = 8e-6 * 2048 * 512,
      .in = { { { 2, { 2048, 512 } }, 0 }, { { 1, { 512 } }, 0 }, { { 1, { 512 } }, 0 } } },
    { "cross_entropy", "2048x208", cross_entropy, .mbyte = 4e-6 * 2048 * 208,
      .in = { { { 2, { 2048, 208 } }, 0 }, { { 1, { 2048 } }, 208 } } },
    { "chunk_project", "2048x512 l16 r1", chunk_project, .mbyte = 4e-6 * 2048 * 512,
      .cfg = { .heads = 8, .chunk = 16, .rank = 1 },
      .in = { { { 3, { 1, 2048, 512 } }, 0 }, { { 3, { 1, 2048, 8 } }, 0 } } },
    { "ls_attention", "2048+2048 d512 h8 w512 l16 r1", ls_attention, LS_CASE(2048) },
    { "ls_attention", "8192+8192 d512 h8 w512 l16 r1", ls_attention, LS_CASE(8192) },
    { "ls_attention", "2K tokens", ls_attention, LS_CONTEXT(2048) },
    { "ls_attention", "4K tokens", ls_attention, LS_CONTEXT(4096) },
    { "ls_attention", "8K tokens", ls_attention, LS_CONTEXT(8192) },
    { "ls_attention", "16K tokens", ls_attention, LS_CONTEXT(16384) },
    { "ls_attention", "32K tokens", ls_attention, LS_CONTEXT(32768) },
    { "ls_attention", "64K tokens", ls_attention, LS_CONTEXT(65536) },
    { "attention", "4096 d512 h8", attention, ATTENTION_CASE(4096, 1.0) },
    { "attention", "4096 d512 h8 causal", attention, ATTENTION_CASE(4096, 4097.0 / 8192.0) },
};
/* clang-format on */

/* ---- measuring ---- */

static int64_t count(tp_shape s)
{
    int64_t n = 1;
    for (int i = 0; i < s.ndim; i++) n *= s.dim[i];
    return n;
}

/* The case's inputs on the tape, from a linear congruence. */
static void place(tp_tape *T, const bench_case *k, tp_tensor *x)
{
    uint32_t seed = 1;
    for (int i = 0; i < MAX_IN && k->in[i].shape.ndim > 0; i++) {
        const int64_t n = count(k->in[i].shape), below = k->in[i].below;
        void *host = malloc((size_t)n * sizeof(int64_t));
        if (!host) exit(1);
        for (int64_t j = 0; j < n; j++) {
            seed = seed * 1664525u + 1013904223u;
            if (below > 0)
                ((int64_t *)host)[j] = (int64_t)(seed >> 8) % below;
            else
                ((float *)host)[j] = (float)(seed >> 8) * 0x1p-23f - 1.0f;
        }
        x[i] = below > 0 ? tp_from(T, TP_I64, k->in[i].shape, host)
                         : tp_input(T, TP_F32, k->in[i].shape, host);
        free(host);
    }
}

/* Seconds of one forward and one backward. */
static void step(tp_tape *T, const bench_case *k, double *forward, double *backward)
{
    tp_tensor x[MAX_IN] = { TP_NONE };
    tp_reset(T);
    tp_device_reset_peak(tp_device_of(T));
    place(T, k, x);
    const double t = now();
    const tp_tensor y = k->apply(T, x, k);
    *forward = now() - t;
    tp_backward(T, tp_apply(T, &end_op, NULL, y));
    *backward = now() - backward_began;
}

static int by_time(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* What the machine does in this run: MFLOP of OpenBLAS and MB of "copy" a second; 0: unknown. */
typedef struct rates {
    double products, copies;
} rates;

/* One line. Returns this case's rate, of FLOPs if it counts them, else of bytes. */
static double report(const bench_case *k, bool backward, double *seconds, int n,
                     const tp_stats *stats, const rates *machine)
{
    static double first_rate[2]; /* of the first of the growing contexts, by direction */
    const bool bytes = k->mflop == 0.0;
    qsort(seconds, (size_t)n, sizeof *seconds, by_time);
    const double rate = (backward ? 2.0 : 1.0) * (bytes ? k->mbyte : k->mflop) / seconds[0];
    const double best = bytes ? machine->copies : machine->products;
    printf("{\"op\": \"%s\", \"direction\": \"%s\", \"shape\": \"%s\", \"threads\": %d, "
           "\"isa\": \"%s\", \"ms\": %.4f, \"best_ms\": %.4f, \"%s\": %.1f, \"mb\": %.1f",
           k->op, backward ? "backward" : "forward", k->shape, stats->threads, stats->isa,
           1e3 * seconds[n / 2], 1e3 * seconds[0], bytes ? "gbytes_per_s" : "gflops", 1e-3 * rate,
           (double)stats->peak_bytes / 1048576.0);
    if (best > 0.0) printf(", \"utilisation\": %.3f", rate / best);
    if (k->tokens > 0) {
        if (first_rate[backward] == 0.0) first_rate[backward] = rate;
        printf(", \"time_to_closed_form\": %.3f, \"bytes_a_token\": %.0f",
               first_rate[backward] / rate, (double)stats->peak_bytes / (double)k->tokens);
    }
    puts("}");
    fflush(stdout);
    return rate;
}

/* Returns the forward rate. */
static double measure(tp_tape *T, const bench_case *k, double budget, const rates *machine)
{
    static double forward[MAX_REPS], backward[MAX_REPS];
    double total = 0.0;
    int n = 0;
    step(T, k, forward, backward); /* the first run pays for memory and caches */
    for (; n < MAX_REPS && (n < MIN_REPS || total < 2.0 * budget) && tp_ok(T); n++) {
        step(T, k, &forward[n], &backward[n]);
        total += forward[n] + backward[n];
    }
    if (!tp_ok(T)) return 0.0;
    const tp_stats stats = tp_device_stats(tp_device_of(T));
    const double rate = report(k, false, forward, n, &stats, machine);
    report(k, true, backward, n, &stats, machine);
    return rate;
}

static bool wanted(const bench_case *k, const settings *s)
{
    char name[128];
    snprintf(name, sizeof name, "%s %s", k->op, k->shape);
    return strstr(name, s->filter) && (k->tokens < LONG_CONTEXT || s->run_long);
}

static int run(const settings *s)
{
    tp_device *D = tp_device_open("cpu", &s->device);
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .train = true });
    rates machine = { 1e-6 * blas_rate(tp_device_stats(D).threads, timer), 0.0 };
    printf("{\"sgemm_gflops\": %.1f}\n", 1e-3 * machine.products);
    measure(T, &cases[0], s->seconds, &machine);
    machine.copies = measure(T, &cases[1], s->seconds, &machine);
    for (size_t i = 2; i < sizeof cases / sizeof *cases; i++)
        if (wanted(&cases[i], s)) measure(T, &cases[i], s->seconds, &machine);
    if (!tp_ok(T)) fprintf(stderr, "%s\n", tp_why(T));
    const int status = tp_ok(T) ? 0 : 1;
    tp_tape_free(T);
    tp_device_close(D);
    return status;
}

/* ---- arguments ---- */

static tp_isa isa_of(const char *name)
{
    return strcmp(name, "base") == 0     ? TP_ISA_BASE
           : strcmp(name, "avx2") == 0   ? TP_ISA_AVX2
           : strcmp(name, "avx512") == 0 ? TP_ISA_AVX512
                                         : TP_ISA_AUTO;
}

int main(int argc, char **argv)
{
    settings s = { .filter = "", .seconds = 0.5 };
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--threads") == 0) {
            s.device.threads = atoi(value);
        } else if (strcmp(argv[i], "--isa") == 0) {
            s.device.isa = isa_of(value);
        } else if (strcmp(argv[i], "--filter") == 0) {
            s.filter = value;
        } else if (strcmp(argv[i], "--seconds") == 0) {
            s.seconds = atof(value);
        } else if (strcmp(argv[i], "--long") == 0) {
            s.run_long = strcmp(value, "yes") == 0;
        } else if (strcmp(argv[i], "--clock") == 0) {
            timer = strcmp(value, "cpu") == 0 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
        } else {
            fprintf(stderr, "usage: bench_ops [--threads n] [--isa base|avx2|avx512] "
                            "[--filter text] [--seconds s] [--long yes] [--clock wall|cpu]\n");
            return 2;
        }
    }
    return run(&s);
}
