/* bench_images.c - time and memory of training steps of the image models, as JSON lines.
 *
 *     bench_images [--model NAME] [--batch n] [--steps n] [--threads n]
 *                  [--recompute none|attention|block] [--device cpu|cuda] [--dtype f32|bf16]
 *                  [--drop-path p] [--clock wall|cpu] [--profile yes]
 *
 * A step is forward, cross entropy, backward and AdamW on a batch of random images, the same in
 * each step, which are fed as a data loader would. "utilisation" is the rate of the model's
 * multiply-adds in closed form (backward twice forward, recomputation not counted; 2 FLOPs each)
 * over "sgemm_gflops", the rate of a 1024^3 f32 product by OpenBLAS over the same threads in the
 * same run (blas_rate.h). --clock cpu counts processor time of all threads: with one thread, a fair
 * figure on a busy machine. --profile prints the time of each op instead. A model is one line of
 * the table below. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <tapegrad/vision.h>
#include <time.h>

#include "blas_rate.h"

enum { MAX_STEPS = 1000, LINES = 64 };

typedef struct settings {
    const char *model, *device;
    tp_dtype dtype;
    tp_recompute recompute;
    double drop_path;
    int batch, steps, threads;
    bool profile;
} settings;

/* ---- the models ---- */

/* make: a model in memory of its own, to be freed. */
typedef struct image_model {
    const char *name;
    int64_t size, classes;
    void *(*make)(tp_params *P, const settings *s);
    tp_tensor (*forward)(tp_tape *T, const void *m, tp_tensor images);
    double (*macs)(void);
} image_model;

static void *lsla_make(tp_params *P, const settings *s)
{
    tp_vit_lsla *m = malloc(sizeof *m);
    tp_vit_lsla_cfg c = tp_vit_lsla_paper(102);
    c.drop_path = s->drop_path;
    c.recompute = s->recompute;
    if (m) tp_vit_lsla_init(P, m, "", c);
    return m;
}

static tp_tensor lsla_forward(tp_tape *T, const void *m, tp_tensor images)
{
    return tp_vit_lsla_forward(T, m, images);
}

static double lsla_macs(void)
{
    const tp_vit_lsla_cfg c = tp_vit_lsla_paper(102);
    return tp_vit_lsla_flops(&c).macs;
}

static tp_vil_cfg vil_tiny(void)
{
    char why[128];
    tp_vil_cfg c = { 0 };
    tp_vil_preset(&c, "vil-tiny-rpb", why, sizeof why);
    return c;
}

static void *vil_make(tp_params *P, const settings *s)
{
    tp_vil *m = malloc(sizeof *m);
    tp_vil_cfg c = vil_tiny();
    c.drop_path = s->drop_path;
    c.recompute = s->recompute;
    if (m) tp_vil_init(P, m, "", c);
    return m;
}

static tp_tensor vil_forward(tp_tape *T, const void *m, tp_tensor images)
{
    return tp_vil_forward(T, m, images);
}

static double vil_macs(void)
{
    const tp_vil_cfg c = vil_tiny();
    return tp_vil_flops(&c).macs;
}

static void *cvt_make(tp_params *P, const settings *s)
{
    tp_cvt *m = malloc(sizeof *m);
    tp_cvt_cfg c = tp_cvt_preset(TP_CVT_LS_13, 224);
    c.drop_path = s->drop_path;
    c.recompute = s->recompute;
    if (m) tp_cvt_init(P, m, "", c);
    return m;
}

static tp_tensor cvt_forward(tp_tape *T, const void *m, tp_tensor images)
{
    return tp_cvt_forward(T, m, images);
}

static double cvt_macs(void)
{
    const tp_cvt_cfg c = tp_cvt_preset(TP_CVT_LS_13, 224);
    return tp_cvt_flops(&c).macs;
}

static const image_model models[] = {
    { "vil-tiny", 224, 1000, vil_make, vil_forward, vil_macs },
    { "cvt-ls-13", 224, 1000, cvt_make, cvt_forward, cvt_macs },
    { "vit_lsla", 224, 102, lsla_make, lsla_forward, lsla_macs },
};

/* ---- steps ---- */

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

/* Uniform in [-1,1), and labels. */
static bool fill_batch(const image_model *m, int batch, float **images, int32_t **labels)
{
    const size_t n = (size_t)batch * (size_t)(m->size * m->size * 3);
    uint32_t state = 1;
    *images = malloc(n * sizeof **images);
    *labels = malloc((size_t)batch * sizeof **labels);
    for (size_t i = 0; *images && i < n; i++) {
        state = state * 1664525u + 1013904223u;
        (*images)[i] = (float)(state >> 8) / 8388608.0F - 1.0F;
    }
    for (int i = 0; *labels && i < batch; i++) (*labels)[i] = (int32_t)(i * 7 % m->classes);
    return *images && *labels;
}

/* Steps on a device, and the time of each. False with the reason printed. */
static bool train(tp_device *D, const settings *s, const image_model *m, double *seconds)
{
    float *images = NULL;
    int32_t *labels = NULL;
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 1 });
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .seed = 1, .compute = s->dtype, .train = true });
    void *model = m->make(P, s);
    if (!model || !fill_batch(m, s->batch, &images, &labels))
        tp_raise(T, TP_E_MEMORY, "no memory for %d images", s->batch);
    tp_optim *O = tp_adamw_new(P, &(tp_adamw_opts){ .weight_decay = 0.05 });
    for (int u = -1; u < s->steps && tp_ok(T); u++) { /* the first warms up */
        if (u == 0) tp_device_reset_profile(D);
        tp_device_sync(D);
        const double start = now();
        tp_reset(T);
        const tp_tensor x = tp_from(T, TP_F32, TP_SHAPE(s->batch, m->size, m->size, 3), images);
        const tp_tensor y = tp_from(T, TP_I32, TP_SHAPE(s->batch), labels);
        tp_backward(T, tp_cross_entropy(T, m->forward(T, model, x), y, TP_MEAN));
        tp_step(O, 1e-4);
        tp_device_sync(D);
        if (u >= 0) seconds[u] = now() - start;
    }
    const bool done = tp_ok(T);
    if (!done) fprintf(stderr, "bench_images: %s\n", tp_why(T));
    tp_optim_free(O);
    tp_tape_free(T);
    tp_params_free(P);
    free(model);
    free(images);
    free(labels);
    return done;
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

static void report(tp_device *D, const settings *s, const image_model *m, double seconds)
{
    const char *const names[] = { "none", "attention", "block" };
    const tp_stats stats = tp_device_stats(D);
    const double flop = 3.0 * 2.0 * m->macs() * s->batch, blas = blas_rate(stats.threads, timer);
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    printf("{\"model\": \"%s\", \"dtype\": \"%s\", \"batch\": %d, \"recompute\": \"%s\", "
           "\"threads\": %d, \"isa\": \"%s\", \"seconds\": %.6f, \"images_per_s\": %.2f, "
           "\"gflops\": %.1f, \"sgemm_gflops\": %.1f, \"utilisation\": %.3f, "
           "\"device_peak_mb\": %.0f, \"process_peak_mb\": %.0f}\n",
           m->name, tp_dtype_name(s->dtype), s->batch, names[s->recompute], stats.threads,
           stats.isa, seconds, s->batch / seconds, 1e-9 * flop / seconds, 1e-9 * blas,
           flop / seconds / blas, (double)stats.peak_bytes / 1048576.0,
           (double)use.ru_maxrss / 1024.0);
}

static int run(const settings *s)
{
    static double seconds[MAX_STEPS];
    const image_model *m = NULL;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (strcmp(models[i].name, s->model) == 0) m = &models[i];
    if (!m) {
        fprintf(stderr, "bench_images: no model is called '%s'\n", s->model);
        return 2;
    }
    tp_device *D = tp_device_open(
        s->device, &(tp_device_opts){ .threads = s->threads, .profile = s->profile });
    const bool done = train(D, s, m, seconds);
    qsort(seconds, (size_t)s->steps, sizeof *seconds, by_size);
    if (done && s->profile)
        print_profile(D, s->steps);
    else if (done)
        report(D, s, m, seconds[s->steps / 2]);
    tp_device_close(D);
    return !done;
}

static tp_recompute recomputation(const char *word)
{
    return strcmp(word, "block") == 0       ? TP_RECOMPUTE_BLOCK
           : strcmp(word, "attention") == 0 ? TP_RECOMPUTE_ATTENTION
                                            : TP_RECOMPUTE_NONE;
}

int main(int argc, char **argv)
{
    settings s = { .model = "vit_lsla", .device = "cpu", .dtype = TP_F32, .batch = 4, .steps = 5 };
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--model") == 0) {
            s.model = value;
        } else if (strcmp(argv[i], "--batch") == 0) {
            s.batch = atoi(value);
        } else if (strcmp(argv[i], "--steps") == 0) {
            s.steps = atoi(value);
        } else if (strcmp(argv[i], "--threads") == 0) {
            s.threads = atoi(value);
        } else if (strcmp(argv[i], "--recompute") == 0) {
            s.recompute = recomputation(value);
        } else if (strcmp(argv[i], "--device") == 0) {
            s.device = value;
        } else if (strcmp(argv[i], "--dtype") == 0) {
            s.dtype = strcmp(value, "bf16") == 0 ? TP_BF16 : TP_F32;
        } else if (strcmp(argv[i], "--drop-path") == 0) {
            s.drop_path = strtod(value, NULL);
        } else if (strcmp(argv[i], "--clock") == 0) {
            timer = strcmp(value, "cpu") == 0 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
        } else if (strcmp(argv[i], "--profile") == 0) {
            s.profile = strcmp(value, "yes") == 0;
        } else {
            fprintf(stderr, "usage: bench_images [--model NAME] [--batch n] [--steps n] "
                            "[--threads n] [--recompute none|attention|block] "
                            "[--device cpu|cuda] [--dtype f32|bf16] [--drop-path p] "
                            "[--clock wall|cpu] [--profile yes]\n");
            return 2;
        }
    }
    if (s.steps < 1 || s.steps > MAX_STEPS || s.batch < 1) {
        fprintf(stderr, "bench_images: --steps must be 1 to %d, --batch positive\n", MAX_STEPS);
        return 2;
    }
    return run(&s);
}
