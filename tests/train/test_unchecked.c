/* test_unchecked.c - a program whose functions check nothing: the engine reports the first error
 * that they cause, wherever it is, and NaN reaches no file. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "support/program.h"
#include "support/scripted.h"

static tp_training usual;

static void begin(void)
{
    scripted_begin();
    scripted_scores((double[]){ 1 }, 1);
    usual = scripted;
}

TestSuite(unchecked, .init = begin, .fini = scripted_end);

/* ---- errors of ops, in each function that may apply some ---- */

/* A sum of tensors whose shapes do not fit, and what a program does with its result. */
static tp_tensor wrong(tp_tape *T)
{
    const tp_tensor a = tp_full(T, TP_F32, TP_SHAPE(2), 1), b = tp_full(T, TP_F32, TP_SHAPE(3), 1);
    return tp_exp(T, tp_add(T, a, b));
}

static void wrong_build(tp_run *R)
{
    usual.build(R);
    wrong(R->E);
}

static void wrong_next(tp_run *R)
{
    if (R->update == 1) wrong(R->T);
}

static tp_tensor wrong_loss(tp_run *R)
{
    return R->update == 1 ? tp_mean(R->T, wrong(R->T), TP_ALL) : usual.loss(R);
}

static double wrong_validate(tp_run *R, char *text, size_t size)
{
    return usual.validate(R, text, size) + tp_item(R->E, wrong(R->E));
}

static void wrong_on_evaluation(tp_run *R)
{
    wrong(R->E);
}

static void wrong_report(tp_run *R, double loss, char *text, size_t size)
{
    (void)loss, (void)text, (void)size;
    wrong(R->E);
}

static void wrong_write(tp_run *R, tp_writer *W)
{
    (void)W;
    wrong(R->E);
}

static void expect_first_error(const char *name)
{
    scripted_run("--run-dir run --steps 4", 1, "scripted: add: along axis -1 the sizes are 2 in a");
    cr_expect(strstr(scripted_output, "tests/train/test_unchecked.c:"), "%s: the place: %s", name,
              scripted_output);
    cr_expect(!strstr(scripted_output, "tp_exp"), "%s: the first one: %s", name, scripted_output);
    cr_expect(!strstr(scripted_output, "Continue with"), "%s: %s", name, scripted_output);
    cr_assert(shell("rm -rf run"));
    scripted = usual;
}

Test(unchecked, first_error)
{
    scripted.build = wrong_build, expect_first_error("build");
    scripted.next = wrong_next, expect_first_error("next");
    scripted.loss = wrong_loss, expect_first_error("loss");
    scripted.validate = wrong_validate, expect_first_error("validate");
    scripted.best = wrong_on_evaluation, expect_first_error("best");
    scripted.describe = wrong_on_evaluation, expect_first_error("describe");
    scripted.report = wrong_report, expect_first_error("report");
    scripted.after = wrong_on_evaluation, expect_first_error("after");
    scripted.write = wrong_write, expect_first_error("write");
    scripted.write_model = wrong_write, expect_first_error("write_model");
    scripted.done = wrong_on_evaluation, expect_first_error("done");
}

/* ---- NaN ---- */

/* An accuracy is a number even if all logits are NaN. */
static double validate_and_spoil(tp_run *R, char *text, size_t size)
{
    float w[64] = { 0 };
    (void)text, (void)size;
    if (R->update < 4) return 2;
    w[7] = NAN;
    cr_expect(tp_param_set(R->P, scripted_weights(R), TP_F32, w, sizeof w));
    return 1;
}

Test(unchecked, nan_reaches_no_file)
{
    scripted.validate = validate_and_spoil;
    scripted_run("--run-dir run --steps 6 --keep-best 2", 1, "element 7 of tensor 'w' is NaN");
    cr_expect(strstr(scripted_output, "run/last.safetensors still holds update 2: start another"),
              "%s", scripted_output);
    expect_meta("run/best.safetensors", "points", "2.0");
    expect_meta("run/last.safetensors", "update", "2");
    cr_expect(shell("test ! -e run/best-000000004.safetensors"));
}

static tp_tensor loss_with_nan_gradient(tp_run *R)
{
    const tp_tensor w = scripted_weights(R), zero = tp_scale(R->T, w, 0);
    if (R->update < 2) return usual.loss(R);
    return tp_mean(R->T, tp_mul(R->T, tp_sqrt(R->T, zero), zero), TP_ALL);
}

/* Without clipping, too: neither a step nor a checkpoint takes them. */
Test(unchecked, nan_gradients_are_not_taken)
{
    scripted.loss = loss_with_nan_gradient;
    scripted_run("--run-dir run --steps 4 --clip 0 --checkpoint-every 1", 1, "'w' is NaN");
    expect_meta("run/last.safetensors", "update", "2");
    scripted_run("--run-dir other --steps 4 --clip 1 --checkpoint-every 1", 1, "'w' is NaN");
    expect_meta("other/last.safetensors", "update", "2");
}
