/* faults_program.c - trains a linear model, and in one of several processes something goes wrong:
 * for test_mpi_faults. */
#define _GNU_SOURCE /* RLIMIT_AS */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <tapegrad/data.h>
#include <tapegrad/random.h>
#include <tapegrad/train.h>
#include <time.h>
#include <unistd.h>

enum { WIDTH = 16, EXAMPLES = 120 };

typedef struct settings {
    tp_train_settings train;
    char *fault;
    int64_t rank, at, nap, width;
} settings;

static const tp_option flags[] = {
    TP_STRING("fault", settings, fault, "KIND", 0,
              "stop, kill, exit, hang, memory, nan, disk, fail or slow."),
    TP_INT("fault-rank", settings, rank, 0, 100, 0, "The process that it happens in."),
    TP_INT("fault-at", settings, at, 1, 1000000, 0, "The update."),
    TP_INT("width", settings, width, 1, 100000, TP_SAVED, "The model's."),
    TP_INT("nap", settings, nap, 0, 10000, 0, "Milliseconds to sleep in each update."),
    TP_ROWS(tp_train_options),
    { 0 },
};

typedef struct state {
    tp_examples *samples;
    tp_tensor train[2], valid[2]; /* rows and what the model should make of them */
    tp_linear_m hidden, head;
    double factor; /* of the loss */
} state;

static void open_rows(tp_run *R, tp_file *from)
{
    const settings *s = R->settings;
    state *t = R->state;
    const tp_column columns[] = { { TP_F32, TP_SHAPE(WIDTH) }, { TP_F32, TP_SHAPE(1) } };
    const tp_examples_opts o = { .batch = s->train.batch,
                                 .seed = (uint64_t)s->train.seed,
                                 .hold_back_every = 10,
                                 .share = tp_run_share(R) };
    (void)from;
    tp_random r = tp_random_stream(1, "rows", 0, 0);
    t->samples = tp_examples_new(2, columns, &o);
    for (int i = 0; i < EXAMPLES; i++) {
        float x[WIDTH], y = 0;
        for (int k = 0; k < WIDTH; k++) y += x[k] = (float)tp_random_normal(&r);
        tp_examples_add(t->samples, (const void *[]){ x, &y });
    }
    R->batches = tp_examples_steps(t->samples, TP_TRAIN);
    R->data_hash = tp_examples_hash(t->samples);
}

static void build(tp_run *R)
{
    const int64_t width = ((settings *)R->settings)->width;
    state *t = R->state;
    tp_linear_init(R->P, &t->hidden, "hidden", WIDTH, width, true);
    tp_linear_init(R->P, &t->head, "head", width, 1, true);
}

static void nap(double seconds)
{
    const struct timespec t = { .tv_sec = (time_t)seconds,
                                .tv_nsec = (long)(fmod(seconds, 1) * 1e9) };
    nanosleep(&t, NULL);
}

static void go_wrong(tp_run *R, const char *fault)
{
    if (strcmp(fault, "stop") == 0) raise(SIGSTOP);
    if (strcmp(fault, "kill") == 0) raise(SIGKILL);
    if (strcmp(fault, "exit") == 0) _exit(0);
    while (strcmp(fault, "hang") == 0) pause();
    if (strcmp(fault, "slow") == 0) nap(6);
    if (strcmp(fault, "disk") == 0) setrlimit(RLIMIT_FSIZE, &(struct rlimit){ 1000, 1000 });
    if (strcmp(fault, "fail") == 0) tp_run_fail(R, "the disk with the data is gone");
    if (strcmp(fault, "memory") == 0) { /* a batch that needs 1 GiB where half as much is left */
        setrlimit(RLIMIT_AS, &(struct rlimit){ (rlim_t)512 << 20, (rlim_t)512 << 20 });
        tp_full(R->T, TP_F32, TP_SHAPE(1 << 28), 0);
    }
}

static void next(tp_run *R)
{
    const settings *s = R->settings;
    state *t = R->state;
    const bool here = R->rank == s->rank && R->update + 1 == s->at;
    if (s->nap > 0) nap((double)s->nap / 1000);
    tp_examples_feed(t->samples, R->T, TP_TRAIN, R->epoch, R->batch, t->train);
    t->factor = 1;
    if (!here || !s->fault) return;
    go_wrong(R, s->fault);
    if (strcmp(s->fault, "nan") == 0) t->factor = NAN;
}

static tp_tensor error_of(tp_tape *T, const state *t, const tp_tensor batch[2])
{
    const tp_tensor h = tp_gelu(T, tp_linear_forward(T, &t->hidden, batch[0]));
    const tp_tensor d = tp_sub(T, tp_linear_forward(T, &t->head, h), batch[1]);
    return tp_mean(T, tp_square(T, d), TP_ALL);
}

static tp_tensor loss(tp_run *R)
{
    const state *t = R->state;
    return tp_scale(R->T, error_of(R->T, t, t->train), t->factor);
}

static double validate(tp_run *R, char *text, size_t size)
{
    state *t = R->state;
    double sum[2] = { 0 };
    (void)text, (void)size;
    for (int64_t i = 0; !tp_run_stopped(R); i++) {
        tp_reset(R->E);
        if (tp_examples_feed(t->samples, R->E, TP_VALID, 0, i, t->valid) == 0) break;
        sum[0] += tp_item(R->E, error_of(R->E, t, t->valid));
        sum[1]++;
    }
    tp_run_total(R, sum, 2);
    return sum[0] / sum[1];
}

static void close_rows(tp_run *R)
{
    tp_examples_free(((state *)R->state)->samples);
}

static const tp_training training = {
    .command = { .name = "faults_program",
                 .summary = "trains until something goes wrong",
                 .about = "Trains a small model.",
                 .table = flags },
    .unit = "rows",
    .score = "error",
    .score_text = "error %.4f",
    .settings_size = sizeof(settings),
    .state_size = sizeof(state),
    .defaults = "--epochs 0 --lr 0.001 --batch 12 --threads 1 --log-every 1 --eval-every 0 "
                "--fault-at 1 --width 64",
    .open = open_rows,
    .build = build,
    .next = next,
    .loss = loss,
    .validate = validate,
    .close = close_rows,
};

int main(int argc, char **argv)
{
    return tp_train_main(&training, argc - 1, argv + 1);
}
