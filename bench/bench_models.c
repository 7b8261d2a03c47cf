/* bench_models.c - time and memory of training steps of whole models, as JSON lines.
 *
 *     bench_models [--preset tiny|small|large] [--tokens n] [--batch n] [--steps n] [--threads n]
 *                  [--recompute none|attention|block] [--generate yes] [--device cpu|cuda]
 *                  [--dtype f32|bf16] [--graph yes] [--clock wall|cpu] [--smoke yes]
 *
 * A step is forward, cross entropy, backward and AdamW on random tokens; the cache has as many rows
 * as the segment. "utilisation" is the rate of the FLOPs that the specification's closed form
 * counts (backward twice forward, recomputation not counted) over "sgemm_gflops", the rate of a
 * 1024^3 f32 product by OpenBLAS over the same threads, in the same run (blas_rate.h);
 * "matmul_gflops" is the rate of tapegrad's own. "predicted_mb" is what a dry device said before of
 * "device_peak_mb". --clock cpu counts processor time of all threads: with one thread, a fair
 * figure on a busy machine.
 *
 * On CUDA the steps follow each other without a wait, as in training; "matmul_gflops" is the rate
 * of a product of 8192^3 in --dtype, of which "utilisation" is a share, and "kernel_seconds" what
 * the kernels of a step take by the card's clock (0 on the CPU), measured in steps of their own,
 * each queued behind other work so that the card never waits for the host. --graph launches forward
 * and backward as one recording (tp_capture). --smoke makes that product and that work small, to
 * try the program: its figures say nothing.
 *
 * --generate decodes token after token, as a sampler does, and reports the time of one after 1K,
 * 16K and 64K tokens, the median of 200. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <tapegrad/models.h>
#include <time.h>

#include "blas_rate.h"

enum { MAX_STEPS = 1000, PRODUCTS = 40, DECODED = 200, VOCAB = 208, LINES = 256 };
/* The work before a step whose kernels are measured: maxima of so many elements (10 ms on a card),
 * an op that the models do not have. */
enum { MAXIMA = 32, ELEMENTS = 134217728, SMOKE_ELEMENTS = 1024 };

typedef struct settings {
    const char *preset, *recompute, *device;
    tp_dtype dtype;
    int tokens, batch, steps, threads;
    bool generate, graph, smoke;
} settings;

static bool on_cuda(const settings *s)
{
    return strncmp(s->device, "cuda", 4) == 0;
}

static clockid_t timer = CLOCK_MONOTONIC;

static double now(void)
{
    struct timespec t;
    clock_gettime(timer, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

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

static uint32_t state = 1;

/* [batch,tokens] of symbols in [4,vocab), into a slot. */
static void random_tokens(tp_tape *T, tp_tensor *slot, int64_t batch, int64_t tokens, int64_t vocab)
{
    const int64_t n = batch * tokens;
    int32_t *id = malloc((size_t)n * sizeof *id);
    if (!id) {
        tp_raise(T, TP_E_MEMORY, "no memory for %lld tokens", (long long)n);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        id[i] = 4 + (int32_t)((state >> 8) % (uint32_t)(vocab - 4));
    }
    tp_feed(T, slot, TP_I32, TP_SHAPE(batch, tokens), id);
    free(id);
}

static bool is_one_of(const char *word, const char *a, const char *b, const char *c)
{
    return strcmp(word, a) == 0 || strcmp(word, b) == 0 || strcmp(word, c) == 0;
}

static tp_lm_cfg configuration(const settings *s)
{
    tp_lm_cfg c = strcmp(s->preset, "tiny") == 0    ? tp_lm_tiny(VOCAB)
                  : strcmp(s->preset, "large") == 0 ? tp_lm_large(VOCAB)
                                                    : tp_lm_small(VOCAB);
    c.mem_len = s->tokens;
    c.recompute = strcmp(s->recompute, "block") == 0       ? TP_RECOMPUTE_BLOCK
                  : strcmp(s->recompute, "attention") == 0 ? TP_RECOMPUTE_ATTENTION
                                                           : TP_RECOMPUTE_NONE;
    return c;
}

static double process_peak_mb(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)use.ru_maxrss / 1024.0;
}

/* FLOP/s of the machine: by OpenBLAS (0: on CUDA) and by tp_matmul. */
typedef struct rates {
    double blas, matmul;
} rates;

static void report(const settings *s, const tp_lm_cfg *c, tp_device *D, double seconds,
                   double kernels, const rates *machine, double predicted)
{
    const double best = machine->blas > 0.0 ? machine->blas : machine->matmul;
    const double macs = tp_lm_flops(c, s->tokens, c->mem_len).macs;
    const double flop = 3.0 * 2.0 * macs * s->batch;
    const tp_stats stats = tp_device_stats(D);
    printf(
        "{\"model\": \"ls_lm-%s\", \"dtype\": \"%s\", \"tokens\": %d, \"batch\": %d, "
        "\"recompute\": \"%s\", "
        "\"graph\": %d, \"threads\": %d, \"isa\": \"%s\", \"seconds\": %.6f, \"tokens_per_s\": "
        "%.1f, "
        "\"gflops\": %.1f, \"sgemm_gflops\": %.1f, \"matmul_gflops\": %.1f, \"utilisation\": %.3f, "
        "\"kernel_seconds\": %.6f, \"device_peak_mb\": %.0f, \"predicted_mb\": %.0f, "
        "\"process_peak_mb\": %.0f%s}\n",
        s->preset, tp_dtype_name(s->dtype), s->tokens, s->batch, s->recompute, s->graph,
        stats.threads, stats.isa, seconds, s->tokens * s->batch / seconds, flop / seconds * 1e-9,
        machine->blas * 1e-9, machine->matmul * 1e-9, flop / seconds / best, kernels,
        (double)stats.peak_bytes / 1048576.0, predicted, process_peak_mb(),
        s->smoke ? ", \"smoke\": true" : "");
    fflush(stdout);
}

static void work_ahead(tp_tape *T, tp_tensor x)
{
    for (int i = 0; tp_given(x) && i < MAXIMA; i++) tp_max(T, x, TP_ALL);
}

/* Steps on a device, the time of each, which on CUDA is a share of all of them: there the host is
 * ahead, and waiting would not be training. False with the reason printed. */
static bool train(tp_device *D, const settings *s, const tp_lm_cfg *cfg, tp_tensor ahead,
                  double *seconds)
{
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 1 });
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .seed = 1, .compute = s->dtype, .train = true });
    tp_lm *m = malloc(sizeof *m);
    static tp_lm_state caches;
    if (!m) exit(1);
    caches = (tp_lm_state){ 0 };
    tp_lm_init(P, m, "", *cfg);
    if (!tp_params_ok(P)) tp_raise(T, TP_E_VALUE, "%s", tp_params_why(P));
    tp_optim *O = tp_adamw_new(P, &(tp_adamw_opts){ .weight_decay = 0.01, .raw_eps = true });

    tp_capture *C = tp_capture_new(T);
    tp_tensor x = TP_NONE, y = TP_NONE;
    double began = 0.0;
    for (int u = on_cuda(s) && !s->smoke ? -4 : -1; u < s->steps && tp_ok(T);
         u++) { /* the first warm up */
        const double start = now();
        if (u == 0) {
            tp_device_sync(D);
            tp_device_reset_profile(D);
            began = now();
        }
        random_tokens(T, &x, s->batch, s->tokens, cfg->vocab);
        random_tokens(T, &y, s->batch, s->tokens, cfg->vocab);
        if (!s->graph) tp_reset(T);
        work_ahead(T, ahead);
        if (!s->graph || tp_capture_begin(C)) {
            const tp_tensor logits = tp_lm_forward(T, m, &caches, x);
            tp_backward(T, tp_cross_entropy(T, logits, y, TP_MEAN));
            if (s->graph) tp_capture_end(C);
        }
        tp_step(O, 1e-4);
        if (u >= 0) seconds[u] = now() - start;
        if (tp_given(ahead))
            tp_device_profile(D, NULL, 0); /* waits, so that none is waited for later */
    }
    if (tp_device_sync(D) && on_cuda(s))
        for (int u = 0; u < s->steps; u++) seconds[u] = (now() - began) / s->steps;
    const bool done = tp_ok(T);
    if (!done) fprintf(stderr, "%s\n", tp_why(T));
    tp_capture_free(C);
    tp_optim_free(O);
    tp_tape_free(T);
    tp_params_free(P);
    free(m);
    return done;
}

/* The peak that a dry device forecasts for the same steps; 0 if they fail. */
static double predicted_mb(const settings *s, const tp_lm_cfg *cfg)
{
    static double unused[MAX_STEPS];
    tp_device *D =
        tp_device_open(s->device, &(tp_device_opts){ .threads = s->threads, .dry = true });
    const bool done = train(D, s, cfg, TP_NONE, unused);
    const tp_stats stats = tp_device_stats(D);
    tp_device_close(D);
    return done ? (double)stats.peak_bytes / 1048576.0 : 0;
}

/* What the kernels of a step take, in steps of their own, since measuring takes time too. */
static double kernel_seconds(const settings *s, const tp_lm_cfg *cfg)
{
    static double unused[MAX_STEPS];
    tp_op_time line[LINES];
    const tp_device_opts o = { .threads = s->threads, .profile = true };
    settings plain = *s;
    plain.graph = false; /* whose kernels have no times of their own */
    tp_device *D = tp_device_open(s->device, &o);
    tp_params *P = tp_params_new(D, NULL);
    const int64_t n = s->smoke ? SMOKE_ELEMENTS : ELEMENTS;
    const tp_tensor x =
        tp_param(P, "x", TP_SHAPE(n), (tp_init){ TP_INIT_ZERO, 0.0, 0.0 }, TP_FROZEN);
    double sum = 0.0;
    if (train(D, &plain, cfg, x, unused)) {
        const int lines = tp_device_profile(D, line, LINES);
        for (int i = 0; i < lines && i < LINES; i++)
            if (strcmp(line[i].op, "max") != 0) sum += line[i].seconds / s->steps;
    }
    tp_params_free(P);
    tp_device_close(D);
    return sum;
}

static int run(const settings *s)
{
    const tp_lm_cfg cfg = configuration(s);
    const double predicted = predicted_mb(s, &cfg);
    const double kernels = on_cuda(s) ? kernel_seconds(s, &cfg) : 0.0;
    tp_device *D = tp_device_open(s->device, &(tp_device_opts){ .threads = s->threads });
    const int64_t side = s->smoke ? 64 : on_cuda(s) ? 8192 : 1024;
    const rates machine = {
        on_cuda(s) ? 0.0 : blas_rate(tp_device_stats(D).threads, timer),
        matmul_rate(D, s->dtype, side),
    };
    static double seconds[MAX_STEPS];
    tp_device_trim(D);
    tp_device_reset_peak(D);
    const bool done = train(D, s, &cfg, TP_NONE, seconds);
    qsort(seconds, (size_t)s->steps, sizeof *seconds, by_size);
    if (done) report(s, &cfg, D, seconds[s->steps / 2], kernels, &machine, predicted);
    tp_device_close(D);
    return !done;
}

/* Median time of a token among the DECODED that follow 1K, 16K and 64K tokens of context. */
static int generate(const settings *s)
{
    static const int64_t contexts[] = { 1024, 16384, 65536 };
    static double seconds[DECODED];
    tp_device *D = tp_device_open(s->device, &(tp_device_opts){ .threads = s->threads });
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 1 });
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = s->dtype });
    const tp_lm_cfg cfg = configuration(s);
    tp_lm *m = malloc(sizeof *m);
    static float logits[VOCAB];
    if (!m) return 1;
    tp_lm_init(P, m, "", cfg);
    tp_lm_decoder *d = tp_lm_decoder_new(T, m, s->tokens);
    int64_t t = 0;
    for (size_t i = 0; i < sizeof contexts / sizeof *contexts && tp_ok(T); i++) {
        for (; t < contexts[i]; t++) tp_lm_decode(d, 4 + t * 7 % (VOCAB - 4), NULL);
        for (int u = 0; u < DECODED; u++, t++) {
            const double start = now();
            tp_lm_decode(d, 4 + t * 7 % (VOCAB - 4), logits);
            seconds[u] = now() - start;
        }
        qsort(seconds, DECODED, sizeof *seconds, by_size);
        printf("{\"model\": \"ls_lm-%s\", \"context\": %lld, \"threads\": %d, "
               "\"ms_a_token\": %.4f, \"process_peak_mb\": %.0f}\n",
               s->preset, (long long)contexts[i], tp_device_stats(D).threads,
               1e3 * seconds[DECODED / 2], process_peak_mb());
        fflush(stdout);
    }
    if (!tp_ok(T)) fprintf(stderr, "%s\n", tp_why(T));
    const int status = !tp_ok(T);
    tp_lm_decoder_free(d);
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
    free(m);
    return status;
}

int main(int argc, char **argv)
{
    settings s = { .preset = "small",
                   .recompute = "none",
                   .device = "cpu",
                   .dtype = TP_F32,
                   .tokens = 2048,
                   .batch = 1,
                   .steps = 5 };
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--preset") == 0) {
            s.preset = value;
        } else if (strcmp(argv[i], "--recompute") == 0) {
            s.recompute = value;
        } else if (strcmp(argv[i], "--tokens") == 0) {
            s.tokens = atoi(value);
        } else if (strcmp(argv[i], "--batch") == 0) {
            s.batch = atoi(value);
        } else if (strcmp(argv[i], "--steps") == 0) {
            s.steps = atoi(value);
        } else if (strcmp(argv[i], "--threads") == 0) {
            s.threads = atoi(value);
        } else if (strcmp(argv[i], "--device") == 0) {
            s.device = value;
        } else if (strcmp(argv[i], "--dtype") == 0) {
            s.dtype = strcmp(value, "bf16") == 0 ? TP_BF16 : TP_F32;
        } else if (strcmp(argv[i], "--clock") == 0) {
            timer = strcmp(value, "cpu") == 0 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
        } else if (strcmp(argv[i], "--graph") == 0) {
            s.graph = strcmp(value, "yes") == 0;
        } else if (strcmp(argv[i], "--smoke") == 0) {
            s.smoke = strcmp(value, "yes") == 0;
        } else if (strcmp(argv[i], "--generate") == 0) {
            s.generate = strcmp(value, "yes") == 0;
        } else {
            fprintf(stderr, "usage: bench_models [--preset tiny|small|large] [--tokens n] "
                            "[--batch n] [--steps n] [--threads n] "
                            "[--recompute none|attention|block] [--generate yes] "
                            "[--device cpu|cuda] [--dtype f32|bf16] [--graph yes] "
                            "[--clock wall|cpu] [--smoke yes]\n");
            return 2;
        }
    }
    if (s.steps < 1 || s.steps > MAX_STEPS || s.tokens < 1 || s.batch < 1) {
        fprintf(stderr, "bench_models: --steps must be 1 to %d, --tokens and --batch positive\n",
                MAX_STEPS);
        return 2;
    }
    if (!is_one_of(s.preset, "tiny", "small", "large") ||
        !is_one_of(s.recompute, "none", "attention", "block")) {
        fprintf(stderr,
                "bench_models: --preset is tiny, small or large, --recompute none, attention "
                "or block\n");
        return 2;
    }
    return s.generate ? generate(&s) : run(&s);
}
