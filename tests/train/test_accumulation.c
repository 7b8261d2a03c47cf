/* test_accumulation.c - an update over several batches equals that over one batch of all their
 * targets, however many each has. The program fits a constant to numbers, of which some examples
 * have many and some none. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tapegrad/train.h>

#include "support/program.h"
#include "support/train_with.h"

enum { EXAMPLES = 16, MOST = 9 };
static const int counts[EXAMPLES] = { 1, 9, 0, 3, 2, 0, 0, 7, 5, 1, 1, 4, 8, 0, 6, 2 };

typedef struct state {
    tp_tensor w, x;
} state;

static bool set_late; /* loss, not next, sets the number of targets */

static void open_numbers(tp_run *R, tp_file *from)
{
    const tp_train_settings *s = R->settings;
    (void)from;
    R->batches = EXAMPLES / s->batch;
}

static void build(tp_run *R)
{
    state *t = R->state;
    t->w = tp_param(R->P, "w", TP_SHAPE(2), (tp_init){ TP_INIT_CONST, 1, 0 }, 0);
}

/* The numbers of the batch's examples, [n,2]. */
static void next(tp_run *R)
{
    state *t = R->state;
    const tp_train_settings *s = R->settings;
    double x[EXAMPLES * MOST * 2];
    int64_t n = 0;
    for (int64_t i = R->batch * s->batch; i < (R->batch + 1) * s->batch; i++)
        for (int k = 0; k < counts[i]; k++, n++) {
            x[2 * n] = (double)(i + k) / 3;
            x[2 * n + 1] = 40.0 / (double)(2 + i + 2 * k);
        }
    tp_feed(R->T, &t->x, TP_F64, TP_SHAPE(n, 2), x);
    if (!set_late) R->targets = n;
}

static tp_tensor loss(tp_run *R)
{
    const state *t = R->state;
    const tp_tensor x = tp_cast(R->T, t->x, tp_dtype_of(t->w));
    if (set_late) R->targets = tp_shape_of(x).dim[0];
    return tp_mse(R->T, tp_expand(R->T, t->w, tp_shape_of(x)), x, TP_MEAN);
}

static double validate(tp_run *R, char *text, size_t size)
{
    (void)R, (void)text, (void)size;
    return 1;
}

static const tp_training training = {
    .command = { .name = "numbers",
                 .summary = "fits",
                 .about = "Fits.",
                 .table = tp_train_options },
    .unit = "examples",
    .score = "nothing",
    .score_text = "%f",
    .settings_size = sizeof(tp_train_settings),
    .state_size = sizeof(state),
    .defaults = "--threads 1 --steps 3 --epochs 0 --optimizer sgd --lr 0.1 --schedule constant "
                "--dtype f64 --log-every 1 --eval-every 0",
    .open = open_numbers,
    .build = build,
    .next = next,
    .loss = loss,
    .validate = validate,
};

typedef struct outcome {
    double w[2], loss, norm;
} outcome;

static outcome train(const char *flags)
{
    char text[300], log[4000], *line = log;
    outcome y;
    snprintf(text, sizeof text, "%s --run-dir run --overwrite", flags);
    cr_assert_eq(train_with(&training, NULL, text), 0, "%s", flags);
    tp_file *F = tp_file_open("run/last.safetensors");
    cr_assert(tp_file_read(F, tp_file_find(F, "w"), TP_F64, y.w), "%s", tp_file_why(F));
    tp_file_close(F);
    slurp("run/log.jsonl", log, sizeof log);
    for (char *more = log; (more = strchr(more, '\n')) && more[1];)
        line = ++more; /* the last one */
    y.loss = number_in(line, "loss");
    y.norm = number_in(line, "grad_norm");
    return y;
}

/* Clipping divides by the norm + 1e-6, however the gradients are scaled later. */
static void expect_same(const char *flags, const outcome *want)
{
    const outcome y = train(flags);
    for (int k = 0; k < 2; k++)
        cr_expect_float_eq(y.w[k], want->w[k], 1e-7, "%s: weight %d: %.15g, not %.15g", flags, k,
                           y.w[k], want->w[k]);
    cr_expect_float_eq(y.norm, want->norm, 1e-7 * want->norm, "%s: norm %g, not %g", flags, y.norm,
                       want->norm);
    cr_expect_float_eq(y.loss, want->loss, 1e-7 * want->loss, "%s: loss %g, not %g", flags, y.loss,
                       want->loss);
}

Test(accumulation, weighs_batches_by_their_targets)
{
    program_begin("none"); /* makes a separate folder */
    cr_assert(freopen("said", "w", stdout));
    for (int clipped = 0; clipped < 2; clipped++) {
        char flags[100];
        const double clip = clipped ? 0.5 : 0.0;
        snprintf(flags, sizeof flags, "--batch 16 --clip %g", clip);
        const outcome want = train(flags);
        for (int batch = 1; batch <= 8; batch *= 2) {
            set_late = batch == 2;
            snprintf(flags, sizeof flags, "--batch %d --accumulation %d --clip %g", batch,
                     EXAMPLES / batch, clip);
            expect_same(flags, &want);
        }
        set_late = false;
    }
    program_end();
}
