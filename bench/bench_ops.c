/* bench_ops.c - time of single ops, forward and backward, as JSON lines.
 *
 *     bench_ops [--threads n] [--isa base|avx2|avx512] [--filter text] [--seconds s] [--long yes]
 *               [--clock wall|cpu] [--device cpu|cuda] [--dtype f32|bf16]
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
 * threads: with one thread, a fair figure on a busy machine.
 *
 * On CUDA there are cases of another size, and times are those of the op's kernels by the card's
 * clock (tp_device_profile); the two rates are those of "matmul" and "copy" there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/op.h>
#include <tapegrad/tapegrad.h>
#include <time.h>

#include "blas_rate.h"
#include "op_cases.h"

enum { LINES = 64, MAX_REPS = 400, MIN_REPS = 2, LONG_CONTEXT = 16384 };

typedef struct settings {
    tp_device_opts device;
    const char *filter, *device_name;
    tp_dtype dtype;
    double seconds; /* of each case and direction */
    bool run_long;
} settings;

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

/* ---- measuring ---- */

static int64_t count(tp_shape s)
{
    int64_t n = 1;
    for (int i = 0; i < s.ndim; i++) n *= s.dim[i];
    return n;
}

/* Host memory for an input, from a linear congruence: int64_t below k->in[i].below, or floats. */
static void *numbers(const op_case *k, int i, uint32_t *seed)
{
    const int64_t n = count(k->in[i].shape), below = k->in[i].below;
    void *host = malloc((size_t)n * (below > 0 ? sizeof(int64_t) : sizeof(float)));
    if (!host) exit(1);
    for (int64_t j = 0; j < n; j++) {
        *seed = *seed * 1664525u + 1013904223u;
        if (below > 0)
            ((int64_t *)host)[j] = (int64_t)(*seed >> 8) % below;
        else
            ((float *)host)[j] = (float)(*seed >> 8) * 0x1p-23f - 1.0f;
    }
    return host;
}

static int inputs_of(const op_case *k)
{
    int n = 0;
    while (n < OP_MAX_IN && k->in[n].shape.ndim > 0) n++;
    return n;
}

/* Seconds of one forward and one backward on the CPU. */
static void step(tp_tape *T, const op_case *k, double *forward, double *backward)
{
    tp_tensor x[OP_MAX_IN] = { TP_NONE };
    uint32_t seed = 1;
    tp_reset(T);
    tp_device_reset_peak(tp_device_of(T));
    for (int i = 0; i < inputs_of(k); i++) {
        void *host = numbers(k, i, &seed);
        x[i] = k->in[i].below > 0 ? tp_from(T, TP_I64, k->in[i].shape, host)
                                  : tp_input(T, TP_F32, k->in[i].shape, host);
        free(host);
    }
    const double t = now();
    const tp_tensor y = k->apply(T, x, k);
    *forward = now() - t;
    tp_backward(T, tp_apply(T, &end_op, NULL, y));
    *backward = now() - backward_began;
}

/* ---- the same on CUDA: inputs stay on the card, times are the profile's ---- */

typedef struct card_inputs {
    tp_params *P; /* floats */
    tp_tensor at[OP_MAX_IN];
} card_inputs;

static void place(tp_tape *T, const op_case *k, card_inputs *in)
{
    uint32_t seed = 1;
    in->P = tp_params_new(tp_device_of(T), &(tp_params_opts){ .blank = true });
    for (int i = 0; i < inputs_of(k); i++) {
        char name[16];
        snprintf(name, sizeof name, "x%d", i);
        in->at[i] =
            k->in[i].below > 0 ? TP_NONE : tp_param(in->P, name, k->in[i].shape, (tp_init){ 0 }, 0);
    }
    for (int i = 0; i < inputs_of(k); i++) {
        void *host = numbers(k, i, &seed);
        const size_t n = (size_t)count(k->in[i].shape);
        if (k->in[i].below > 0)
            tp_carry(T, &in->at[i], tp_from(T, TP_I64, k->in[i].shape, host));
        else
            tp_param_set(in->P, in->at[i], TP_F32, host, n * sizeof(float));
        free(host);
    }
}

static void release(tp_tape *T, const op_case *k, card_inputs *in)
{
    tp_reset(T);
    for (int i = 0; i < inputs_of(k); i++)
        if (k->in[i].below > 0) tp_carry(T, &in->at[i], TP_NONE);
    tp_params_free(in->P);
}

static void card_step(tp_tape *T, const op_case *k, card_inputs *in, tp_dtype dt, double *forward,
                      double *backward)
{
    tp_op_time f[LINES], b[LINES];
    tp_device *D = tp_device_of(T);
    tp_tensor x[OP_MAX_IN];
    tp_reset(T);
    tp_grad_clear(in->P);
    for (int i = 0; i < inputs_of(k); i++)
        x[i] = k->in[i].below > 0 || dt == TP_F32 || k->f32 >> i & 1u ? in->at[i]
                                                                      : tp_cast(T, in->at[i], dt);
    tp_device_reset_peak(D);
    tp_device_reset_profile(D);
    const tp_tensor y = k->apply(T, x, k);
    const int nf = tp_device_profile(D, f, LINES);
    tp_tensor loss = tp_numel(y) == 1 ? y : tp_sum(T, tp_square(T, y), TP_ALL);
    tp_device_reset_profile(D);
    tp_backward(T, loss);
    const int nb = tp_device_profile(D, b, LINES);
    *forward = *backward = 0.0;
    for (int i = 0; i < nf; i++) {
        *forward += f[i].seconds;
        for (int j = 0; j < nb; j++)
            if (strcmp(f[i].op, b[j].op) == 0) *backward += b[j].seconds;
    }
}

static int by_time(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* What the machine does in this run: MFLOP of OpenBLAS (CUDA: of "matmul") and MB of "copy" a
 * second; 0: unknown. */
typedef struct rates {
    double products, copies;
} rates;

/* One line. Returns this case's rate, of FLOPs if it counts them, else of bytes. */
static double report(const op_case *k, tp_dtype dt, bool backward, double *seconds, int n,
                     const tp_stats *stats, const rates *machine)
{
    static double first_rate[2]; /* of the first of the growing contexts, by direction */
    const bool bytes = k->mflop == 0.0;
    qsort(seconds, (size_t)n, sizeof *seconds, by_time);
    const double share = (double)tp_dtype_size(dt) / 4.0; /* of the bytes of f32 */
    const double size = bytes ? share * k->mbyte : k->mflop;
    const double size_back = k->mbyte_back > 0.0 ? share * k->mbyte_back : 2.0 * size;
    const double rate = (backward ? size_back : size) / seconds[0];
    const double best = bytes ? machine->copies : machine->products;
    printf("{\"op\": \"%s\", \"direction\": \"%s\", \"shape\": \"%s\", \"dtype\": \"%s\", "
           "\"threads\": %d, "
           "\"isa\": \"%s\", \"ms\": %.4f, \"best_ms\": %.4f, \"%s\": %.1f, \"mb\": %.1f",
           k->op, backward ? "backward" : "forward", k->shape, tp_dtype_name(dt), stats->threads,
           stats->isa, 1e3 * seconds[n / 2], 1e3 * seconds[0], bytes ? "gbytes_per_s" : "gflops",
           1e-3 * rate, (double)stats->peak_bytes / 1048576.0);
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
static double measure(tp_tape *T, const op_case *k, const settings *s, const rates *machine)
{
    static double forward[MAX_REPS], backward[MAX_REPS];
    const bool card = k->cuda;
    double total = 0.0;
    card_inputs in;
    if (card) place(T, k, &in);
    int n = -1; /* the first run pays for memory and caches */
    for (; n < MAX_REPS && (n < MIN_REPS || total < 2.0 * s->seconds) && tp_ok(T); n++) {
        double f = 0.0, b = 0.0;
        if (card)
            card_step(T, k, &in, s->dtype, &f, &b);
        else
            step(T, k, &f, &b);
        if (n < 0) continue;
        forward[n] = f;
        backward[n] = b;
        total += f + b;
    }
    const tp_stats stats = tp_device_stats(tp_device_of(T));
    if (card) release(T, k, &in);
    if (!tp_ok(T)) return 0.0;
    const double rate = report(k, s->dtype, false, forward, n, &stats, machine);
    report(k, s->dtype, true, backward, n, &stats, machine);
    return rate;
}

static bool wanted(const op_case *k, const settings *s)
{
    char name[128];
    snprintf(name, sizeof name, "%s %s", k->op, k->shape);
    return strstr(name, s->filter) && (k->tokens < LONG_CONTEXT || s->run_long);
}

static int run(const settings *s)
{
    tp_device *D = tp_device_open(s->device_name, &s->device);
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .train = true, .compute = s->dtype });
    const bool cuda = strncmp(s->device_name, "cuda", 4) == 0;
    rates machine = { 0.0, 0.0 };
    int place = 0; /* among the cases of the device */
    if (!cuda) {
        machine.products = 1e-6 * blas_rate(tp_device_stats(D).threads, timer);
        printf("{\"sgemm_gflops\": %.1f}\n", 1e-3 * machine.products);
    }
    for (const op_case *k = op_cases; k->op; k++) {
        if (k->cuda != cuda) continue;
        const double rate = ++place > 2 && !wanted(k, s) ? 0.0 : measure(T, k, s, &machine);
        if (place == 1 && cuda) machine.products = rate;
        if (place == 2) machine.copies = rate;
    }
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
    settings s = { .filter = "", .device_name = "cpu", .dtype = TP_F32, .seconds = 0.5 };
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
        } else if (strcmp(argv[i], "--device") == 0) {
            s.device_name = value;
            s.device.profile = strncmp(value, "cuda", 4) == 0;
        } else if (strcmp(argv[i], "--dtype") == 0) {
            s.dtype = strcmp(value, "bf16") == 0 ? TP_BF16 : TP_F32;
        } else if (strcmp(argv[i], "--clock") == 0) {
            timer = strcmp(value, "cpu") == 0 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
        } else {
            fprintf(stderr, "usage: bench_ops [--threads n] [--isa base|avx2|avx512] "
                            "[--filter text] [--seconds s] [--long yes] [--clock wall|cpu] "
                            "[--device cpu|cuda] [--dtype f32|bf16]\n");
            return 2;
        }
    }
    if (s.dtype == TP_BF16 && !s.device.profile) {
        fprintf(stderr, "bench_ops: --dtype bf16 wants --device cuda\n");
        return 2;
    }
    return run(&s);
}
