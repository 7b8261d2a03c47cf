/* test_peers_refusals.c - runs in several processes that must not begin, or that end together:
 * other settings, data or weights, a reader that ignores its rank, a failure on one rank,
 * batches of unequal targets, recorded steps. */
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

enum { PEERS = 3, WIDTH = 4, ROWS = 12 };

/* ---- a program: a line through points, of which some count ---- */

typedef struct settings {
    tp_train_settings train;
    int64_t other_data, other_weights, astray; /* ranks that differ; 0: none */
    bool same_rows, uneven;
} settings;

static const tp_option options[] = {
    TP_INT("other-data", settings, other_data, 0, 100, 0, "Rank."),
    TP_INT("other-weights", settings, other_weights, 0, 100, 0, "Rank."),
    TP_INT("astray", settings, astray, 0, 100, 0, "Rank whose weights change in update 3."),
    TP_FLAG("same-rows", settings, same_rows, 0, "All ranks read the rows of rank 0."),
    TP_FLAG("uneven", settings, uneven, 0, "Every third point does not count."),
    TP_ROWS(tp_train_options),
    { 0 },
};

typedef struct state {
    tp_linear_m line;
    tp_tensor x, y, counts;
} state;

static void open_points(tp_run *R, tp_file *from)
{
    const settings *s = R->settings;
    (void)from;
    R->batches = 2 * ROWS / (s->train.batch * R->ranks);
    R->data_hash = s->other_data > 0 && R->rank == s->other_data ? 8 : 7;
}

static void change_weights(tp_run *R)
{
    const double one[WIDTH] = { 1 };
    cr_assert(tp_param_set(R->P, tp_find(R->P, "line.weight"), TP_F64, one, sizeof one));
}

static void build(tp_run *R)
{
    const settings *s = R->settings;
    tp_linear_init(R->P, &((state *)R->state)->line, "line", WIDTH, 1, true);
    if (s->other_weights > 0 && R->rank == s->other_weights) change_weights(R);
}

static void next(tp_run *R)
{
    const settings *s = R->settings;
    state *t = R->state;
    const int64_t n = s->train.batch, rank = s->same_rows ? 0 : R->rank;
    double x[64][WIDTH], y[64], counts[64];
    int64_t targets = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = (R->batch * R->ranks + rank) * n + i;
        for (int k = 0; k < WIDTH; k++) x[i][k] = sin((double)at * (k + 1));
        y[i] = cos((double)at);
        counts[i] = !s->uneven || at % 3 > 0;
        targets += counts[i] > 0;
    }
    R->targets = targets;
    if (s->astray > 0 && R->rank == s->astray && R->update == 2) change_weights(R);
    for (int64_t i = 0; i < n; i++) counts[i] /= (double)targets;
    tp_feed(R->T, &t->x, TP_F64, TP_SHAPE(n, WIDTH), x);
    tp_feed(R->T, &t->y, TP_F64, TP_SHAPE(n, 1), y);
    tp_feed(R->T, &t->counts, TP_F64, TP_SHAPE(n, 1), counts);
}

/* The mean over the points that count. */
static tp_tensor loss(tp_run *R)
{
    const state *t = R->state;
    const tp_tensor d = tp_sub(R->T, tp_linear_forward(R->T, &t->line, t->x), t->y);
    return tp_sum(R->T, tp_mul(R->T, tp_mul(R->T, d, d), t->counts), TP_ALL);
}

static double validate(tp_run *R, char *text, size_t size)
{
    (void)R, (void)text, (void)size;
    return R->rank; /* the score is rank 0's */
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
                "--batch 6",
    .open = open_points,
    .build = build,
    .next = next,
    .loss = loss,
    .validate = validate,
    .close = nothing,
};

/* ---- runs ---- */

typedef struct together {
    const char *flags[PEERS]; /* of each rank; NULL: of rank 0 */
    int status[PEERS];
} together;

static void run_process(void *env, tp_peers *G)
{
    together *p = env;
    const char *own = p->flags[tp_peers_rank(G)];
    p->status[tp_peers_rank(G)] = train_with(&training, G, own ? own : p->flags[0]);
}

static void begin(void)
{
    program_begin("none");
    cr_assert(freopen("said", "w", stdout) && freopen("complained", "w", stderr));
}

TestSuite(peers_refusals, .init = begin, .fini = program_end, .timeout = 120);

/* Expects that all fail, and one message that contains `text`. */
static void expect_refused(together p, const char *text)
{
    static char said[20000];
    cr_assert(freopen("complained", "w", stderr));
    run_ranks(PEERS, run_process, &p);
    fflush(stderr);
    slurp("complained", said, sizeof said);
    for (int k = 0; k < PEERS; k++) cr_expect_eq(p.status[k], 1, "rank %d: %d", k, p.status[k]);
    const char *found = strstr(said, text);
    cr_expect(found, "'%s' is not in: %s", text, said);
    cr_expect(found && !strstr(found + 1, text), "more than once: %s", said);
}

Test(peers_refusals, processes_that_differ)
{
    expect_refused((together){ .flags = { "--run-dir a", "--run-dir a --lr 0.1" } },
                   "rank 1 on host here differs from rank 0 on host here in the settings");
    expect_refused((together){ .flags = { "--run-dir a", NULL, "--run-dir a --seed 9" } },
                   "rank 2 on host here differs from rank 0 on host here in the settings");
    expect_refused((together){ .flags = { "--run-dir a --other-data 2" } },
                   "rank 2 on host here differs from rank 0 on host here in the data");
    expect_refused((together){ .flags = { "--run-dir a --other-weights 1" } },
                   "rank 1 on host here differs from rank 0 on host here in the model or its "
                   "weights");
    cr_expect(access("a/last.safetensors", F_OK) != 0, "nothing was trained");
}

Test(peers_refusals, a_process_that_goes_astray)
{
    expect_refused((together){ .flags = { "--run-dir a --astray 2" } },
                   "rank 2 on host here differs from rank 0 on host here in the model or its "
                   "weights");
    cr_expect_eq(update_in("a/last.safetensors"), 2);
}

Test(peers_refusals, batches_that_cannot_be_divided)
{
    expect_refused((together){ .flags = { "--run-dir a --batch 7" } },
                   "--batch 7 cannot be divided evenly among 3 processes: the nearest are 6 and 9");
    expect_refused((together){ .flags = { "--run-dir a --batch 2" } },
                   "--batch 2 has no example for some of the 3 processes");
}

Test(peers_refusals, one_gpu_for_all)
{
    expect_refused((together){ .flags = { "--run-dir a --dtype f32 --device cuda:0" } },
                   "--device cuda:0 would put 3 processes of host here on one GPU");
}

Test(peers_refusals, a_reader_that_ignores_its_rank)
{
    expect_refused((together){ .flags = { "--run-dir a --same-rows" } }, "ignores tp_run.rank");
}

static void weights_of(const char *path, double w[WIDTH + 1])
{
    tp_file *F = tp_file_open(path);
    cr_assert(tp_file_read(F, tp_file_find(F, "line.weight"), TP_F64, w), "%s", tp_file_why(F));
    cr_assert(tp_file_read(F, tp_file_find(F, "line.bias"), TP_F64, w + WIDTH));
    tp_file_close(F);
}

/* The mean is over the points that count on all ranks, as in one process; also in recorded steps,
 * whose weights change from batch to batch. */
static void expect_as_alone(const char *flags)
{
    char text[256];
    double a[WIDTH + 1], b[WIDTH + 1];
    together p = { .flags = { text } };
    snprintf(text, sizeof text, "%s --run-dir together --overwrite", flags);
    run_ranks(PEERS, run_process, &p);
    for (int k = 0; k < PEERS; k++) cr_assert_eq(p.status[k], 0, "%s", flags);
    snprintf(text, sizeof text, "%s --run-dir alone --overwrite", flags);
    cr_assert_eq(train_with(&training, NULL, text), 0);
    weights_of("together/last.safetensors", a);
    weights_of("alone/last.safetensors", b);
    for (int k = 0; k <= WIDTH; k++)
        cr_expect_float_eq(a[k], b[k], 1e-12, "%s: weight %d: %.17g, not %.17g", flags, k, a[k],
                           b[k]);
}

Test(peers_refusals, unequal_targets)
{
    expect_as_alone("--uneven --batch 12");
    expect_as_alone("--uneven --batch 6 --accumulation 2");
    expect_as_alone("--uneven --batch 12 --graph");
    expect_as_alone("--batch 12 --clip 0.3 --ema 0.5");
}
