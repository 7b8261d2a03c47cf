/* test_exchange.c - gradients are summed over processes in the order of their ranks, whichever
 * parameters each of them reaches and whenever buckets leave. Processes are threads. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/capture.h>
#include <tapegrad/peers.h>
#include <tapegrad/tapegrad.h>

#include "autograd/params.h"
#include "support/device.h"
#include "support/thread_transport.h"
#include "train/peers/exchange.h"

enum { RANKS = 4, PARAMS = 6, UPDATES = 4, MOST = 30388 }; /* MOST: the elements */

/* Sizes on both sides of a reduction block; all together more than one bucket of most tests. */
static const int64_t numel[PARAMS] = { 9000, 3, 4096, 12289, 0, 5000 };

/* What a test varies. */
typedef struct plan {
    tp_exchange_opts o;
    tp_dtype dtype;
    int accumulation;      /* 0: 1 */
    uint32_t skips[RANKS]; /* by rank: parameters that its loss leaves out (bits) */
    bool alternates;       /* only in odd updates */
    uint32_t frozen;
    bool tied, checkpoint, transient, no_begin, whole;
    int fails; /* the rank whose backward fails in update 1; 0: none */
    /* Results */
    double *grad[RANKS]; /* [UPDATES][MOST] */
    bool has[RANKS][UPDATES][PARAMS];
    bool done[RANKS][UPDATES];
    tp_exchange_stats stats[RANKS];
    double early[RANKS]; /* bytes sent before finish */
    char why[RANKS][300];
} plan;

typedef struct model {
    tp_tensor p[PARAMS];
    const plan *t;
    tp_tensor tied, x;
} model;

static double number(int rank, int update, int batch, int k)
{
    return sin(1.0 + rank * 1.7 + update * 0.3 + batch * 0.11 + k * 2.3);
}

static tp_tensor curve(tp_tape *T, const void *self, tp_tensor c)
{
    return tp_mul(T, tp_tanh(T, ((const model *)self)->p[3]), c);
}

/* The sum of c_k sum p_k tanh(p_k), with other c in each process. */
static tp_tensor loss_of(tp_tape *T, const model *m, int rank, int update, int batch)
{
    const plan *t = m->t;
    const bool leaves_out = !t->alternates || update % 2;
    tp_tensor sum = tp_scale(T, tp_sum(T, m->p[0], TP_ALL), leaves_out ? 0.5 : 1.0);
    for (int k = 1; k < PARAMS; k++) {
        if (leaves_out && (t->skips[rank] >> k & 1)) continue;
        tp_tensor y = tp_tanh(T, m->p[k]);
        if (k == 3 && t->transient) y = tp_transient(T, y);
        if (k == 3 && t->checkpoint) y = tp_checkpoint(T, curve, m, m->x);
        y = tp_sum(T, tp_mul(T, y, m->p[k]), TP_ALL);
        sum = tp_add(T, sum, tp_scale(T, y, number(rank, update, batch, k)));
    }
    if (t->tied) sum = tp_add(T, sum, tp_scale(T, tp_sum(T, m->tied, TP_ALL), 0.25 + rank));
    return sum;
}

/* ---- one process ---- */

typedef struct process {
    tp_device *D;
    tp_params *P;
    tp_tape *T;
    model m;
    tp_tensor ones;
} process;

static process process_open(const plan *t)
{
    process p = { .D = device_open(&(tp_device_opts){ .threads = 1 }), .m = { .t = t } };
    p.P = tp_params_new(p.D, &(tp_params_opts){ .seed = 5, .dtype = t->dtype });
    p.T = tp_tape_new(p.D, NULL);
    for (int k = 0; k < PARAMS; k++) {
        char name[8];
        snprintf(name, sizeof name, "p%d", k);
        p.m.p[k] = tp_param(p.P, name, TP_SHAPE(numel[k]), (tp_init){ TP_INIT_NORMAL, 1, 0 },
                            k == 1 ? TP_TABLE : 0);
        if (t->frozen >> k & 1) tp_freeze(p.P, name, true);
    }
    tp_tie(p.P, "tied", p.m.p[3]);
    p.m.tied = tp_find(p.P, "tied");
    cr_assert(tp_params_ok(p.P), "%s", tp_params_why(p.P));
    return p;
}

static void process_close(process *p)
{
    cr_expect(tp_params_ok(p->P), "%s", tp_params_why(p->P));
    tp_tape_free(p->T);
    tp_params_free(p->P);
    tp_device_close(p->D);
}

/* Forward and backward of one batch. */
static void differentiate(process *p, int rank, int update, int batch, tp_exchange *X)
{
    const plan *t = p->m.t;
    float ones[12289]; /* a GPU has no f64 */
    for (int i = 0; i < 12289; i++) ones[i] = 1;
    tp_reset(p->T);
    tp_feed(p->T, &p->ones, TP_F32, TP_SHAPE(12289), ones);
    p->m.x = tp_cast(p->T, p->ones, t->dtype);
    const tp_tensor loss = loss_of(p->T, &p->m, rank, update, batch);
    cr_assert(tp_ok(p->T), "%s", tp_why(p->T));
    if (X && batch + 1 == (t->accumulation ? t->accumulation : 1) && !t->no_begin)
        tp_exchange_begin(X);
    if (X && t->fails && t->fails == rank && update == 1)
        tp_backward(p->T, tp_tanh(p->T, p->m.p[0])); /* refused: not a number */
    else
        tp_backward(p->T, loss);
}

/* Appends all gradients; zeros where there is none. */
static void collect(process *p, double *to, bool *has)
{
    for (tp_param_info it = { 0 }; tp_next_param(p->P, &it);) {
        if (it.alias_of) continue;
        const int k = it.name[1] - '0';
        has[k] = it.has_grad;
        memset(to, 0, (size_t)numel[k] * sizeof *to);
        if (it.has_grad && numel[k] > 0)
            cr_assert(
                tp_param_get_grad(p->P, it.tensor, TP_F64, to, (size_t)numel[k] * sizeof *to));
        to += numel[k];
    }
}

/* ---- all processes ---- */

static void run_rank(void *env, tp_peers *G)
{
    plan *t = env;
    const int rank = tp_peers_rank(G), batches = t->accumulation ? t->accumulation : 1;
    process p = process_open(t);
    tp_exchange *X = tp_exchange_new(p.P, G, &t->o);
    cr_assert(tp_exchange_ok(X), "%s", tp_exchange_why(X));
    if (t->whole) cr_assert(tp__exchange_whole(X), "%s", tp_exchange_why(X));
    double sent = 0;
    t->grad[rank] = calloc(UPDATES * MOST, sizeof(double));
    for (int u = 0; u < UPDATES; u++) {
        for (int b = 0; b < batches; b++) differentiate(&p, rank, u, b, X);
        t->early[rank] += tp_exchange_stats_of(X).bytes - sent;
        t->done[rank][u] = tp_exchange_finish(X);
        sent = tp_exchange_stats_of(X).bytes;
        if (!t->done[rank][u])
            snprintf(t->why[rank], sizeof t->why[rank], "%s", tp_exchange_why(X));
        collect(&p, t->grad[rank] + u * MOST, t->has[rank][u]);
        tp_grad_clear(p.P);
        tp_clear(p.T);
    }
    t->stats[rank] = tp_exchange_stats_of(X);
    tp_exchange_free(X);
    process_close(&p);
}

static void run(plan *t, int ranks)
{
    run_ranks(ranks, run_rank, t);
}

static void drop(plan *t)
{
    for (int k = 0; k < RANKS; k++) free(t->grad[k]);
    memset(t->grad, 0, sizeof t->grad);
}

/* What finish must give: every process's own gradients, added in the order of the ranks in the
 * dtype of the parameters. */
static void want(const plan *t, int ranks, double *sum, bool has[UPDATES][PARAMS])
{
    static double one[MOST];
    memset(sum, 0, UPDATES * MOST * sizeof *sum);
    memset(has, 0, UPDATES * sizeof *has);
    for (int rank = 0; rank < ranks; rank++) {
        process p = process_open(t);
        for (int u = 0; u < UPDATES; u++) {
            bool reached[PARAMS];
            for (int b = 0; b < (t->accumulation ? t->accumulation : 1); b++)
                differentiate(&p, rank, u, b, NULL);
            collect(&p, one, reached);
            tp_grad_clear(p.P);
            double *to = sum + u * MOST;
            for (int i = 0; i < MOST; i++)
                to[i] = t->dtype == TP_F64 ? to[i] + one[i] : (float)to[i] + (float)one[i];
            for (int k = 0; k < PARAMS; k++) has[u][k] = has[u][k] || reached[k];
        }
        process_close(&p);
    }
}

static void expect_sums(plan *t, int ranks, const char *what)
{
    static double sum[UPDATES * MOST];
    bool has[UPDATES][PARAMS];
    want(t, ranks, sum, has);
    run(t, ranks);
    for (int rank = 0; rank < ranks; rank++)
        for (int u = 0; u < UPDATES; u++) {
            cr_expect(t->done[rank][u], "%s: rank %d of %d: %s", what, rank, ranks, t->why[rank]);
            cr_expect_arr_eq(t->has[rank][u], has[u], sizeof has[u], "%s: rank %d of %d, update %d",
                             what, rank, ranks, u);
            int wrong = 0;
            for (int i = 0; i < MOST; i++)
                wrong += t->grad[rank][u * MOST + i] != sum[u * MOST + i];
            cr_expect_eq(wrong, 0, "%s: rank %d of %d, update %d: %d differ", what, rank, ranks, u,
                         wrong);
        }
    drop(t);
}

static void expect_sums_of_all(plan t, const char *what)
{
    for (int ranks = 1; ranks <= RANKS; ranks++) expect_sums(&t, ranks, what);
}

/* Bits depend neither on the size of buckets nor on when they leave. */
Test(exchange, sums_in_the_order_of_the_ranks)
{
    static const size_t sizes[] = { 1, 20000, 0 };
    for (size_t k = 0; k < 3; k++)
        for (int after = 0; after < 2; after++)
            expect_sums_of_all(
                (plan){ .dtype = device_real(), .o = { .bucket = sizes[k], .after = after } },
                after ? "after" : "during");
    expect_sums_of_all((plan){ .dtype = TP_F32, .o = { .bucket = 20000 } }, "f32");
    expect_sums_of_all((plan){ .dtype = TP_F32, .o = { .bucket = 20000 }, .no_begin = true },
                       "without begin");
}

Test(exchange, parameters_that_some_did_not_reach)
{
    const tp_exchange_opts o = { .bucket = 16384 };
    expect_sums_of_all((plan){ .o = o, .skips = { 1 << 3 } }, "one on rank 0");
    expect_sums_of_all((plan){ .o = o, .skips = { 0, 1 << 2 | 1 << 5, 1 << 1 } }, "other ones");
    expect_sums_of_all((plan){ .o = o, .skips = { 8, 8, 8, 8 } }, "one on all");
    expect_sums_of_all((plan){ .o = o, .skips = { 0, 8, 8 }, .alternates = true }, "alternating");
    expect_sums_of_all((plan){ .o = o, .skips = { 40, 40, 40, 40 }, .alternates = true },
                       "alternating on all");
}

Test(exchange, accumulated_tied_and_recomputed)
{
    const tp_exchange_opts o = { .bucket = 16384 };
    expect_sums_of_all((plan){ .o = o, .accumulation = 3 }, "accumulation");
    expect_sums_of_all((plan){ .o = o, .accumulation = 2, .skips = { 8, 0, 4 } }, "and skips");
    expect_sums_of_all((plan){ .o = o, .tied = true }, "tied");
    expect_sums_of_all((plan){ .o = o, .tied = true, .checkpoint = true }, "tied, checkpoint");
    expect_sums_of_all((plan){ .o = o, .checkpoint = true }, "checkpoint");
    expect_sums_of_all((plan){ .o = o, .transient = true }, "transient");
}

Test(exchange, frozen_parameters)
{
    const tp_exchange_opts o = { .bucket = 16384 };
    plan some = { .o = o }, most = { .o = o, .frozen = 1 << 3 };
    expect_sums_of_all((plan){ .o = o, .frozen = 1 << 3 }, "a bucket");
    expect_sums_of_all((plan){ .o = o, .frozen = 1 << 5 }, "part of a bucket");
    run(&some, 2);
    run(&most, 2);
    cr_expect_lt(most.stats[0].bytes, 0.7 * some.stats[0].bytes, "frozen buckets travel");
    drop(&some);
    drop(&most);
}

/* The others do not wait, and nobody takes the sums for gradients. */
Test(exchange, a_failed_backward)
{
    for (int after = 0; after < 2; after++) {
        plan t = { .o = { .bucket = 16384, .after = after }, .fails = 1 };
        run(&t, 3);
        for (int rank = 0; rank < 3; rank++) {
            for (int u = 0; u < UPDATES; u++) cr_expect_eq(t.done[rank][u], u != 1);
            cr_expect(strstr(t.why[rank], "rank 1"), "%s", t.why[rank]);
        }
        drop(&t);
    }
}

/* In the first update nothing leaves before finish. Later, buckets in flight send their pieces even
 * if the other process is late, and their sums if it is not. How much of the pieces a process sends
 * depends on what it owns; together they are half of the bytes. */
Test(exchange, buckets_leave_during_backward)
{
    for (int late = 0; late < 3; late++) {
        plan t = { .o = { .bucket = 16384, .after = late == 1 }, .no_begin = late == 2 };
        double early = 0, bytes = 0;
        run(&t, 2);
        for (int rank = 0; rank < 2; rank++) {
            early += t.early[rank];
            bytes += t.stats[rank].bytes;
            cr_expect(late ? t.stats[rank].hidden == 0 : t.stats[rank].hidden > 0);
        }
        const double pieces = 0.5 * bytes * (UPDATES - 1) / UPDATES;
        cr_expect(late ? early == 0 : early > 0.5 * pieces, "%g of %g bytes left before finish",
                  early, bytes);
        drop(&t);
    }
}

/* Each process sends (K-1)/K of the block twice, as bf16 in the first half. */
Test(exchange, bytes_and_memory)
{
    int64_t n = 0;
    for (int k = 0; k < PARAMS; k++) n += numel[k];
    for (int bf16 = 0; bf16 < 2; bf16++) {
        plan t = { .o = { .bucket = 16384, .bf16 = bf16 } };
        double sum = 0, wanted;
        run(&t, 3);
        for (int rank = 0; rank < 3; rank++) {
            sum += t.stats[rank].bytes;
            cr_expect_leq(t.stats[rank].memory, 2 * 8 * (16384 + 16384 / 2 * (size_t)bf16) +
                                                    (bf16 ? (size_t)n * 4 + 6 * 256 : 0));
            cr_expect_gt(t.stats[rank].memory, 2 * 16384);
            cr_expect_eq(t.stats[rank].updates, UPDATES);
            cr_expect_gt(t.stats[rank].exposed, 0);
        }
        wanted = 2.0 * (double)(UPDATES * n) * (bf16 ? 2 + 4 : 4 + 4);
        cr_expect_eq(sum, wanted, "%g bytes, not %g", sum, wanted);
        drop(&t);
    }
}

/* Only an owner has its sums, of whole parameters or of parts. */
static void expect_shards(bool whole)
{
    static double sum[UPDATES * MOST];
    bool has[UPDATES][PARAMS];
    plan t = { .o = { .bucket = 16384, .shard = true }, .whole = whole };
    want(&t, 3, sum, has);
    run(&t, 3);
    process p = process_open(&t);
    cr_assert(tp__params_complete(p.P));
    tp_cuts c = tp__cuts_new(p.P, 3, 16384, whole);
    for (int i = 0; i < c.n; i++) {
        int64_t at = c.at[i].first;
        for (int k = 0; k < c.at[i].entry; k++) at += numel[k];
        for (int u = 0; u < UPDATES; u++)
            cr_expect_arr_eq(t.grad[c.at[i].owner] + u * MOST + at, sum + u * MOST + at,
                             (size_t)c.at[i].numel * sizeof *sum, "entry %d", c.at[i].entry);
    }
    tp__cuts_free(&c);
    process_close(&p);
    drop(&t);
}

Test(exchange, shards)
{
    expect_shards(false);
    expect_shards(true);
}

/* ---- bf16 ---- */

/* The relative error of the mean of n updates' sums. */
static void average(void *env, tp_peers *G)
{
    double *error = env, square = 0, all = 0;
    enum { N = 5000, TIMES = 100 };
    double got[N], sum[N] = { 0 };
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .threads = 1 });
    tp_params *P = tp_params_new(D, NULL);
    const tp_tensor w = tp_param(P, "w", TP_SHAPE(N), (tp_init){ TP_INIT_ZERO, 0, 0 }, 0);
    tp_exchange *X = tp_exchange_new(P, G, &(tp_exchange_opts){ .bf16 = true });
    for (int u = 0; u < TIMES; u++) {
        for (int i = 0; i < N; i++) got[i] = 0.1 + sin(i * 0.37 + tp_peers_rank(G));
        cr_assert(tp_param_set_grad(P, w, TP_F64, got, sizeof got));
        cr_assert(tp_exchange_finish(X));
        cr_assert(tp_param_get_grad(P, w, TP_F64, got, sizeof got));
        tp_grad_clear(P);
        for (int i = 0; i < N; i++) sum[i] += got[i];
        if (u != 0 && u != TIMES - 1) continue;
        square = all = 0;
        for (int i = 0; i < N; i++) {
            double wanted = 0;
            for (int k = 0; k < tp_peers_count(G); k++) wanted += 0.1 + sin(i * 0.37 + k);
            square += pow(sum[i] / (u + 1) - wanted, 2);
            all += wanted * wanted;
        }
        if (tp_peers_rank(G) == 0) error[u > 0] = sqrt(square / all);
    }
    tp_exchange_free(X);
    tp_params_free(P);
    tp_device_close(D);
}

Test(exchange, bf16_errors_are_fed_back)
{
    double error[2];
    run_ranks(3, average, error);
    cr_expect(error[0] > 3e-4 && error[0] < 4e-3, "after one update: %g", error[0]);
    cr_expect_lt(error[1], error[0] / 20, "after 100: %g, after one: %g", error[1], error[0]);
}

Test(exchange, bf16_bits_repeat_and_agree)
{
    plan t = { .o = { .bucket = 16384, .bf16 = true }, .skips = { 0, 8 }, .alternates = true };
    plan again = t;
    again.o.after = true;
    run(&t, 3);
    run(&again, 3);
    for (int rank = 0; rank < 3; rank++) {
        cr_expect_arr_eq(t.grad[rank], t.grad[0], UPDATES * MOST * sizeof(double));
        cr_expect_arr_eq(again.grad[rank], t.grad[0], UPDATES * MOST * sizeof(double));
    }
    drop(&t);
    drop(&again);
}

/* ---- two exchanges, recorded steps ---- */

/* Two sets that one loss reads, whose buckets leave in turn. On a GPU, later steps are launched
 * from a recording, and all buckets leave in finish. */
static void two_sets(void *env, tp_peers *G)
{
    enum { N = 9000, STEPS = 6 };
    const bool *records = env;
    const int rank = tp_peers_rank(G), ranks = tp_peers_count(G);
    const tp_exchange_opts o = { .bucket = 16384 };
    static const tp_init one = { TP_INIT_CONST, 1, 0 };
    tp_device *D = device_open(&(tp_device_opts){ .threads = 1 });
    tp_tape *T = tp_tape_new(D, NULL);
    tp_capture *C = *records ? tp_capture_new(T) : NULL;
    tp_params *P[2];
    tp_exchange *X[2];
    tp_tensor w[2], x = TP_NONE;
    float g[N];
    for (int k = 0; k < 2; k++) {
        P[k] = tp_params_new(D, NULL);
        w[k] = tp_param(P[k], "w", TP_SHAPE(N), one, 0);
        X[k] = tp_exchange_new(P[k], G, &o);
    }
    for (int u = 0; u < STEPS; u++) {
        for (int i = 0; i < N; i++) g[i] = (float)(u + i + 100 * rank);
        tp_feed(T, &x, TP_F32, TP_SHAPE(N), g);
        if (!C) tp_reset(T);
        for (int k = 0; k < 2; k++) tp_exchange_begin(X[k]);
        if (!C || tp_capture_begin(C)) {
            const tp_tensor a = tp_sum(T, tp_mul(T, w[0], x), TP_ALL);
            const tp_tensor b = tp_sum(T, tp_mul(T, tp_scale(T, w[1], 2.0), x), TP_ALL);
            tp_backward(T, tp_add(T, a, b));
            if (C) tp_capture_end(C);
        }
        cr_assert(tp_ok(T), "%s", tp_why(T));
        for (int k = 0; k < 2; k++) {
            cr_assert(tp_exchange_finish(X[k]), "%s", tp_exchange_why(X[k]));
            cr_assert(tp_param_get_grad(P[k], w[k], TP_F32, g, sizeof g), "%s",
                      tp_params_why(P[k]));
            for (int i = 0; i < N; i += 100)
                cr_expect_eq(g[i], (float)((k + 1) * (ranks * (u + i) + 50 * ranks * (ranks - 1))),
                             "set %d, step %d, element %d: %g", k, u, i, (double)g[i]);
            tp_grad_clear(P[k]);
        }
    }
    if (C && device_is_cuda()) cr_expect_gt(tp_capture_launches(C), 0);
    tp_capture_free(C);
    for (int k = 0; k < 2; k++) tp_exchange_free(X[k]);
    tp_tape_free(T);
    for (int k = 0; k < 2; k++) tp_params_free(P[k]);
    tp_device_close(D);
}

Test(exchange, two_sets_and_recorded_steps)
{
    for (int ranks = 2; ranks <= 3; ranks++)
        for (int records = 0; records < 2; records++)
            run_ranks(ranks, two_sets, &(bool){ records });
}

/* ---- refusals ---- */

static void refused(void *env, tp_peers *G)
{
    (void)env;
    tp_device *D = tp_device_open("cpu", NULL);
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .dtype = TP_F64 });
    const int64_t n = 10 + tp_peers_rank(G);
    double g[16] = { 0 };
    const tp_tensor w = tp_param(P, "w", TP_SHAPE(n), (tp_init){ TP_INIT_ZERO, 0, 0 }, 0);
    tp_exchange *X = tp_exchange_new(P, G, &(tp_exchange_opts){ .bf16 = true });
    cr_expect(!tp_exchange_ok(X) && strstr(tp_exchange_why(X), "f32"), "%s", tp_exchange_why(X));
    tp_exchange_free(X);
    X = tp_exchange_new(P, G, NULL);
    cr_expect(tp_exchange_ok(X), "%s", tp_exchange_why(X));
    tp_exchange *second = tp_exchange_new(P, G, NULL);
    cr_expect(strstr(tp_exchange_why(second), "already"), "%s", tp_exchange_why(second));
    tp_exchange_free(second);
    cr_assert(tp_param_set_grad(P, w, TP_F64, g, (size_t)n * sizeof *g));
    cr_expect_not(tp_exchange_finish(X));
    cr_expect(strstr(tp_exchange_why(X), "rank 1 differ"), "%s", tp_exchange_why(X));
    tp_exchange_free(X);
    tp_params_free(P);
    tp_device_close(D);
}

Test(exchange, refusals)
{
    run_ranks(2, refused, NULL);
    cr_expect(strstr(tp_exchange_why(NULL), "NULL"));
    cr_expect_not(tp_exchange_ok(NULL));
    cr_expect_not(tp_exchange_finish(NULL));
    tp_exchange_begin(NULL);
    tp_exchange_free(NULL);
}

/* ---- recorded steps ---- */

/* Within a step of tp_capture, clipping would see the gradients of one process alone. */
static void clip_in_a_step(void *env, tp_peers *G)
{
    (void)env;
    tp_device *D = tp_device_open("cpu", NULL);
    tp_params *P = tp_params_new(D, NULL);
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .train = true });
    const tp_tensor w = tp_param(P, "w", TP_SHAPE(3), (tp_init){ TP_INIT_CONST, 2.0, 0.0 }, 0);
    tp_optim *O = tp_sgd_new(P, NULL);
    tp_exchange *X = tp_exchange_new(P, G, NULL);
    tp_capture *C = tp_capture_new(T);
    for (int by_value = 0; by_value < 2; by_value++) {
        tp_next_rate(O, 0.1);
        cr_assert(tp_capture_begin(C));
        tp_backward(T, tp_sum(T, tp_square(T, w), TP_ALL));
        if (by_value)
            cr_expect_not(tp_clip_grad_value(P, 1.0));
        else
            tp_clip_grad_norm(P, 1.0);
        cr_expect_not(tp_step(O, 0.1));
        const char *said = by_value ? "tp_clip_grad_value: must be called after tp_capture_end"
                                    : "tp_clip_grad_norm: must be called after tp_capture_end";
        cr_expect(strstr(tp_optim_why(O), said), "%s", tp_optim_why(O));
        tp_capture_end(C);
        tp_grad_clear(P);
        tp_clear(T);
    }
    tp_capture_free(C);
    tp_exchange_free(X);
    tp_optim_free(O);
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
}

Test(exchange, clipping_stays_outside_a_recorded_step)
{
    run_ranks(1, clip_in_a_step, NULL);
}
