/* test_peers.c - several processes train one model, simulated by threads that exchange data through
 * shared memory. The run equals that of one process with all batches and resumes with the same
 * bits. If one process fails, the others do not wait for it. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <tapegrad/train.h>

#include "support/program.h"
#include "support/runs.h"
#include "support/thread_transport.h"
#include "support/train_with.h"

enum { PEERS = 3, WIDTH = 4 };

/* ---- a program: a line through points ---- */

typedef struct settings {
    tp_train_settings train;
    int64_t fail_at, fail_rank; /* update and rank of the failure; update 0: never */
} settings;

static const tp_option options[] = {
    TP_INT("fail-at", settings, fail_at, 0, 100, 0, "Update."),
    TP_INT("fail-rank", settings, fail_rank, 0, 100, 0, "Process."),
    TP_ROWS(tp_train_options),
    { 0 },
};

typedef struct state {
    tp_batchnorm_m norm; /* with --sync-bn */
    tp_linear_m line;
    tp_tensor x, y;
} state;

static void open_points(tp_run *R, tp_file *from)
{
    const settings *s = R->settings;
    (void)from;
    R->batches = 12 / (s->train.batch * R->ranks);
    R->data_hash = 7;
}

static void build(tp_run *R)
{
    const settings *s = R->settings;
    state *t = R->state;
    if (s->train.sync_bn) tp_batchnorm_init(R->P, &t->norm, "norm", WIDTH, 1e-5);
    tp_linear_init(R->P, &t->line, "line", WIDTH, 1, true);
}

/* Feeds numbers in the dtype of the run. */
static void feed(tp_run *R, tp_tensor *slot, tp_shape shape, const double *x)
{
    float narrow[64 * WIDTH];
    const bool f64 = ((const settings *)R->settings)->train.machine.dtype == TP_F64;
    for (int64_t i = 0; i < shape.dim[0] * shape.dim[1]; i++) narrow[i] = (float)x[i];
    tp_feed(R->T, slot, f64 ? TP_F64 : TP_F32, shape, f64 ? (const void *)x : narrow);
}

/* Batch b of the epoch has the points of rank 0, then rank 1, and so on. */
static void next(tp_run *R)
{
    const settings *s = R->settings;
    state *t = R->state;
    const int64_t n = s->train.batch;
    double x[64][WIDTH], y[64];
    if (R->update + 1 == s->fail_at && R->rank == s->fail_rank) tp_run_fail(R, "broken on purpose");
    for (int64_t i = 0; i < n; i++) {
        const double at = (double)((R->batch * R->ranks + R->rank) * n + i);
        for (int k = 0; k < WIDTH; k++) x[i][k] = sin(at * (k + 1));
        y[i] = cos(at);
    }
    feed(R, &t->x, TP_SHAPE(n, WIDTH), x[0]);
    feed(R, &t->y, TP_SHAPE(n, 1), y);
    R->sum[0] += (double)n;
}

static tp_tensor loss(tp_run *R)
{
    const state *t = R->state;
    const bool norms = ((const settings *)R->settings)->train.sync_bn;
    const tp_tensor x = norms ? tp_batchnorm_forward(R->T, &t->norm, t->x) : t->x;
    return tp_mse(R->T, tp_linear_forward(R->T, &t->line, x), t->y, TP_MEAN);
}

static double validate(tp_run *R, char *text, size_t size)
{
    double w[WIDTH], sum = 0;
    (void)text, (void)size;
    cr_expect(tp_param_get(R->P, ((const state *)R->state)->line.weight, TP_F64, w, sizeof w));
    for (int k = 0; k < WIDTH; k++) sum += w[k];
    return sum;
}

static void report(tp_run *R, double mean, char *text, size_t size)
{
    (void)mean, (void)text, (void)size;
    tp_run_note(R, "counted", R->sum[0]);
}

static size_t moments[PEERS]; /* bytes, by rank */

static tp_optim *optimizer(tp_run *R)
{
    tp_optim *O = tp_train_optimizer(R->P, R->settings, false, NULL, NULL);
    if (!R->trial) moments[R->rank] = tp_optim_bytes(O);
    return O;
}

static void nothing(tp_run *R)
{
    (void)R;
}

static const tp_training training = {
    .command = { .name = "line", .summary = "fits", .about = "Fits a line.", .table = options },
    .unit = "points",
    .score = "sum",
    .score_text = "sum %.3f",
    .settings_size = sizeof(settings),
    .state_size = sizeof(state),
    .defaults = "--dtype f64 --threads 1 --epochs 4 --lr 0.05 --log-every 1 --checkpoint-every 1 "
                "--ema 0.5 --clip 0.3",
    .open = open_points,
    .build = build,
    .optimizer = optimizer,
    .next = next,
    .loss = loss,
    .validate = validate,
    .report = report,
    .close = nothing,
};

/* ---- runs ---- */

typedef struct together {
    char *flags;
    int *status;
} together;

static void run_process(void *env, tp_peers *G)
{
    const together *p = env;
    p->status[tp_peers_rank(G)] = train_with(&training, G, p->flags);
}

/* Runs all processes and stores the exit status of each. */
static void run_together(char *flags, int status[PEERS])
{
    run_ranks(PEERS, run_process, &(together){ flags, status });
}

static void expect_all(char *flags, int wanted)
{
    int status[PEERS];
    run_together(flags, status);
    for (int k = 0; k < PEERS; k++)
        cr_expect_eq(status[k], wanted, "%s: process %d: status %d", flags, k, status[k]);
}

static void alone(const char *flags)
{
    cr_assert_eq(train_with(&training, NULL, flags), 0, "%s", flags);
}

static void begin(void)
{
    program_begin("none"); /* makes a separate folder */
    cr_assert(freopen("said", "w", stdout));
}

TestSuite(peers, .init = begin, .fini = program_end, .timeout = 120);

static void read_weights(const char *path, double w[WIDTH])
{
    tp_file *F = tp_file_open(path);
    cr_assert(tp_file_read(F, tp_file_find(F, "line.weight"), TP_F64, w), "%s", tp_file_why(F));
    tp_file_close(F);
}

Test(peers, train_as_one_process_with_all_batches)
{
    double a[WIDTH], b[WIDTH];
    static char text[4000], log[20000];
    expect_all((char[]){ "--batch 6 --run-dir together" }, 0);
    alone("--batch 6 --run-dir alone");
    read_weights("together/last.safetensors", a);
    read_weights("alone/last.safetensors", b);
    for (int k = 0; k < WIDTH; k++) cr_expect_float_eq(a[k], b[k], 1e-12, "weight %d", k);
    read_weights("together/best.safetensors", a);
    read_weights("alone/best.safetensors", b);
    for (int k = 0; k < WIDTH; k++) cr_expect_float_eq(a[k], b[k], 1e-12, "best, weight %d", k);
    fflush(stdout);
    slurp("said", text, sizeof text);
    const char *done = strstr(text, "Done: 8 updates");
    cr_expect(done && !strstr(done, "together/best.safetensors\nDone: 8 updates; best sum 0"), "%s",
              text);
    slurp("together/log.jsonl", log, sizeof log);
    int lines = 0;
    for (const char *c = log; *c; c++) lines += *c == '\n';
    cr_expect_eq(lines, 8, "one process reports");
    cr_expect(strstr(log, "\"points\":48"), "those of all: %s", log);
}

Test(peers, resume_with_the_same_bits)
{
    expect_all((char[]){ "--batch 6 --run-dir straight" }, 0);
    expect_all((char[]){ "--batch 6 --run-dir cut --steps 3" }, 0);
    expect_all((char[]){ "--resume --run-dir cut --steps 0" }, 0);
    cr_expect(same_bytes("straight/best.safetensors", "cut/best.safetensors"));
    double a[WIDTH], b[WIDTH];
    read_weights("straight/last.safetensors", a);
    read_weights("cut/last.safetensors", b);
    cr_expect(memcmp(a, b, sizeof a) == 0);
    /* Compares the log line of the interrupted epoch, including its mean loss. */
    cr_assert(shell("for r in straight cut; do grep '\"step\":4,' $r/log.jsonl >$r/line; done"));
    cr_expect(same_log("straight/line", "cut/line"));
}

/* A checkpoint between two reports does not count anything twice. */
Test(peers, add_up_what_programs_count)
{
    static char log[20000];
    expect_all((char[]){ "--batch 6 --run-dir counts --log-every 100" }, 0);
    slurp("counts/log.jsonl", log, sizeof log);
    int lines = 0;
    for (const char *at = log; (at = strstr(at, "\"counted\":12.0,")); at++) lines++;
    cr_expect_eq(lines, 4, "%s", log);
}

/* Resumed with the moments divided, then whole. */
Test(peers, divided_moments_change_nothing)
{
    expect_all((char[]){ "--batch 6 --run-dir whole" }, 0);
    const size_t all = moments[0];
    expect_all((char[]){ "--batch 6 --run-dir part --shard-optimizer" }, 0);
    for (int k = 0; k < PEERS; k++)
        cr_expect(moments[k] <= all / 2, "rank %d: %zu bytes of %zu", k, moments[k], all);
    expect_all((char[]){ "--batch 6 --run-dir cut --steps 3" }, 0);
    expect_all((char[]){ "--resume --run-dir cut --steps 5 --shard-optimizer" }, 0);
    expect_all((char[]){ "--resume --run-dir cut --steps 0" }, 0);
    cr_expect(same_bytes("whole/last.safetensors", "part/last.safetensors"));
    cr_expect(same_bytes("whole/last.safetensors", "cut/last.safetensors"));
    cr_expect(same_bytes("whole/best.safetensors", "cut/best.safetensors"));
}

/* One process with the whole batch has the same statistics. */
Test(peers, batch_norms_over_all_rows)
{
    double a[WIDTH], b[WIDTH];
    expect_all((char[]){ "--batch 6 --sync-bn --run-dir together" }, 0);
    alone("--batch 6 --sync-bn --run-dir alone");
    for (int file = 0; file < 2; file++) {
        read_weights(file ? "together/best.safetensors" : "together/last.safetensors", a);
        read_weights(file ? "alone/best.safetensors" : "alone/last.safetensors", b);
        for (int k = 0; k < WIDTH; k++) cr_expect_float_eq(a[k], b[k], 1e-12, "weight %d", k);
    }
    expect_all((char[]){ "--batch 6 --sync-bn --graph --run-dir recorded" }, 1);
    for (int rank = 0; rank < PEERS; rank++) { /* none waits in a norm */
        char flags[128];
        snprintf(flags, sizeof flags,
                 "--batch 6 --sync-bn --run-dir norm%d --fail-at 4 --fail-rank %d", rank, rank);
        expect_all(flags, 1);
        snprintf(flags, sizeof flags, "norm%d/last.safetensors", rank);
        cr_expect_eq(update_in(flags), 3);
    }
}

/* bf16 has 8 bits; what it takes from a gradient is added to the next. */
Test(peers, exchange_in_bf16)
{
    double a[WIDTH], b[WIDTH];
    bool same = true;
    expect_all((char[]){ "--batch 6 --dtype f32 --run-dir whole" }, 0);
    expect_all((char[]){ "--batch 6 --dtype f32 --run-dir half --exchange-bf16" }, 0);
    read_weights("whole/last.safetensors", a);
    read_weights("half/last.safetensors", b);
    for (int k = 0; k < WIDTH; k++) {
        same = same && a[k] == b[k];
        cr_expect_float_eq(a[k], b[k], 0.01 * fabs(a[k]), "weight %d: %g, %g", k, a[k], b[k]);
    }
    cr_expect(!same);
}

/* A peer fails within an update, at the start (the folder of process 0), or while writing files. */
Test(peers, nobody_waits_for_a_failed_peer)
{
    for (int rank = 0; rank < PEERS; rank++) {
        char flags[128];
        snprintf(flags, sizeof flags, "--batch 6 --run-dir run%d --fail-at 4 --fail-rank %d", rank,
                 rank);
        expect_all(flags, 1);
        snprintf(flags, sizeof flags, "run%d/last.safetensors", rank);
        cr_expect_eq(update_in(flags), 3);
    }
    expect_all((char[]){ "--batch 6 --run-dir run0" }, 1);
    cr_assert(shell("mkdir -p full/best.safetensors/x"));
    expect_all((char[]){ "--batch 6 --run-dir full" }, 1);
}
