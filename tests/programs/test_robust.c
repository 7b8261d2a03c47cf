/* test_robust.c - `imagenet robust` and `imagenet eval --corrupt`: accuracy on corrupted images. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <tapegrad/corrupt.h>
#include <tapegrad/image.h>

#include "support/images.h"
#include "support/program.h"

static void begin(void)
{
    program_begin("imagenet");
    make_colours("set", 12);
    succeed("train --data set --size 16 --batch 8 --epochs 8 --threads 1 --flip 0 --run-dir run");
}

TestSuite(robust, .init = begin, .fini = program_end, .timeout = 300);

static json_t *parsed(const char *line)
{
    json_error_t e;
    json_t *root = json_loads(line, JSON_DISABLE_EOF_CHECK, &e);
    cr_assert(root, "%s: %s", e.text, line);
    return root;
}

/* Returns the top-1 at a corruption and severity from `imagenet robust`; NAN: not measured. */
static double cell(const json_t *root, const char *name, int severity)
{
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(root, "corruptions"), i,
                       row) if (strcmp(json_string_value(json_object_get(row, "name")), name) == 0)
    {
        const json_t *x = json_array_get(json_object_get(row, "top1"), (size_t)severity - 1);
        return json_is_null(x) ? NAN : json_number_value(x);
    }
    return NAN;
}

/* All corruptions at all severities; means are those of the cells; threads change nothing. */
Test(robust, all_corruptions)
{
    double sum = 0;
    succeed("robust run --data set --threads 1 --workers 3 --batch 3 --format json");
    json_t *other = parsed(out);
    succeed("robust run --data set --threads 1 --workers 1 --format json");
    json_t *root = parsed(out);
    cr_expect(json_equal(root, other), "%s", out);
    cr_expect(strstr(json_string_value(json_object_get(root, "model")), "run, update "));
    cr_expect_eq(json_integer_value(json_object_get(root, "images")), 8);
    cr_expect(json_is_false(json_object_get(root, "stopped")));
    cr_expect_eq(json_number_value(json_object_get(root, "top1")), 100);
    cr_expect_eq(json_array_size(json_object_get(root, "corruptions")), TP_NCORRUPT - 1);
    for (int c = 1; c < TP_NCORRUPT; c++)
        for (int s = 1; s <= TP_CORRUPT_SEVERITIES; s++)
            sum += cell(root, tp_corrupt_name((tp_corrupt)c), s);
    cr_expect_float_eq(json_number_value(json_object_get(root, "mean")),
                       sum / (5 * (TP_NCORRUPT - 1)), 1e-6);
    cr_expect_eq(cell(root, "gaussian-blur", 5), 100, "images of one colour cannot be blurred");
    cr_expect_lt(cell(root, "grey", 5), 100, "red and blue look alike");
    json_decref(root);
    json_decref(other);
}

/* `eval --corrupt` measures one of the cells and draws the corrupted images. */
Test(robust, one_corruption)
{
    succeed("robust run --data set --threads 1 --corrupt impulse-noise:5 --seed 9 --format json");
    json_t *all = parsed(out);
    succeed("eval --data set --run-dir run --threads 1 --corrupt impulse-noise:5 --seed 9 "
            "--format json");
    json_t *one = parsed(out);
    cr_expect_eq(cell(all, "impulse-noise", 5), json_number_value(json_object_get(one, "top1")));
    cr_expect(isnan(cell(all, "impulse-noise", 4)));
    cr_expect_str_eq(json_string_value(json_object_get(one, "corruption")), "impulse-noise");
    cr_expect_eq(json_integer_value(json_object_get(one, "severity")), 5);
    json_decref(all);
    json_decref(one);
    succeed("eval --data set --run-dir run --threads 1 --corrupt grey:5");
    cr_expect(strncmp(out, "grey 5: 8 images: loss ", 23) == 0, "%s", out);
}

/* Lists, several models, fewer images. */
Test(robust, tables)
{
    succeed("robust run --data set --threads 1 --corrupt jpeg,contrast:2,jpeg:3");
    cr_expect(strncmp(out, "run, update ", 12) == 0 &&
                  strstr(out, ": 8 images, top-1 100.00 % without corruption\n"),
              "%s", out);
    const char *row = strstr(out, "contrast ");
    cr_assert(row && strstr(out, "jpeg  "), "%s", out);
    cr_expect_eq(strncmp(row + 16, "       -", 8), 0, "%s", out);
    cr_expect_not(strstr(out, "kept"), "%s", out);
    cr_expect_not(strstr(out, "noise"), "%s", out);
    cr_assert(shell("cp -r run other"));
    succeed("robust run other --run-dir other --data set --threads 1 --images 4 --corrupt all:1");
    cr_expect(strncmp(out, "other, update ", 14) == 0 && strstr(out, "\nrun, update ") &&
                  strstr(out, ": 4 images, top-1 "),
              "%s", out);
    cr_expect(strstr(out, "   clean corrupted    kept  model"), "%s", out);
}

Test(robust, picture)
{
    tp_image p = { 0 };
    if (!shell("command -v gnuplot >/dev/null")) {
        cr_log_warn("skipped: gnuplot is missing");
        return;
    }
    cr_assert(shell("cp -r run other"));
    succeed("robust run other --data set --threads 1 --corrupt all:5,jpeg --picture all.png");
    cr_expect(tp_image_read(&p, "all.png", NULL), "%s", p.why);
    tp_image_free(&p);
    succeed("robust run other --data set --threads 1 --corrupt jpeg:2,grey --picture two.svg");
    static const char *const texts[] = { ">Accuracy under corruption<",
                                         ">mean of all corruptions<",
                                         ">jpeg<",
                                         ">grey<",
                                         ">severity<",
                                         ">run, update ",
                                         ">other, update " };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char command[100];
        snprintf(command, sizeof command, "grep -q '%s' two.svg", texts[i]);
        cr_expect(shell(command), "%s", texts[i]);
    }
    expect_refusal("robust run --data set --threads 1 --corrupt grey:1 --picture two.jpg", 1,
                   "two.jpg was not drawn: end the name in .png or .svg");
}

/* An unreadable image is named once for any number of corruptions. */
Test(robust, broken_image)
{
    cr_assert(shell("echo no image > set/val/red/12.png"));
    succeed("robust run --data set --threads 1 --corrupt grey");
    const char *named = strstr(errors, "val/red/12.png");
    cr_expect(named && !strstr(named + 1, "val/red/12.png"), "once: %s", errors);
    cr_expect(strstr(out, ": 7 images, 1 could not be read, top-1"), "%s", out);
    expect_refusal("robust run --data set --threads 1 --strict", 1, "val/red/12.png");
}

/* A model that a signal interrupts is not reported as complete. The unreadable image is the last
 * one of the first pass and is named only there. */
static void interrupt(const char *args)
{
    int status;
    remove("err"); /* of an earlier run */
    const pid_t child = start(args);
    await_reports("err", 1);
    nap(0.3);
    kill(child, SIGINT);
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGINT, "status %x",
              (unsigned)status);
    slurp("out", out, sizeof out);
}

Test(robust, interrupted)
{
    cr_assert(shell("for i in $(seq 1000); do cp set/val/red/12.png set/val/blue/x$i.png; done;"
                    "echo no image > set/val/red/z.png"));
    interrupt("robust run --data set --threads 1 --format json --picture none.svg");
    json_t *root = parsed(out);
    cr_expect(json_is_true(json_object_get(root, "stopped")), "%s", out);
    cr_expect(json_is_null(json_object_get(root, "mean")), "%s", out);
    cr_expect_eq(json_integer_value(json_object_get(root, "images")), 1008, "%s", out);
    cr_expect_lt(json_array_size(json_object_get(root, "corruptions")), TP_NCORRUPT - 1);
    json_decref(root);
    interrupt("robust run --data set --threads 1 --picture none.svg");
    cr_expect(strncmp(out, "stopped: run, update ", 21) == 0, "%s", out);
    cr_expect(strstr(out, "\nmean                   -       -       -       -       -       -\n"),
              "%s", out);
    cr_expect(!shell("test -e none.svg"));
}

Test(robust, refusals)
{
    static const struct {
        const char *args;
        int status;
        const char *message;
    } bad[] = {
        { "robust run --data set --corrupt jpg", 1, "grey; did you mean jpeg?" },
        { "robust run --data set --corrupt gaussian_noise", 1, "did you mean gaussian-noise?" },
        { "robust run --data set --corrupt none", 1, "--corrupt: 'none' is not one of all, " },
        { "robust run --data set --corrupt jpeg:6", 1, "'jpeg:6': a severity is a number from 1" },
        { "robust run --data set --corrupt jpeg:", 1, "'jpeg:': a severity is a number from 1" },
        { "robust run --data set --corrupt jpeg,", 1, "--corrupt: '' is not one of" },
        { "robust run --data set --corrupt ''", 1, "--corrupt: '' is not one of" },
        { "robust gone --data set", 1, "gone/last.safetensors" },
        { "robust --data set", 1, "runs/imagenet/last.safetensors" },
        { "robust run --data gone", 1, "gone" },
        { "robust run --data set --preset tiny", 1,
          "--preset tiny names the model of published weights: give --weights FILE" },
        { "robust run", 1, "trained on other images; give them with --data" },
        { "robust 1 2 3 4 5 6 7 8 9 10", 1, "at most 9 models can be compared" },
        { "eval --run-dir run --data set --corrupt jpeg", 1,
          "--corrupt jpeg: give one corruption and its severity, as in jpeg:3" },
        { "eval --run-dir run --data set --corrupt fog:1", 1, "'fog' is not one of all" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        expect_refusal(bad[i].args, bad[i].status, bad[i].message);
}
