/* test_ctc_decode.c - greedy and beam search against all alignments of small cases, and their
 * mistakes. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/random.h>
#include <tapegrad/tapegrad.h>

#include "support/device.h"

enum { N = 5, V = 3 };

/* The text of alignment a, in base V, as a number: its labels in base V from a leading 1. */
static int text_of(int a)
{
    int text = 1, last = 0, row[N];
    for (int t = N - 1; t >= 0; t--, a /= V) row[t] = a % V;
    for (int t = 0; t < N; last = row[t++])
        if (row[t] != 0 && row[t] != last) text = text * V + row[t];
    return text;
}

/* The most probable text by all V^N alignments, and its probability. */
static int best_text(const float *p, double *probability)
{
    static double sum[729];
    int best = 1;
    memset(sum, 0, sizeof sum);
    for (int a = 0; a < 243; a++) {
        double x = 0;
        for (int t = N - 1, rest = a; t >= 0; t--, rest /= V) x += (double)p[t * V + rest % V];
        sum[text_of(a)] += exp(x);
    }
    for (int k = 1; k < 729; k++)
        if (sum[k] > sum[best]) best = k;
    *probability = sum[best];
    return best;
}

static int number_of(const int32_t *labels, int64_t n)
{
    int text = 1;
    for (int64_t i = 0; i < n; i++) text = text * V + labels[i];
    return text;
}

static void draw(tp_random *r, float *p)
{
    for (int t = 0; t < N; t++) {
        double sum = 0;
        for (int v = 0; v < V; v++)
            sum += exp((double)(p[t * V + v] = (float)(2 * tp_random_normal(r))));
        for (int v = 0; v < V; v++) p[t * V + v] -= (float)log(sum);
    }
}

Test(ctc_decode, beams_find_the_most_probable_text)
{
    enum { B = 50 };
    static float p[B * N * V];
    tp_random r = tp_random_stream(3, "ctc", 0, 0);
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    int32_t labels[B * N], greedy[B * N];
    int64_t lengths[B], n[B];
    double score[B], of[B];
    int differ = 0;
    for (int b = 0; b < B; b++) draw(&r, p + b * N * V);
    const tp_tensor x = tp_from(T, TP_F32, TP_SHAPE(B, N, V), p);
    const tp_ctc_decode_cfg beams = { .beams = 100 };
    cr_assert(tp_ctc_decode(T, x, TP_NONE, beams, labels, lengths, score), "%s", tp_why(T));
    cr_assert(tp_ctc_decode(T, x, TP_NONE, (tp_ctc_decode_cfg){ 0 }, greedy, n, of));
    for (int b = 0; b < B; b++) {
        double probability;
        const int want = best_text(p + b * N * V, &probability);
        cr_expect_eq(number_of(labels + b * N, lengths[b]), want, "text %d", b);
        cr_expect_float_eq(exp(score[b]), probability, 1e-6, "text %d", b);
        double most = 0;
        for (int t = 0; t < N; t++) {
            const float *row = p + (b * N + t) * V;
            most += fmax(fmax((double)row[0], (double)row[1]), (double)row[2]);
        }
        cr_expect_float_eq(of[b], most, 1e-5);
        cr_expect_leq(of[b], score[b] + 1e-6, "a text has all of its alignments");
        differ += number_of(greedy + b * N, n[b]) != want;
    }
    cr_expect(differ > 0 && differ < B / 2, "%d: greedy is another search", differ);
    tp_tape_free(T);
    tp_device_close(D);
}

/* Two rows of "a" at 0.4 and blank at 0.6: the alignment "--" has 0.36, the text "a" 0.64. */
Test(ctc_decode, lengths_symbols_and_blanks)
{
    const float a = logf(0.4f), none = logf(0.6f), never = -INFINITY;
    const float p[] = { a, none, never, a, none, never, never, never, 0 };
    const int32_t rows[] = { 2 };
    const int64_t far[] = { 2 };
    int32_t labels[3] = { 9, 9, 9 };
    int64_t n;
    double score;
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    const tp_tensor x = tp_from(T, TP_F32, TP_SHAPE(1, 3, 3), p);
    const tp_tensor l = tp_from(T, TP_I32, TP_SHAPE(1), rows);
    const tp_tensor wide = tp_from(T, TP_I64, TP_SHAPE(1), far);
    cr_assert(tp_ctc_decode(T, x, l, (tp_ctc_decode_cfg){ .blank = 1 }, labels, &n, NULL));
    cr_expect_eq(n, 0);
    for (int64_t symbols = 0; symbols < 3; symbols++) {
        const tp_ctc_decode_cfg cfg = { .blank = 1, .beams = 2, .symbols = symbols };
        const tp_tensor length = symbols % 2 ? wide : l;
        cr_assert(tp_ctc_decode(T, x, length, cfg, labels, &n, &score), "%s", tp_why(T));
        cr_expect(n == 1 && labels[0] == 0);
        cr_expect_float_eq(exp(score), 0.64, 1e-6);
    }
    cr_assert(tp_ctc_decode(T, x, TP_NONE, (tp_ctc_decode_cfg){ .blank = 1 }, labels, &n, NULL));
    cr_expect(n == 1 && labels[0] == 2);
    tp_tape_free(T);
    tp_device_close(D);
}

/* Equal neighbours need a blank between them. */
Test(ctc_decode, repetitions)
{
    const float p[] = { -9, 0, 0, -9, -9, 0, -9, 0 }; /* a - a a */
    int32_t labels[4];
    int64_t n;
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    const tp_tensor x = tp_from(T, TP_F32, TP_SHAPE(1, 4, 2), p);
    for (int64_t beams = 1; beams < 4; beams++) {
        cr_assert(
            tp_ctc_decode(T, x, TP_NONE, (tp_ctc_decode_cfg){ .beams = beams }, labels, &n, NULL));
        cr_expect(n == 2 && labels[0] == 1 && labels[1] == 1, "%d beams", (int)beams);
    }
    tp_tape_free(T);
    tp_device_close(D);
}

Test(ctc_decode, mistakes)
{
    static const float zeros[12];
    const float bad[] = { 0, -1, NAN, -1 }, huge[] = { 0, INFINITY, 0, 0 };
    const int32_t far[] = { 3 }, first[] = { 1 };
    int32_t labels[4];
    int64_t n;
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    const tp_tensor x = tp_from(T, TP_F32, TP_SHAPE(1, 2, 2), zeros);
    const tp_tensor flat = tp_from(T, TP_F32, TP_SHAPE(2, 2), zeros);
    const tp_tensor l = tp_from(T, TP_I32, TP_SHAPE(1), far);
    const tp_tensor one = tp_from(T, TP_I32, TP_SHAPE(1), first);
    const tp_tensor nan = tp_from(T, TP_F32, TP_SHAPE(1, 2, 2), bad);
    const tp_tensor inf = tp_from(T, TP_F32, TP_SHAPE(1, 2, 2), huge);
    const struct {
        tp_tensor x, l;
        tp_ctc_decode_cfg cfg;
        int32_t *labels;
        const char *want;
    } cases[] = {
        { flat, TP_NONE, { 0 }, labels, "ctc_decode: x must be floating point [B,N,V]" },
        { x, flat, { 0 }, labels, "ctc_decode: x_lengths must be i32 or i64 [B]" },
        { x, TP_NONE, { .blank = 2 }, labels, "ctc_decode: the blank is 2, not 0 to 1" },
        { x, TP_NONE, { .beams = -1 }, labels, "ctc_decode: -1 beams and 0 symbols" },
        { x, l, { 0 }, labels, "ctc_decode: text 0 has length 3, not 0 to 2" },
        { x, TP_NONE, { 0 }, NULL, "ctc_decode: NULL was given in place of labels" },
        { nan, TP_NONE, { .beams = 2 }, labels, "ctc_decode: text 0, row 1, symbol 0 is " },
        { inf, TP_NONE, { .beams = 2 }, labels, "text 0, row 0, symbol 1 is inf" },
        { nan, TP_NONE, { 0 }, labels, "which is no logarithm of a probability" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_expect_not(
            tp_ctc_decode(T, cases[i].x, cases[i].l, cases[i].cfg, cases[i].labels, &n, NULL));
        cr_expect(strstr(tp_why(T), cases[i].want), "'%s' in: %s", cases[i].want, tp_why(T));
        tp_clear(T);
    }
    cr_expect(tp_ctc_decode(T, nan, one, (tp_ctc_decode_cfg){ .beams = 2 }, labels, &n, NULL),
              "padding does not count: %s", tp_why(T));
    cr_expect_not(tp_ctc_decode(T, TP_NONE, TP_NONE, (tp_ctc_decode_cfg){ 0 }, labels, &n, NULL));
    tp_tape_free(T);
    tp_device_close(D);
}
