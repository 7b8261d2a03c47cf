/* bench_models.c - time and memory of training steps of any model of the table, as JSON lines
 * (--help).
 *
 * A step is forward, cross entropy, backward and AdamW on random images, tokens or documents, fed
 * as a loader would feed them. The cache of a language model is as long as the segment; documents
 * have no padding, and models of masked tokens predict 15 % of them. "utilisation" is the rate of
 * the FLOPs that its ops report (2 per multiply-add, backward twice forward, recomputation not
 * counted) divided by "sgemm_gflops", the rate of a 1024^3 f32 product of OpenBLAS with the same
 * threads in the same run (timing.h). "matmul_gflops" is the rate of tapegrad's own product.
 * "predicted_mb" is the prediction of a dry device for "device_peak_mb". --clock cpu counts the CPU
 * time of all threads; with one thread that is a fair measure on a busy machine. --profile prints a
 * line with the time of each op instead.
 *
 * On CUDA steps are queued without waiting, as in training. "matmul_gflops" is the rate of an
 * 8192^3 product in --dtype and the base of "utilisation". "kernel_seconds" is the time of a step's
 * kernels by the GPU's clock (0 on the CPU). --graph launches the whole step as one captured graph
 * (tp_capture). --smoke makes that product and the work queued before measured kernels small,
 * to try the program; its figures mean nothing.
 *
 * --generate decodes one token at a time, as a sampler does (Transformer-LS language models). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/options.h>

#include "model_steps.h"
#include "timing.h"

enum { PRODUCTS = 40, LINES = 256 };

/* ---- the machine ---- */

/* Best rate of tp_matmul on n^3, FLOP/s. */
static double matmul_rate(tp_device *D, tp_dtype dt, int64_t n)
{
    const double flop = 2.0 * (double)n * (double)n * (double)n;
    tp_params *P = tp_params_new(D, NULL); /* random, because zeros are faster on a GPU */
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
    double seconds, kernels; /* per step                                 */
    double blas, matmul;     /* FLOP/s of the machine; blas is 0 on CUDA */
    double predicted;        /* MiB                                      */
} figures;

/* The beginning of a line: which step it is about. */
static void print_step(const setup *s)
{
    printf("{\"model\": \"%s\", \"dtype\": \"%s\", ", s->name, tp_dtype_name(s->dtype));
    if (is_text(s)) printf("\"tokens\": %lld, ", (long long)s->tokens);
    printf("\"batch\": %d, ", s->batch);
}

static void report(const setup *s, tp_device *D, const figures *f)
{
    static const char *const recomputation[] = { "none", "attention", "block" };
    const tp_common_cfg o = tp_model_get(&s->model);
    const tp_stats stats = tp_device_stats(D);
    const double best = f->blas > 0.0 ? f->blas : f->matmul;
    const double macs = tp_model_cost(&s->model, s->tokens, s->tokens).macs - skipped_macs(s);
    const double rate = 3.0 * 2.0 * macs * s->batch / f->seconds;
    print_step(s);
    printf("\"recompute\": \"%s\", \"graph\": %d, \"threads\": %d, \"isa\": \"%s\", "
           "\"unfused\": %llu, \"seconds\": %.6f, ",
           recomputation[o.recompute], s->graph, stats.threads, stats.isa,
           (unsigned long long)stats.unfused, f->seconds);
    if (is_text(s))
        printf("\"tokens_per_s\": %.1f, ",
               (double)s->tokens * s->batch * (o.pair ? 2 : 1) / f->seconds);
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

static void print_profile(tp_device *D, const setup *s)
{
    tp_op_time line[LINES];
    const int n = tp_device_profile(D, line, LINES);
    double sum = 0.0;
    for (int i = 0; i < n && i < LINES; i++) sum += line[i].seconds;
    for (int i = 0; i < n && i < LINES; i++) {
        print_step(s);
        printf("\"part\": \"%s\", \"direction\": \"%s\", \"calls\": %.1f, \"ms\": %.4f, \"share\": "
               "%.4f%s}\n",
               line[i].op, line[i].backward ? "backward" : "forward",
               (double)line[i].calls / s->steps, 1e3 * line[i].seconds / s->steps,
               line[i].seconds / sum, s->smoke ? ", \"smoke\": true" : "");
    }
    fflush(stdout);
}

static int profile(const setup *s)
{
    static double unused[MAX_STEPS];
    const tp_device_opts o = { .threads = s->threads, .profile = true };
    tp_device *D = tp_device_open(s->device, &o);
    const bool done = take_steps(D, s, TP_NONE, unused);
    if (done) print_profile(D, s);
    tp_device_close(D);
    return !done;
}

static int run(const setup *s)
{
    static double seconds[MAX_STEPS];
    const int64_t side = s->smoke ? 64 : on_cuda(s) ? 8192 : 1024;
    figures f = { .predicted = predicted_mb(s), .kernels = on_cuda(s) ? kernel_seconds(s) : 0.0 };
    tp_device *D = tp_device_open(s->device, &(tp_device_opts){ .threads = s->threads });
    f.blas = on_cuda(s) ? 0.0 : blas_rate(tp_device_stats(D).threads);
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

typedef struct arguments {
    char *model, *device;
    int64_t tokens, batch, steps, threads;
    int recompute, dtype, clock, graph, profile, generate, smoke; /* indices of the choices */
    double drop_path;
} arguments;

#define S   arguments
#define YES "no|yes"

static const tp_option table[] = {
    TP_HEADING("OPTIONS"),
    TP_STRING("model", S, model, "NAME", 0, "Any model that tp-models lists."),
    TP_INT("tokens", S, tokens, 0, 1 << 24, 0,
           "Tokens of a segment and of the cache, or of a document; 0: the model's."),
    TP_INT("batch", S, batch, 0, 65536, 0, "Batch size; 0: 1 text or 4 images or documents."),
    TP_INT("steps", S, steps, 1, MAX_STEPS, 0, "Number of measured steps."),
    TP_INT("threads", S, threads, 0, 1024, 0, "CPU threads; 0: all cores."),
    TP_CHOICE("recompute", S, recompute, "none|attention|block", 0,
              "What the backward pass recomputes instead of storing."),
    TP_NUM("drop-path", S, drop_path, 0, 0.99, 0, "Stochastic depth of the last block."),
    TP_STRING("device", S, device, "NAME", 0, "cpu or cuda."),
    TP_CHOICE("dtype", S, dtype, "f32|bf16", 0, "Element type of matrix products."),
    TP_CHOICE("clock", S, clock, "wall|cpu", 0, "Elapsed time, or CPU time of all threads."),
    TP_CHOICE("graph", S, graph, YES, 0, "Launch each step as one captured graph."),
    TP_CHOICE("profile", S, profile, YES, 0, "Print the time of each op instead."),
    TP_CHOICE("generate", S, generate, YES, 0, "Measure decoding, one token at a time, instead."),
    TP_CHOICE("smoke", S, smoke, YES, 0, "Do little work, to try the program."),
    { 0 },
};

static const tp_command manual = {
    .name = "bench_models",
    .summary = "measures training steps of any model",
    .about = "Prints time, memory and rates of a step as a JSON line. The head of "
             "bench/bench_models.c explains the figures.",
    .table = table,
};

/* The setup for the arguments; false with the reason in why. */
static bool configure(setup *s, const arguments *a, char *why, size_t size)
{
    *s = (setup){ .name = a->model,
                  .device = a->device,
                  .dtype = a->dtype ? TP_BF16 : TP_F32,
                  .steps = (int)a->steps,
                  .threads = (int)a->threads,
                  .graph = a->graph,
                  .smoke = a->smoke,
                  .profile = a->profile };
    if (!tp_model_preset(&s->model, a->model, why, size)) return false;
    tp_common_cfg o = tp_model_get(&s->model);
    s->batch = a->batch ? (int)a->batch : is_lm(s) ? 1 : 4;
    s->tokens = a->tokens ? a->tokens : o.cache ? o.cache : o.length;
    o.cache = o.length = s->tokens;
    o.recompute = (tp_recompute)a->recompute;
    o.drop_path = a->drop_path;
    tp_model_set(&s->model, &o);
    if (!a->tokens || is_text(s)) return tp_model_check(&s->model, why, size);
    snprintf(why, size, "--tokens: %s takes images", a->model);
    return false;
}

static bool start(void *options, char *why, size_t size)
{
    const arguments *a = options;
    setup s;
    timer = a->clock ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
    if (!configure(&s, a, why, size)) return false;
    return (a->generate ? decode(&s) : s.profile ? profile(&s) : run(&s)) == 0;
}

int main(int argc, char **argv)
{
    arguments a = { .model = strdup("ls_lm-small"), .device = strdup("cpu"), .steps = 5 };
    return tp_command_main(&manual, argc - 1, argv + 1, &a, start);
}
