/* test_calibration.c - calibration errors, proper scores and temperatures, against sums by hand;
 * and how `imagenet eval --calibration` uses them. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/image.h>
#include <tapegrad/random.h>

#include "reports/calibration.h"
#include "support/images.h"
#include "support/program.h"

/* Adds an image of two classes; the model gives class 0 the probability p > 1/2. */
static void note(calibration *c, int64_t image, double p, bool right)
{
    const float logits[2] = { (float)log(p / (1 - p)), 0 };
    calibration_note(c, image, right ? 0 : 1, logits, 2);
}

/* Two bins: |4/5 - 0.7| over 5 images and |1/2 - 0.95| over 2. */
Test(calibration, by_hand)
{
    static const struct {
        double p;
        bool right;
    } images[] = { { 0.68, true }, { 0.72, true }, { 0.70, true }, { 0.70, false },
                   { 0.70, true }, { 0.95, true }, { 0.95, false } };
    enum { N = sizeof images / sizeof images[0] };
    calibration c = { 0 };
    double nll = 0, brier = 0;
    for (int i = 0; i < N; i++) {
        const double p = images[i].p, q = images[i].right ? p : 1 - p;
        note(&c, i, p, images[i].right);
        nll -= log(q) / N;
        brier += 2 * (1 - q) * (1 - q) / N;
    }
    const calibration_result r = calibration_of(&c);
    cr_expect_eq(r.examples, N);
    cr_expect_float_eq(r.ece, (5 * 0.1 + 2 * 0.45) / 7, 1e-6, "%g", r.ece);
    cr_expect_float_eq(r.nll, nll, 1e-6);
    cr_expect_float_eq(r.brier, brier, 1e-6);
    cr_expect_float_eq(r.right, 5.0 / 7, 1e-12);
    cr_expect_float_eq(r.confidence, (0.7 * 5 + 0.95 * 2) / 7, 1e-6);
    cr_expect_eq(r.bin[10].examples, 5);
    cr_expect_eq(r.bin[14].right, 1);
    /* Fewer images than bins: each has a bin. Equal confidences: the wrong one first. */
    cr_expect_float_eq(r.adaptive, (0.32 + 0.28 + 0.30 * 2 + 0.70 + 0.05 + 0.95) / 7, 1e-6, "%g",
                       r.adaptive);
    calibration_free(&c);
}

/* Intervals are closed above: a confidence of 1 is in the last bin, one of 3/15 in the third. */
Test(calibration, borders)
{
    const float sure[2] = { 100, 0 }, even[5] = { 0 };
    calibration c = { 0 };
    calibration_note(&c, 0, 0, sure, 2);
    calibration_note(&c, 1, 0, even, 5);
    calibration_note(&c, 2, 0, (float[2]){ NAN, NAN }, 2);
    const calibration_result r = calibration_of(&c);
    cr_expect_eq(r.examples, 2, "NaN is left out");
    cr_expect_eq(r.bin[14].examples, 1);
    cr_expect_eq(r.bin[2].examples, 1);
    calibration_free(&c);
    const calibration_result none = calibration_of(&c);
    cr_expect(isnan(none.ece) && isnan(none.adaptive) && !none.scaled);
}

enum { MANY = 20000 };

/* Draws labels of three classes from logits and scales these by `factor`. */
static calibration_result drawn(double factor)
{
    calibration c = { 0 };
    for (int64_t i = 0; i < MANY; i++) {
        tp_random r = tp_random_stream(1, "logits", (uint64_t)i, 0);
        double z[3], sum = 0;
        float logits[3];
        int32_t label = 0;
        for (int k = 0; k < 3; k++) {
            z[k] = 2 * tp_random_normal(&r);
            logits[k] = (float)(factor * z[k]);
            sum += exp(z[k]);
        }
        for (double u = tp_random_uniform(&r) * sum - exp(z[0]); u >= 0 && label < 2;)
            u -= exp(z[++label]);
        calibration_note(&c, i, label, logits, 3);
    }
    const calibration_result r = calibration_of(&c);
    calibration_free(&c);
    return r;
}

/* True probabilities are calibrated; scaled ones after division by the factor. */
Test(calibration, temperatures)
{
    static const double factors[] = { 0.5, 1, 2, 4 };
    const calibration_result right = drawn(1);
    cr_expect_lt(right.ece, 0.02, "%g", right.ece);
    cr_expect_lt(right.adaptive, 0.02, "%g", right.adaptive);
    for (int i = 0; i < 4; i++) {
        const calibration_result r = drawn(factors[i]);
        cr_expect(r.scaled && fabs(log2(r.temperature / factors[i])) < 0.13, "%g: temperature %g",
                  factors[i], r.temperature);
        cr_expect_lt(r.ece_after, 0.025, "%g: %g", factors[i], r.ece_after);
        cr_expect_float_eq(r.nll_after, right.nll_before, 2e-3, "%g: %g", factors[i], r.nll_after);
        if (factors[i] == 1) continue;
        cr_expect(r.nll > right.nll && r.brier > right.brier && r.ece > 0.05,
                  "%g: the true probabilities score best", factors[i]);
        cr_expect_gt(r.ece_before, r.ece_after);
    }
}

Test(calibration, halves)
{
    int64_t n = 0, pairs = 0;
    for (int64_t i = 0; i < 10000; i++) {
        n += calibration_fits(i);
        pairs += calibration_fits(i) == calibration_fits(i + 1);
    }
    cr_expect(llabs(n - 5000) < 250 && llabs(pairs - 5000) < 250, "%lld, %lld", (long long)n,
              (long long)pairs);
}

/* ---- the program ---- */

static void begin(void)
{
    program_begin("imagenet");
    make_colours("set", 12);
    succeed("train --data set --size 16 --batch 8 --epochs 2 --threads 1 --flip 0 --run-dir run");
}

TestSuite(calibrated, .init = begin, .fini = program_end, .timeout = 300);

Test(calibrated, reports)
{
    json_error_t e;
    double loss, ece;
    succeed("eval --data set --run-dir run --threads 1 --calibration --format json");
    json_t *root = json_loads(out, JSON_DISABLE_EOF_CHECK, &e);
    cr_assert(root, "%s: %s", e.text, out);
    const json_t *c = json_object_get(root, "calibration");
    loss = json_number_value(json_object_get(root, "loss"));
    ece = json_number_value(json_object_get(c, "ece"));
    cr_expect_float_eq(json_number_value(json_object_get(c, "nll")), loss, 1e-5);
    cr_expect_eq(json_array_size(json_object_get(c, "bins")), CALIBRATION_BINS);
    int64_t images = 0;
    for (size_t i = 0; i < CALIBRATION_BINS; i++)
        images += json_integer_value(
            json_object_get(json_array_get(json_object_get(c, "bins"), i), "images"));
    cr_expect_eq(images, 8);
    cr_expect(json_object_get(c, "scaled"), "%s", out);
    json_decref(root);
    char line[100];
    succeed("eval --data set --run-dir run --threads 1 --calibration");
    snprintf(line, sizeof line, "\ncalibration: ECE %.2f %%, adaptive ", ece);
    cr_expect(strstr(out, line) && strstr(out, "\ntemperature "), "%s in %s", line, out);
    succeed("eval --data set --run-dir run --threads 1");
    cr_expect_not(strstr(out, "calibration"), "%s", out);
}

Test(calibrated, picture)
{
    tp_image p = { 0 };
    if (!shell("command -v gnuplot >/dev/null")) {
        cr_log_warn("skipped: gnuplot is missing");
        return;
    }
    succeed("eval --data set --run-dir run --threads 1 --reliability r.png --corrupt jpeg:1");
    cr_expect(strstr(out, "calibration: ECE "), "%s", out);
    cr_expect(tp_image_read(&p, "r.png", NULL), "%s", p.why);
    tp_image_free(&p);
    succeed("eval --data set --run-dir run --threads 1 --reliability r.svg");
    cr_expect(shell("grep -q '>Reliability<' r.svg && grep -q '>calibrated<' r.svg"));
    expect_refusal("eval --data set --run-dir run --reliability r.jpg", 1, "r.jpg was not drawn");
    expect_refusal("eval --data set --protocol a --calibration", 2, "leave out --calibration");
    expect_refusal("eval --data set --protocol a --reliability r.png", 2,
                   "leave out --reliability");
}
