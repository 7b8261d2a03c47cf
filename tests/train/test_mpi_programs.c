/* test_mpi_programs.c - training programs in several processes, under both MPIs: they get the model
 * of one process, validate to the same score, report the same counts, repeat their bits, and resume
 * with another number of processes. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/file.h>

#include "support/enwik8.h"
#include "support/images.h"
#include "support/mpi.h"
#include "support/runs.h"
#include "support/texts.h"

/* ---- the programs ---- */

typedef struct program_row {
    const char *command;
    void (*make_data)(void);
    /* A batch of 12 rows, which 2, 3 and 4 processes can divide. The rate must not depend on the
     * last step. */
    const char *flags;
    int updates; /* in three parts for resuming; validations divide none of them */
    const char *score;
    /* Numbers of each line of the log that do not depend on the number of processes. */
    const char *counts[4];
    /* Dropout and batch norms depend on it, so the model is another one: it is not compared. */
    bool other_model;
} program_row;

static void text_data(void)
{
    make_text("text", 20000);
}

static void image_data(void)
{
    make_colours("set", 8);
}

/* The program draws its documents or lines. */
static void no_data(void) {}

/* Pairs of documents of various lengths. */
static void pair_data(void)
{
    cr_assert(shell("mkdir aan; for p in train eval test; do for i in $(seq 41); do "
                    "printf '%d.0\\tA\\tB\\t%s %d\\t%s\\n' $((i % 2)) "
                    "$(head -c $((i % 7 + 1)) /dev/zero | tr '\\0' a) $i "
                    "$(head -c $((i % 5 + 1)) /dev/zero | tr '\\0' b); "
                    "done > aan/new_aan_pairs.$p.tsv; done"));
}

#define EVERY "--threads 1 --dtype f64 --batch 12 --seed 3 "
#define LRA                                                                                        \
    EVERY "--layers 1 --dim 32 --hidden 8 --rank 2 --recipe paper --warmup 1 --lr 0.01 "           \
          "--dropout 0 --log-every 3 --eval-every 5 --checkpoint-every 4 "

#define IMAGES                                                                                     \
    EVERY "--shapes 60 --size 16 --drop-path 0 --mixup 0 --cutmix 0 --schedule constant "          \
          "--epochs 1000000 --lr 0.01 --log-every 3 "
#define TEXTS                                                                                      \
    EVERY "--data reviews --length 16 --tokenizer words --layers 1 --dim 32 --heads 2 "            \
          "--hidden 32 --dropout 0 --attention-dropout 0 --schedule constant --log-every 3 "       \
          "--eval-every 5 --checkpoint-every 4 "
#define SCENES                                                                                     \
    EVERY "--scenes 40 --valid-scenes 7 --scene-size 64 --sizes 64 --size 64 --longest 64 "        \
          "--schedule constant --warmup 1 --drop-path 0 --log-every 1 --eval-every 1 "             \
          "--checkpoint-every 2 "

static const program_row rows[] = {
    { .command = "enwik8 train", /* reports and checkpoints fall on different updates */
      .make_data = text_data,
      .flags = SMALL EVERY "--data text --schedule constant --log-every 3 --eval-every 5 "
                           "--checkpoint-every 4 --eval-tokens 0 --targets official",
      .updates = 24,
      .score = "valid_bpc",
      .counts = { "tokens" } },
    { .command = "enwik8 train", /* a growing cache, several segments in an update */
      .make_data = text_data,
      .flags = SMALL EVERY "--model txl --data text --schedule constant --log-every 3 "
                           "--eval-every 5 --checkpoint-every 4 --accumulation 2",
      .updates = 12,
      .score = "valid_bpc",
      .counts = { "tokens" } },
    { .command = "enwik8 train", /* three streams of validation: fewer than processes */
      .make_data = text_data,
      .flags = SMALL EVERY "--tokens 400 --data text --schedule constant --log-every 1 "
                           "--eval-every 2 --eval-tokens 0",
      .updates = 6,
      .score = "valid_bpc",
      .counts = { "tokens" } },
    { .command = "lra train", /* packed */
      .make_data = no_data,
      .flags = LRA "--examples 100 --valid-examples 41 --test-examples 30 --shortest 5 "
                   "--longest 15 --length 16",
      .updates = 24,
      .score = "accuracy",
      .counts = { "examples", "tokens", "passes" } },
    { .command = "lra train", /* pairs, sorted and padded */
      .make_data = pair_data,
      .flags = LRA "--task retrieval --data aan --length 16 --packed no",
      .updates = 12,
      .score = "accuracy",
      .counts = { "examples", "passes" } },
    { .command = "lra train", /* padded to the full length; random features */
      .make_data = no_data,
      .flags = LRA "--attention performer --examples 100 --valid-examples 41 --test-examples 30 "
                   "--shortest 5 --longest 15 --length 16",
      .updates = 6,
      .score = "accuracy",
      .counts = { "examples", "tokens", "passes" } },
    { .command = "first_text",
      .make_data = no_data,
      .flags = EVERY "--length 12 --epochs 0 --log-every 3 --ema 0.5",
      .updates = 24,
      .score = "accuracy",
      .counts = { "lines", "epoch" },
      .other_model = true },
    { .command = "first_image",
      .make_data = image_data,
      .flags = EVERY "--data set --size 16 --epochs 1000000 --log-every 3 --ema 0.5",
      .updates = 24,
      .score = "accuracy",
      .counts = { "images", "epoch" },
      .other_model = true },
    { .command = "imagenet train",
      .make_data = no_data,
      .flags = IMAGES "--preset deit-mini --optimizer sgd",
      .updates = 12,
      .score = "top1",
      .counts = { "images", "epoch", "skipped" } },
    { .command = "imagenet train", /* batch norm: equal statistics in all processes */
      .make_data = no_data,
      .flags = IMAGES "--preset resnet-mini",
      .updates = 6,
      .score = "top1",
      .counts = { "images", "epoch", "skipped" },
      .other_model = true },
    { .command = "imdb train",
      .make_data = review_data,
      .flags = TEXTS "--packed no --bucket 2 --epochs 0",
      .updates = 24,
      .score = "accuracy",
      .counts = { "examples", "passes" } },
    { .command = "imdb pretrain", /* as many targets in no two processes */
      .make_data = review_data,
      .flags = TEXTS "--accumulation 2",
      .updates = 24,
      .score = "valid_bits",
      .counts = { "tokens", "passes" } },
    { .command = "coco train", /* detections of all processes, normalised by all objects */
      .make_data = no_data,
      .flags = SCENES "--preset retinanet-vil-mini --optimizer sgd",
      .updates = 6,
      .score = "valid_ap",
      .counts = { "images", "epoch" } },
    { .command = "coco train", /* masks; each process samples its own regions */
      .make_data = no_data,
      .flags = SCENES "--preset mask-rcnn-resnet-mini",
      .updates = 3,
      .score = "valid_ap",
      .counts = { "images", "epoch" },
      .other_model = true },
};
enum { ROWS = sizeof rows / sizeof *rows };

/* ---- runs ---- */

/* The MPI to use where that one is wanted. */
static mpi_kind available(mpi_kind k)
{
    return has_mpi(k) ? k : (mpi_kind)(MPI_KINDS - 1 - k);
}

/* Runs the program's flags, or --resume, up to this update in `folder`. ranks 1: without MPI. */
static void train(const program_row *p, mpi_kind k, int ranks, const char *flags, int updates,
                  const char *folder)
{
    char args[2000];
    snprintf(args, sizeof args, "%s --steps %d --run-dir %s", flags, updates, folder);
    const int status = run_under(ranks > 1 ? mpi_command(available(k), ranks) : "", args);
    cr_assert(status == 0, "%s, %s, %d processes, %s: status %d\n%s", p->command,
              mpi_name(available(k)), ranks, args, status, errors);
}

/* ---- comparisons ---- */

static void largest(tp_file *F, const tp_file_tensor *t, double *v, double *most)
{
    cr_assert(tp_file_read(F, t, TP_F64, v), "%s", tp_file_why(F));
    for (int64_t i = 0; i < t->numel; i++) *most = fmax(*most, fabs(v[i]));
}

/* The largest relative error of a tensor; NaN is infinite. */
static double error_of(tp_file *A, tp_file *B, const tp_file_tensor *a)
{
    const tp_file_tensor *b = tp_file_find(B, a->name);
    cr_assert(b && b->numel == a->numel, "%s: %s", tp_file_path(B), a->name);
    double *x = malloc(2 * (size_t)a->numel * sizeof *x), *y = x + a->numel, scale = 1e-3, most = 0;
    cr_assert_not_null(x);
    largest(A, a, x, &scale);
    largest(B, b, y, &scale);
    for (int64_t i = 0; i < a->numel; i++) {
        const double error = fabs(x[i] - y[i]) / scale;
        most = error >= 0 ? fmax(most, error) : INFINITY;
    }
    free(x);
    return most;
}

/* Expects equal weights, averages and carried memory. Where a gradient is zero but for rounding, as
 * of a bias in front of a softmax, Adam makes steps of the rounding errors, here up to 2e-12. */
static void expect_model(const program_row *p, const char *a, const char *b, const char *file)
{
    char path[2][100];
    snprintf(path[0], sizeof path[0], "%s/%s", a, file);
    snprintf(path[1], sizeof path[1], "%s/%s", b, file);
    tp_file *A = tp_file_open(path[0]), *B = tp_file_open(path[1]);
    cr_assert(tp_file_ok(A) && tp_file_ok(B), "%s%s", tp_file_why(A), tp_file_why(B));
    cr_expect_eq(tp_file_count(A), tp_file_count(B));
    for (int i = 0; i < tp_file_count(A); i++) {
        const tp_file_tensor *t = tp_file_at(A, i);
        if (strncmp(t->name, "optim.", 6) == 0) continue;
        const double error = error_of(A, B, t);
        cr_expect(error < 1e-11, "%s: %s of %s: %g", p->command, t->name, path[1], error);
    }
    double x = 0, y = 1;
    if (strcmp(file, "best.safetensors") == 0) {
        tp_file_num(A, p->score, &x);
        tp_file_num(B, p->score, &y);
        cr_expect(fabs(x - y) <= 1e-12 * fabs(x), "%s: %s: %.17g and %.17g", p->command, path[1], x,
                  y);
    }
    tp_file_close(A);
    tp_file_close(B);
}

static bool has(const char *line, const char *key)
{
    char name[64];
    snprintf(name, sizeof name, "\"%s\":", key);
    return strstr(line, name) != NULL;
}

static void expect_number(const program_row *p, const char *x, const char *y, const char *key,
                          double tolerance)
{
    if (!has(x, key) && !has(y, key)) return;
    const double a = number_in(x, key), b = number_in(y, key);
    cr_expect(fabs(a - b) <= tolerance * fabs(a), "%s: %s: %s\n%s", p->command, key, x, y);
}

static void expect_line(const program_row *p, const char *x, const char *y)
{
    static const char *const means[] = { "loss", "bpc", "grad_norm", "train_loss", "valid_loss" };
    cr_expect_eq(has(x, p->score), has(y, p->score), "%s: %s\n%s", p->command, x, y);
    expect_number(p, x, y, "step", 0);
    expect_number(p, x, y, "lr", 0);
    for (int i = 0; i < 4 && p->counts[i]; i++) {
        cr_expect(has(x, p->counts[i]), "%s: %s: %s", p->command, p->counts[i], x);
        expect_number(p, x, y, p->counts[i], 0);
    }
    if (p->other_model) return;
    expect_number(p, x, y, p->score, 2e-9); /* logs have nine digits */
    for (size_t i = 0; i < sizeof means / sizeof *means; i++)
        expect_number(p, x, y, means[i], 1e-7);
}

/* Expects equal logs, but for times and memory. */
static void expect_log(const program_row *p, const char *a, const char *b)
{
    static char text[2][40000];
    char path[100], *rest[2], *line[2];
    const char *const folder[2] = { a, b };
    int lines = 0;
    for (int k = 0; k < 2; k++) {
        snprintf(path, sizeof path, "%s/log.jsonl", folder[k]);
        slurp(path, text[k], sizeof text[k]);
        line[k] = strtok_r(text[k], "\n", &rest[k]);
    }
    for (; line[0] && line[1]; lines++) {
        expect_line(p, line[0], line[1]);
        for (int k = 0; k < 2; k++) line[k] = strtok_r(NULL, "\n", &rest[k]);
    }
    cr_expect(!line[0] && !line[1] && lines > 0, "%s: lines of %s and %s", p->command, a, b);
}

static void expect_same(const program_row *p, const char *a, const char *b)
{
    expect_log(p, a, b);
    if (p->other_model) return;
    expect_model(p, a, b, "last.safetensors");
    expect_model(p, a, b, "best.safetensors");
    if (strcmp(p->command, "lra train") != 0) return;
    static char test[2][2000];
    static const char *const keys[] = { "accuracy", "official_accuracy", "examples" };
    slurp("one/test.json", test[0], sizeof test[0]);
    slurp("three/test.json", test[1], sizeof test[1]);
    for (int i = 0; i < 3; i++) expect_number(p, test[0], test[1], keys[i], 0);
}

/* ---- tests ---- */

static void begin(const program_row *p)
{
    program_begin(p->command);
    p->make_data();
}

static bool wanted(const program_row *p)
{
    return run_kind_wanted(&(run_kind){ .command = p->command });
}

static void need_mpi(void)
{
    if (!has_mpi(OPEN_MPI) && !has_mpi(MPICH))
        cr_skip_test("no MPI: apt-get install libopenmpi-dev libmpich-dev, and configure again");
}

TestSuite(mpi_programs, .timeout = 600);

Test(mpi_programs, train_as_one_process)
{
    need_mpi();
    for (int i = 0; i < ROWS; i++) {
        const program_row *p = &rows[i];
        if (!wanted(p)) continue;
        begin(p);
        train(p, OPEN_MPI, 1, p->flags, p->updates, "one");
        train(p, MPICH, 3, p->flags, p->updates, "three");
        expect_same(p, "one", "three");
        train(p, OPEN_MPI, 2, p->flags, p->updates, "two");
        expect_same(p, "one", "two");
        train(p, MPICH, 2, p->flags, p->updates, "again");
        cr_expect(same_bytes("two/last.safetensors", "again/last.safetensors"), "%s", p->command);
        cr_expect(same_bytes("two/best.safetensors", "again/best.safetensors"), "%s", p->command);
        program_end();
    }
}

Test(mpi_programs, resume_with_another_number_of_processes)
{
    need_mpi();
    for (int i = 0; i < ROWS; i++) {
        const program_row *p = &rows[i];
        if (!wanted(p)) continue;
        begin(p);
        const int part = p->updates / 3;
        train(p, OPEN_MPI, 1, p->flags, part, "one");
        train(p, OPEN_MPI, 1, "--resume", 2 * part, "one");
        train(p, OPEN_MPI, 1, "--resume", 3 * part, "one");
        train(p, OPEN_MPI, 4, p->flags, part, "three");
        train(p, MPICH, 2, "--resume", 2 * part, "three");
        train(p, OPEN_MPI, 3, "--resume", 3 * part, "three");
        expect_same(p, "one", "three");
        program_end();
    }
}

/* The order of an epoch leads each of two processes to the damaged image sooner or later. */
Test(mpi_programs, each_process_names_what_it_skips)
{
    need_mpi();
    program_begin("first_image");
    image_data();
    cr_assert(shell("echo damaged > set/train/red/00.png"));
    cr_assert_eq(run_under(mpi_command(available(MPICH), 2),
                           "--data set --threads 1 --size 16 --batch 4 --epochs 8 --seed 1"),
                 0, "%s", errors);
    cr_expect(strstr(out, "\nskipped: "), "%s", out);
    cr_expect(strstr(out, "rank 1 skipped: "), "%s", out);
    program_end();
}

/* A forecast describes the batch of all processes; one of them prints it. */
Test(mpi_programs, plan_once)
{
    need_mpi();
    program_begin("enwik8 train");
    make_text("text", 20000);
    cr_expect_eq(run_under(mpi_command(available(MPICH), 2), SMALL "--data text --batch 6 --plan"),
                 0, "%s", errors);
    const char *at = strstr(out, "an update: 1 x 6 streams");
    cr_expect(at && !strstr(at + 1, "an update:"), "%s", out);
    program_end();
}

/* They would print and write the same in every process. */
Test(mpi_programs, other_commands_run_in_one_process)
{
    static const char says[] =
        "lra eval: this command runs in one process: start it without mpirun";
    need_mpi();
    program_begin("lra eval");
    for (int k = 0; k < MPI_KINDS; k++) {
        if (!has_mpi((mpi_kind)k)) continue;
        cr_expect_eq(run_under(mpi_command((mpi_kind)k, 2), "--run-dir run"), 1);
        const char *at = strstr(errors, says);
        cr_expect(at && !strstr(at + 1, says), "%s", errors);
        expect_refusal("--run-dir run", 1, "run/last.safetensors");
    }
    program_end();
}
