/* bench_exchange.c - the exchange of gradients between the processes that mpirun starts:
 *
 *     mpirun -n 2 bench_exchange --mb 176 --seconds 0.4
 *
 * Rank 0 prints JSON lines. "exchange": gradients that exist already are summed, of which finish is
 * all. "loop": a backward of the given length, of which each parameter takes an equal part; seconds
 * of the loop with and without an exchange, and what the exchange says of itself. */
#include <stdio.h>
#include <stdlib.h>
#include <tapegrad/options.h>
#include <tapegrad/peers.h>
#include <tapegrad/tapegrad.h>

#include "timing.h"

enum { MOST_RUNS = 1000, PARAMS = 40 };

typedef struct settings {
    double mb, seconds;
    int64_t bucket_kb, runs;
    bool bf16, shard, after;
} settings;

typedef struct bench {
    settings s;
    tp_peers *G;
    tp_device *D;
    tp_params *P;
    tp_tape *T;
    tp_tensor w[PARAMS];
    double times[MOST_RUNS];
} bench;

#define S settings
static const tp_option table[] = {
    TP_HEADING("OPTIONS"),
    TP_NUM("mb", S, mb, 0.001, 1e5, 0, "MB of f32 gradients."),
    TP_NUM("seconds", S, seconds, 0, 100, 0, "Length of the backward pass."),
    TP_INT("bucket-kb", S, bucket_kb, 0, 1 << 20, 0, "KiB of a bucket; 0: the library's."),
    TP_INT("runs", S, runs, 1, MOST_RUNS, 0, "Measurements; the median counts."),
    TP_FLAG("bf16", S, bf16, 0, "Gradients travel as bf16."),
    TP_FLAG("shard", S, shard, 0, "Each process sums its own part only."),
    TP_FLAG("after", S, after, 0, "Buckets leave after backward."),
    { 0 },
};
#undef S

static const tp_command manual = { .name = "bench_exchange",
                                   .summary = "measures the exchange of gradients",
                                   .about = "Prints JSON lines.",
                                   .table = table };

static void need(bool fine, const char *why)
{
    if (fine) return;
    fprintf(stderr, "bench_exchange: %s\n", why);
    exit(1);
}

/* Waits until all processes are here. */
static void meet(const bench *b)
{
    double one = 1;
    need(tp_peers_sum(b->G, &one, 1), tp_peers_why(b->G));
}

static tp_exchange *exchange_of(const bench *b)
{
    const settings *s = &b->s;
    const tp_exchange_opts o = {
        .bucket = (size_t)s->bucket_kb << 10, .bf16 = s->bf16, .shard = s->shard, .after = s->after
    };
    tp_exchange *X = tp_exchange_new(b->P, b->G, &o);
    need(tp_exchange_ok(X), tp_exchange_why(X));
    return X;
}

static void report(bench *b, const char *what, double seconds, double alone, tp_exchange *X)
{
    const tp_exchange_stats e = tp_exchange_stats_of(X);
    const double n = (double)e.updates;
    if (tp_peers_rank(b->G) > 0) return;
    printf(
        "{\"exchange\": \"%s\", \"ranks\": %d, \"mb\": %.1f, \"seconds\": %.5f, \"least\": %.5f, "
        "\"without\": %.5f, \"sent_mb\": %.1f, \"exposed\": %.5f, \"hidden\": %.5f, "
        "\"buffers_mb\": %.1f}\n",
        what, tp_peers_count(b->G), b->s.mb, seconds, b->times[0], alone, e.bytes / n / 1e6,
        e.exposed / n, e.hidden / n, (double)e.memory / 1e6);
    fflush(stdout);
}

static void sum_only(bench *b)
{
    const int64_t n = tp_numel(b->w[0]);
    float *zeros = calloc((size_t)n, sizeof *zeros);
    tp_exchange *X = exchange_of(b);
    need(zeros != NULL, "out of memory");
    for (int k = 0; k < PARAMS; k++)
        need(tp_param_set_grad(b->P, b->w[k], TP_F32, zeros, (size_t)n * sizeof *zeros),
             tp_params_why(b->P));
    for (int64_t i = -1; i < b->s.runs; i++) { /* the first one warms up */
        meet(b);
        const double began = now();
        need(tp_exchange_finish(X), tp_exchange_why(X));
        if (i >= 0) b->times[i] = now() - began;
    }
    report(b, "exchange", median(b->times, (int)b->s.runs), 0, X);
    tp_exchange_free(X);
    tp_grad_clear(b->P);
    free(zeros);
}

/* The work of backward for one parameter. */
static void work(void *env, tp_params *P, tp_tensor p, const char *name, int64_t backwards)
{
    const bench *b = env;
    const double end = now() + b->s.seconds / PARAMS;
    (void)P, (void)p, (void)name, (void)backwards;
    while (now() < end) continue;
}

/* Seconds of an update: the median. */
static double loop(bench *b, tp_exchange *X)
{
    for (int64_t i = -2; i < b->s.runs; i++) { /* the first ones warm up, and learn the order */
        tp_reset(b->T);
        tp_tensor sum = tp_sum(b->T, b->w[0], TP_ALL);
        for (int k = 1; k < PARAMS; k++) sum = tp_add(b->T, sum, tp_sum(b->T, b->w[k], TP_ALL));
        meet(b);
        const double began = now();
        if (X) tp_exchange_begin(X);
        tp_backward(b->T, sum);
        need(tp_ok(b->T), tp_why(b->T));
        if (X) need(tp_exchange_finish(X), tp_exchange_why(X));
        if (i >= 0) b->times[i] = now() - began;
        tp_grad_clear(b->P);
    }
    return median(b->times, (int)b->s.runs);
}

static void loops(bench *b)
{
    tp_on_grad(b->P, work, b);
    const double alone = loop(b, NULL);
    tp_exchange *X = exchange_of(b);
    report(b, "loop", loop(b, X), alone, X);
    tp_exchange_free(X);
}

static void declare(bench *b)
{
    const int64_t n = (int64_t)(b->s.mb * 1e6 / sizeof(float) / PARAMS);
    b->D = tp_device_open("cpu", &(tp_device_opts){ .threads = 1 });
    b->P = tp_params_new(b->D, NULL);
    b->T = tp_tape_new(b->D, NULL);
    for (int k = 0; k < PARAMS; k++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", k);
        b->w[k] = tp_param(b->P, name, TP_SHAPE(n > 0 ? n : 1), (tp_init){ TP_INIT_ZERO, 0, 0 }, 0);
    }
    need(tp_params_ok(b->P), tp_params_why(b->P));
}

int main(int argc, char **argv)
{
    static bench b = { .s = { .mb = 176, .seconds = 0.4, .runs = 20 } };
    const int parsed = tp_options_parse(&manual, argc - 1, argv + 1, &b.s, NULL);
    if (parsed != TP_PARSED) return parsed;
    b.G = tp_peers_open(NULL);
    need(!b.G || tp_peers_ok(b.G), tp_peers_why(b.G));
    declare(&b);
    sum_only(&b);
    if (b.s.seconds > 0) loops(&b);
    meet(&b);
    tp_tape_free(b.T);
    tp_params_free(b.P);
    tp_device_close(b.D);
    tp_peers_close(b.G);
    return 0;
}
