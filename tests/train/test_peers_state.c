/* test_peers_state.c - checkpoints of several processes, simulated by threads: a program that
 * carries rows of the batch from update to update continues in another number of processes, and
 * whoever cannot write makes all fail with the former checkpoint in place. */
#include <criterion/criterion.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <tapegrad/train.h>

#include "support/program.h"
#include "support/thread_transport.h"
#include "support/train_with.h"

enum { WIDTH = 16, BATCH = 12, BATCHES = 3 };

/* ---- a program: a line through what each row of the batch has seen so far ---- */

typedef struct settings {
    tp_train_settings train;
    int64_t full_at; /* the disk is full from this update on; 0: never */
    int64_t nan_at;  /* rank 2 carries NaN from this update on */
    double drop;
} settings;

static const tp_option options[] = {
    TP_INT("full-at", settings, full_at, 0, 100, 0, "Update."),
    TP_INT("nan-at", settings, nan_at, 0, 100, 0, "Update."),
    TP_NUM("drop", settings, drop, 0, 1, 0, "Rate."),
    TP_ROWS(tp_train_options),
    { 0 },
};

typedef struct state {
    tp_linear_m line;
    tp_tensor x, y;
    double memory[BATCH][WIDTH];
} state;

static struct {
    uint64_t seed, offset;
} streams[THREAD_RANKS]; /* where they began */

static void open_rows(tp_run *R, tp_file *from)
{
    (void)from;
    R->batches = BATCHES;
    R->data_hash = 7;
}

static void build(tp_run *R)
{
    tp_linear_m *line = &((state *)R->state)->line;
    tp_linear_init(R->P, line, "line", WIDTH, 1, true);
    tp_tie(R->P, "second.weight", line->weight); /* its gradient is summed once */
    tp_random_state(R->T, &streams[R->rank].seed, &streams[R->rank].offset);
}

static void fill_disk(void)
{
    struct rlimit now;
    getrlimit(RLIMIT_FSIZE, &now);
    now.rlim_cur = 3000; /* the log still fits */
    setrlimit(RLIMIT_FSIZE, &now);
}

static void next(tp_run *R)
{
    const settings *s = R->settings;
    state *t = R->state;
    const int64_t n = s->train.batch;
    double y[BATCH];
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = R->rank * n + i;
        for (int k = 0; k < WIDTH; k++)
            t->memory[i][k] =
                0.5 * t->memory[i][k] + sin((double)((R->batch * BATCH + row) * (k + 1)));
        y[i] = cos((double)(R->batch + row));
    }
    tp_feed(R->T, &t->x, TP_F64, TP_SHAPE(n, WIDTH), t->memory);
    tp_feed(R->T, &t->y, TP_F64, TP_SHAPE(n, 1), y);
    if (R->update + 1 == s->full_at && R->rank == 0 && !R->trial) fill_disk();
    if (R->update + 1 == s->nan_at && R->rank == 2) t->memory[1][3] = NAN;
}

static tp_tensor loss(tp_run *R)
{
    const state *t = R->state;
    const tp_tensor x = tp_dropout(R->T, t->x, ((const settings *)R->settings)->drop);
    return tp_mse(R->T, tp_linear_forward(R->T, &t->line, x), t->y, TP_MEAN);
}

static double validate(tp_run *R, char *text, size_t size)
{
    (void)R, (void)text, (void)size;
    return 1;
}

static void write_memory(tp_run *R, tp_writer *W)
{
    const state *t = R->state;
    const int64_t n = ((const settings *)R->settings)->train.batch;
    tp_writer_add(W, "state.memory", TP_F64, TP_SHAPE(n, WIDTH), t->memory, false);
}

static void read_memory(tp_run *R, tp_file *F)
{
    state *t = R->state;
    const tp_file_tensor *is = tp_file_find(F, "state.memory");
    cr_assert_eq(is->shape.dim[0], ((const settings *)R->settings)->train.batch);
    if (!tp_file_read(F, is, TP_F64, t->memory)) tp_run_fail(R, "%s", tp_file_why(F));
}

static void nothing(tp_run *R)
{
    (void)R;
}

static const tp_training training = {
    .command = { .name = "rows", .summary = "fits", .about = "Fits a line.", .table = options },
    .unit = "rows",
    .score = "score",
    .score_text = "score %.0f",
    .settings_size = sizeof(settings),
    .state_size = sizeof(state),
    .defaults = "--dtype f64 --threads 1 --batch 12 --lr 0.01 --log-every 1 --checkpoint-every 1 "
                "--ema 0.5 --clip 0.3",
    .open = open_rows,
    .build = build,
    .next = next,
    .loss = loss,
    .validate = validate,
    .write = write_memory,
    .read = read_memory,
    .close = nothing,
};

/* ---- runs ---- */

typedef struct together {
    const char *flags;
    int status[THREAD_RANKS];
} together;

static void run_process(void *env, tp_peers *G)
{
    together *p = env;
    p->status[tp_peers_rank(G)] = train_with(&training, G, p->flags);
}

static void expect_run(int ranks, int wanted, const char *flags)
{
    together t = { .flags = flags };
    if (ranks == 1)
        run_process(&t, NULL);
    else
        run_ranks(ranks, run_process, &t);
    for (int k = 0; k < ranks; k++)
        cr_expect_eq(t.status[k], wanted, "%s: process %d: status %d", flags, k, t.status[k]);
}

/* Trains up to each update in turn, in as many processes as given with it. */
static void train_in(const char *run, const int (*leg)[2], int n, const char *more)
{
    for (int i = 0; i < n; i++) {
        char flags[300];
        snprintf(flags, sizeof flags, "%s --run-dir %s --steps %d %s", i ? "--resume" : "", run,
                 leg[i][1], more);
        expect_run(leg[i][0], 0, flags + strspn(flags, " "));
    }
}

static void begin(void)
{
    program_begin("none"); /* makes a separate folder */
    cr_assert(freopen("said", "w", stdout) && freopen("wrong", "w", stderr));
    signal(SIGXFSZ, SIG_IGN);
}

TestSuite(peers_state, .init = begin, .fini = program_end, .timeout = 120);

/* The largest difference between two tensors; integers must be equal. */
static double difference_of(tp_file *A, const tp_file_tensor *t, tp_file *B,
                            const tp_file_tensor *u)
{
    const void *a = tp_file_data(A, t), *b = tp_file_data(B, u);
    double most = 0;
    cr_assert(a && b && t->bytes == u->bytes, "%s", t->name);
    if (strcmp(t->stored, "F64") != 0) {
        cr_expect(memcmp(a, b, t->bytes) == 0, "%s", t->name);
        return 0;
    }
    const double *x = a, *y = b;
    for (int64_t k = 0; k < t->numel; k++)
        if (!(fabs(x[k] - y[k]) <= most)) most = fabs(x[k] - y[k]);
    return most;
}

static double difference(const char *a, const char *b)
{
    tp_file *A = tp_file_open(a), *B = tp_file_open(b);
    double most = 0;
    cr_assert(tp_file_count(A) == tp_file_count(B) && tp_file_count(A) > 4);
    for (int i = 0; i < tp_file_count(A); i++) {
        const tp_file_tensor *t = tp_file_at(A, i);
        const double d = difference_of(A, t, B, tp_file_find(B, t->name));
        if (!(d <= most)) most = d;
    }
    tp_file_close(A);
    tp_file_close(B);
    return most;
}

static const int changing[][2] = { { 4, 2 }, { 2, 4 }, { 1, 5 }, { 4, 8 } };

Test(peers_state, any_number_of_processes_continues)
{
    train_in("alone", (const int[][2]){ { 1, 8 } }, 1, "");
    train_in("changing", changing, 4, "");
    const double d = difference("alone/last.safetensors", "changing/last.safetensors");
    cr_expect_lt(d, 1e-12, "%g", d);
    tp_file *F = tp_file_open("changing/last.safetensors");
    cr_expect_eq(tp_file_find(F, "state.memory")->shape.dim[0], BATCH, "rows of all");
    tp_file_close(F);
}

/* The two runs have the same number of processes in each update, but one stops more often. */
Test(peers_state, the_same_numbers_of_processes_give_the_same_bits)
{
    const int often[][2] = { { 4, 1 }, { 4, 2 }, { 2, 3 }, { 2, 4 }, { 1, 5 }, { 4, 7 }, { 4, 8 } };
    train_in("seldom", changing, 4, "--drop 0.3");
    train_in("often", often, 7, "--drop 0.3");
    cr_expect_eq(difference("seldom/last.safetensors", "often/last.safetensors"), 0);
}

Test(peers_state, processes_draw_different_numbers)
{
    expect_run(3, 0, "--run-dir run --steps 1 --seed 5");
    for (int k = 0; k < 3; k++) {
        cr_expect_eq(streams[k].seed, 5);
        cr_expect_eq(streams[k].offset, streams[0].offset + ((uint64_t)k << 48));
    }
}

/* All processes take the same score, so they end and change the rate in the same update; process 0
 * alone keeps files. The scores never improve after the first. */
Test(peers_state, scores_decide_the_same_in_all)
{
    static const char flags[] = "--patience 5 --schedule plateau --lr-patience 2 --lr-factor 0.5 "
                                "--keep-last 2 --keep-best 3";
    const int alone[][2] = { { 1, 30 } }, parts[][2] = { { 4, 3 }, { 2, 6 }, { 3, 30 }, { 4, 30 } };
    train_in("alone", alone, 1, flags);
    train_in("parts", parts, 4, flags);
    cr_expect_eq(update_in("alone/last.safetensors"), 18);
    cr_expect_eq(update_in("parts/last.safetensors"), 18);
    const double d = difference("alone/last.safetensors", "parts/last.safetensors");
    cr_expect_lt(d, 1e-12, "%g", d);
    cr_expect(shell("[ \"$(ls alone)\" = \"$(ls parts)\" ] && ls parts/last-000000017.safetensors "
                    "parts/last-000000018.safetensors parts/best-000000003.safetensors"));
    cr_expect(shell("grep -q '\"step\":18,.*\"lr\":0.0025,.*\"ended\":\"patience\"' "
                    "parts/log.jsonl"));
}

/* ---- failures ---- */

Test(peers_state, rates_are_tested_alone)
{
    expect_run(2, 1, "--run-dir run --steps 8 --lr-range 1e-3:1");
    fflush(stderr);
    cr_expect(shell("grep -q -e '--lr-range runs in one process: start it without' wrong"));
    cr_expect(shell("test ! -e run"));
}

static void expect_one_message(const char *message, int64_t update)
{
    static char text[8000];
    fflush(stderr);
    slurp("wrong", text, sizeof text);
    const char *first = strstr(text, message);
    cr_expect(first && !strstr(first + 1, message), "%s", text);
    cr_expect_eq(update_in("run/last.safetensors"), update);
    cr_expect(shell("test $(ls run | grep -c tmp) -eq 0"), "a temporary file is left");
}

Test(peers_state, a_full_disk_ends_all)
{
    expect_run(3, 1, "--run-dir run --steps 8 --full-at 3");
    expect_one_message("File too large", 2);
}

Test(peers_state, nan_in_the_rows_of_one_ends_all)
{
    expect_run(3, 1, "--run-dir run --steps 8 --nan-at 4");
    /* Rank 2 has rows 8 to 11. */
    char message[100];
    snprintf(message, sizeof message, "element %d of tensor 'state.memory' is NaN", 9 * WIDTH + 3);
    expect_one_message(message, 3);
}
