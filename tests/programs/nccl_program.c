/* nccl_program.c - one of several processes that sum gradients on GPUs, for test_nccl: steps on
 * sums, whose results it compares with those of sums of its own.
 *
 *     mpirun -n K nccl_program PATH [TASK]...
 *
 * PATH begins tp_exchange_stats.path. On GPUs results are compared to rounding, as NCCL adds in an
 * order of its own. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/capture.h>
#include <tapegrad/peers.h>
#include <tapegrad/tapegrad.h>
#include <unistd.h>

enum { UPDATES = 6, A = 30000, B = 5, C = 9001, SETS = 3, MOST = 8, FAILS = 3 };

static const int64_t numel[SETS] = { A, B, C };
static tp_peers *G;
static int rank, ranks;

static void need(bool done, const char *what, const char *why)
{
    if (done) return;
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, why);
    _exit(2);
}

static void lost(void *env, const char *why)
{
    (void)env;
    fprintf(stderr, "nccl_program: %s\n", why);
    _exit(3);
}

static bool has(int argc, char **argv, const char *task)
{
    bool found = false;
    for (int i = 2; i < argc; i++) found = found || strcmp(argv[i], task) == 0;
    return found;
}

/* ---- gradients ---- */

/* Parameter 1 is left out by rank 1, and by all in update 2. */
static bool reaches(int k, int of, int update, bool records)
{
    return k != 1 || (of != 1 && (records || update != 2));
}

static float number(int k, int64_t i, int of, int update)
{
    return (float)sin(1.0 + (double)k * 0.7 + (double)i * 0.37 + of * 1.9 + update * 0.23);
}

static void fill(float *x, int k, int of, int update)
{
    for (int64_t i = 0; i < numel[k]; i++) x[i] = number(k, i, of, update);
}

/* The sum over the processes, in the order of their ranks. */
static void sum(float *x, int k, int update, bool records)
{
    for (int64_t i = 0; i < numel[k]; i++) {
        x[i] = 0;
        for (int of = 0; of < ranks; of++)
            if (reaches(k, of, update, records)) x[i] += number(k, i, of, update);
    }
}

/* ---- the process ---- */

typedef struct model {
    tp_params *P;
    tp_tensor w[SETS];
    tp_optim *O;
} model;

static void declare(model *m, tp_device *D)
{
    static const char *const names[SETS] = { "a", "b", "c" };
    m->P = tp_params_new(D, NULL);
    for (int k = 0; k < SETS; k++)
        m->w[k] =
            tp_param(m->P, names[k], TP_SHAPE(numel[k]), (tp_init){ TP_INIT_NORMAL, 1, 0 }, 0);
}

static void backward(tp_tape *T, tp_capture *R, model *m, tp_tensor *x, int update)
{
    static float f[A];
    for (int k = 0; k < SETS; k++) {
        fill(f, k, rank, update);
        tp_feed(T, &x[k], TP_F32, TP_SHAPE(numel[k]), f);
    }
    if (!R) tp_reset(T);
    if (R && !tp_capture_begin(R)) return;
    tp_tensor loss = tp_sum(T, tp_mul(T, m->w[0], x[0]), TP_ALL);
    for (int k = 1; k < SETS; k++)
        if (reaches(k, rank, update, R != NULL))
            loss = tp_add(T, loss, tp_sum(T, tp_mul(T, m->w[k], x[k]), TP_ALL));
    tp_backward(T, loss);
    if (R) tp_capture_end(R);
}

/* A step of a model of its own, which gets the sums. */
static void step_alone(model *m, int update, bool records)
{
    static float f[A];
    for (int k = 0; k < SETS; k++) {
        sum(f, k, update, records);
        if (k == 1 && !records && update == 2) continue;
        need(tp_param_set_grad(m->P, m->w[k], TP_F32, f, (size_t)numel[k] * sizeof *f), "set_grad",
             tp_params_why(m->P));
    }
    tp_step(m->O, 0.1);
    tp_grad_clear(m->P);
}

static void compare(const model *m, const model *alone, int update)
{
    static float x[A], y[A];
    for (int k = 0; k < SETS; k++) {
        const size_t n = (size_t)numel[k] * sizeof *x;
        need(tp_param_get(m->P, m->w[k], TP_F32, x, n), "values", tp_params_why(m->P));
        need(tp_param_get(alone->P, alone->w[k], TP_F32, y, n), "values", tp_params_why(alone->P));
        int wrong = 0;
        for (int64_t i = 0; i < numel[k]; i++)
#ifdef TP_EMULATION
            wrong += x[i] != y[i];
#else
            wrong += fabsf(x[i] - y[i]) > 1e-3f * (1 + fabsf(y[i]));
#endif
        if (wrong) printf("update %d, parameter %d: %d values differ\n", update, k, wrong);
        if (wrong) exit(1);
    }
}

static void train(tp_device *D, int argc, char **argv)
{
    model m, alone;
    tp_tensor x[SETS] = { 0 };
    tp_tape *T = tp_tape_new(D, NULL);
    tp_capture *R = has(argc, argv, "record") ? tp_capture_new(T) : NULL;
    declare(&m, D);
    declare(&alone, D);
    tp_exchange *X = tp_exchange_new(
        m.P, G, &(tp_exchange_opts){ .bucket = 20000, .shard = has(argc, argv, "shard") });
    need(tp_exchange_ok(X), "exchange", tp_exchange_why(X));
    m.O = tp_optim_new(m.P, "adamw", NULL);
    alone.O = tp_optim_new(alone.P, "adamw", NULL);
    for (int u = 0; u < UPDATES; u++) {
        const double sent = tp_exchange_stats_of(X).bytes;
        if (u == FAILS && rank == 1 && has(argc, argv, "breaks"))
            setenv("EMULATION_NCCL_FAILS", "sum", 1);
        tp_exchange_begin(X);
        backward(T, R, &m, x, u);
        need(tp_ok(T), "tape", tp_why(T));
        if (u == 1 && !R && tp_exchange_stats_of(X).bytes == sent) printf("nothing left early\n");
        if (u == FAILS && rank == 1 && has(argc, argv, "dies")) raise(SIGKILL);
        if (u == FAILS && rank == 1 && has(argc, argv, "hangs")) raise(SIGSTOP);
        const bool done = tp_exchange_finish(X);
        need(done, "finish", tp_exchange_why(X));
        if (strncmp(tp_exchange_stats_of(X).path, argv[1], strlen(argv[1])) != 0)
            need(false, "path", tp_exchange_stats_of(X).path);
        tp_step(m.O, 0.1);
        tp_grad_clear(m.P);
        need(tp_params_ok(m.P), "parameters", tp_params_why(m.P));
        step_alone(&alone, u, R != NULL);
        compare(&m, &alone, u);
    }
    if (R && tp_capture_launches(R) == 0) printf("nothing was recorded\n");
    tp_capture_free(R);
    tp_exchange_free(X);
    tp_optim_free(m.O);
    tp_optim_free(alone.O);
    tp_tape_free(T);
    tp_params_free(m.P);
    tp_params_free(alone.P);
}

static tp_device *open_device(bool same)
{
    char name[20] = "cuda";
#ifdef TP_EMULATION
    char bus[8];
    snprintf(bus, sizeof bus, "%04x", same ? 0U : (unsigned)rank);
    setenv("EMULATION_BUS", bus, 1);
#else
    if (!same) snprintf(name, sizeof name, "cuda:%d", tp_peers_transport(G)->local_rank);
#endif
    return tp_device_open(name, NULL);
}

int main(int argc, char **argv)
{
    G = tp_peers_open(&(tp_peers_opts){ .timeout = 4, .lost = lost });
    rank = tp_peers_rank(G);
    ranks = tp_peers_count(G);
    need(argc > 1 && G && tp_peers_ok(G), "start", G ? tp_peers_why(G) : "no mpirun");
    tp_peers_during(G, "the test", 1);
    if (rank == 1 && has(argc, argv, "old")) setenv("EMULATION_NCCL_VERSION", "20700", 1);
    if (rank == 1 && has(argc, argv, "start")) setenv("EMULATION_NCCL_FAILS", "start", 1);
    tp_device *D = open_device(has(argc, argv, "same"));
    need(tp_device_ok(D), "device", tp_device_why(D));
    train(D, argc, argv);
    tp_device_close(D);
    tp_peers_close(G);
    printf("done\n");
    return 0;
}
