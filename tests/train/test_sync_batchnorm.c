/* test_sync_batchnorm.c - batch norms over the rows of several processes equal those of one process
 * with all rows: results, gradients, running statistics; also with uneven rows and in a recomputed
 * block. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "support/device.h"
#include "support/thread_transport.h"

enum { ROWS = 23, C = 5, RANKS = 3 };

typedef struct result {
    double y[ROWS][C], dx[ROWS][C], dw[C], db[C], mean[C], var[C];
} result;

typedef struct setup {
    bool recompute;
    int first[RANKS + 1]; /* rows of each rank */
    result whole, part[RANKS];
} setup;

typedef struct net {
    tp_tensor w, b, mean, var, batches;
} net;

static tp_tensor norm(tp_tape *T, const void *self, tp_tensor x)
{
    const net *n = self;
    return tp_batchnorm(T, x, n->w, n->b, n->mean, n->var, n->batches, 0.1, 1e-5);
}

/* Element e of x, in the dtype of the device. */
static double value_at(tp_tape *T, tp_tensor x, int e)
{
    double wide[ROWS * C];
    float narrow[ROWS * C];
    const bool f64 = device_real() == TP_F64;
    const size_t bytes = (size_t)tp_numel(x) * (f64 ? sizeof *wide : sizeof *narrow);
    cr_assert(tp_read(T, x, f64 ? (void *)wide : narrow, bytes));
    return f64 ? wide[e] : (double)narrow[e];
}

/* The loss is the sum of y * g, g a pattern of rows and channels, so that gradients differ. */
static void run(const setup *s, tp_peers *G, int from, int to, result *out)
{
    const tp_init one = { TP_INIT_CONST, 1.0, 0.0 }, zero = { TP_INIT_CONST, 0.0, 0.0 };
    const int n = to - from;
    const tp_dtype real = device_real();
    double hx[ROWS][C], hg[ROWS][C];
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < C; i++) {
            hx[r][i] = 3 * i + sin(r * (i + 1.0));
            hg[r][i] = cos(r + 2.0 * i);
        }
    tp_device *D = device_open(NULL);
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .dtype = real });
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = real, .train = true });
    net m = { .w = tp_param(P, "w", TP_SHAPE(C), one, 0),
              .b = tp_param(P, "b", TP_SHAPE(C), zero, 0),
              .mean = tp_buffer(P, "mean", real, TP_SHAPE(C), NULL),
              .var = tp_buffer(P, "var", real, TP_SHAPE(C), NULL) };
    const tp_tensor in = tp_param(P, "x", TP_SHAPE(n, C), zero, 0);
    const tp_tensor g = tp_param(P, "g", TP_SHAPE(n, C), zero, TP_FROZEN);
    cr_assert(tp_param_set(P, in, TP_F64, hx[from], (size_t)(n * C) * sizeof(double)));
    cr_assert(tp_param_set(P, g, TP_F64, hg[from], (size_t)(n * C) * sizeof(double)));
    tp_peers_batch_norm(G, D);
    const tp_tensor y = s->recompute ? tp_checkpoint(T, norm, &m, in) : norm(T, &m, in);
    tp_backward(T, tp_sum(T, tp_mul(T, y, g), TP_ALL));
    cr_assert(tp_ok(T), "%s", tp_why(T));
    const size_t rows = (size_t)(n * C) * sizeof(double), vector = C * sizeof(double);
    double *all = out->y[from]; /* and the rows after it */
    for (int e = 0; e < n * C; e++) all[e] = value_at(T, y, e);
    cr_assert(tp_param_get_grad(P, in, TP_F64, out->dx[from], rows));
    cr_assert(tp_param_get_grad(P, m.w, TP_F64, out->dw, vector));
    cr_assert(tp_param_get_grad(P, m.b, TP_F64, out->db, vector));
    cr_assert(tp_param_get(P, m.mean, TP_F64, out->mean, vector));
    cr_assert(tp_param_get(P, m.var, TP_F64, out->var, vector));
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
}

static void run_rank(void *env, tp_peers *G)
{
    setup *s = env;
    const int k = tp_peers_rank(G);
    run(s, G, s->first[k], s->first[k + 1], &s->part[k]);
}

static void expect_equal(const char *what, const double *a, const double *b, int n, double within)
{
    for (int i = 0; i < n; i++)
        cr_expect(fabs(a[i] - b[i]) <= within, "%s[%d]: %.17g, not %.17g", what, i, a[i], b[i]);
}

static void compare(setup *s, double within)
{
    double dw[C] = { 0 }, db[C] = { 0 };
    run(s, NULL, 0, ROWS, &s->whole);
    run_ranks(RANKS, run_rank, s);
    for (int k = 0; k < RANKS; k++) {
        const result *p = &s->part[k], *all = &s->whole;
        const int at = s->first[k], n = C * (s->first[k + 1] - at);
        expect_equal("y", p->y[at], all->y[at], n, within);
        expect_equal("dx", p->dx[at], all->dx[at], n, within);
        expect_equal("mean", p->mean, all->mean, C, within);
        expect_equal("var", p->var, all->var, C, within);
        for (int i = 0; i < C; i++) {
            dw[i] += p->dw[i];
            db[i] += p->db[i];
        }
        cr_expect(memcmp(p->mean, s->part[0].mean, sizeof p->mean) == 0, "equal bits");
        cr_expect(memcmp(p->var, s->part[0].var, sizeof p->var) == 0, "equal bits");
    }
    expect_equal("dw", dw, s->whole.dw, C, 10 * within);
    expect_equal("db", db, s->whole.db, C, 10 * within);
}

Test(sync_batchnorm, equal_those_of_one_process)
{
    static setup even, uneven, again;
    const double within = device_limit(1e-13, 2e-5);
    memcpy(even.first, (int[]){ 0, 8, 16, ROWS }, sizeof even.first);
    memcpy(uneven.first, (int[]){ 0, 2, 17, ROWS }, sizeof uneven.first);
    memcpy(again.first, even.first, sizeof again.first);
    again.recompute = true;
    compare(&even, within);
    compare(&uneven, within);
    compare(&again, within);
}
