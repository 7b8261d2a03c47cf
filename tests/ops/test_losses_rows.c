/* test_losses_rows.c - losses of rows: connectionist temporal classification against the sum over
 * all alignments, its range and limits; triplets, Dice and cosines where they have no slope;
 * messages. test_compare compares random cases with PyTorch. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "support/values.h"

typedef struct world {
    tp_device *D;
    tp_tape *T;
} world;

static world begin(int threads)
{
    world s;
    s.D = tp_device_open("cpu", &(tp_device_opts){ .threads = threads });
    s.T = tp_tape_new(s.D, NULL);
    return s;
}

static void end(world *s)
{
    tp_tape_free(s->T);
    tp_device_close(s->D);
}

/* ---- connectionist temporal classification ---- */

/* True if a, of n symbols, collapses to the target. */
static bool collapses(const int *a, int n, const int64_t *target, int S, int blank)
{
    int u = 0;
    for (int t = 0; t < n; t++) {
        if (a[t] == blank || (t > 0 && a[t] == a[t - 1])) continue;
        if (u == S || target[u] != a[t]) return false;
        u++;
    }
    return u == S;
}

enum { N = 5, V = 3 };

/* The loss by definition and its gradient with respect to log-probabilities x. */
static double plain_ctc(const double *x, const int64_t *target, int S, int rows, int blank,
                        double *dx)
{
    int a[N] = { 0 }, all = 1;
    double total = 0.0;
    memset(dx, 0, sizeof(double) * N * V);
    for (int t = 0; t < rows; t++) all *= V;
    for (int k = 0; k < all; k++) {
        double p = 0.0;
        for (int t = 0, rest = k; t < rows; t++, rest /= V) p += x[t * V + (a[t] = rest % V)];
        if (!collapses(a, rows, target, S, blank)) continue;
        total += exp(p);
        for (int t = 0; t < rows; t++) dx[t * V + a[t]] += exp(p);
    }
    for (int i = 0; i < N * V; i++) dx[i] = total > 0.0 ? -dx[i] / total : 0.0;
    return -log(total);
}

Test(losses_rows, ctc_is_the_sum_over_alignments)
{
    static const struct {
        int64_t target[3];
        int S, rows, blank;
    } cases[] = {
        { { 1, 2, 1 }, 3, 5, 0 }, { { 1, 1, 0 }, 2, 5, 2 }, { { 2, 2, 2 }, 3, 5, 0 },
        { { 0, 0, 0 }, 0, 4, 1 }, { { 2, 0, 0 }, 1, 1, 1 }, { { 2, 2, 0 }, 2, 2, 0 },
        { { 1, 0, 0 }, 1, 0, 2 }, { { 0, 0, 0 }, 0, 0, 0 },
    };
    world s = begin(1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int dt = TP_F32; dt <= TP_F64; dt++) {
            double x[N * V], want_dx[N * V], dx[N * V];
            const int64_t rows = cases[i].rows, S = cases[i].S;
            values_random(x, N * V, 10 + i);
            for (int k = 0; k < N * V; k++) x[k] = (double)(float)(2.0 * x[k] - 2.0);
            const double want =
                plain_ctc(x, cases[i].target, cases[i].S, cases[i].rows, cases[i].blank, want_dx);
            const tp_tensor tx = values_input(s.T, (tp_dtype)dt, TP_SHAPE(1, N, V), x);
            const tp_tensor loss = tp_ctc(
                s.T, tx, tp_from(s.T, TP_I64, TP_SHAPE(1, 3), cases[i].target),
                tp_from(s.T, TP_I64, TP_SHAPE(1), &rows), tp_from(s.T, TP_I64, TP_SHAPE(1), &S),
                (tp_ctc_cfg){ .blank = cases[i].blank }, TP_SUM);
            const double got = tp_item(s.T, loss), limit = dt == TP_F32 ? 1e-6 : 1e-14;
            tp_backward(s.T, loss);
            values_read(s.T, tp_grad(s.T, tx), dx);
            cr_expect(tp_ok(s.T), "%s", tp_why(s.T));
            cr_expect_leq(values_error(&got, &want, 1, 1.0), limit, "case %zu: %.17g, not %.17g", i,
                          got, want);
            cr_expect_leq(values_error(dx, want_dx, N * V, 1.0), limit, "case %zu: gradient", i);
            tp_reset(s.T);
        }
    end(&s);
}

/* Probabilities far below the smallest float; f32 agrees with f64 to a few roundings per row, with
 * the same bits on any number of threads. */
Test(losses_rows, ctc_of_long_and_unlikely_targets)
{
    enum { B = 3, LONG = 700, CLASSES = 9, LABELS = 120 };
    static double x[B * LONG * CLASSES], dx[3][B * LONG * CLASSES];
    static int32_t target[B * LABELS];
    const int32_t lengths[B] = { LABELS, 17, LABELS };
    double loss[3];
    values_random(x, B * LONG * CLASSES, 1);
    for (int i = 0; i < B * LONG * CLASSES; i++) x[i] = (double)(float)(6.0 * x[i] - 20.0);
    for (int i = 0; i < B * LABELS; i++) target[i] = 1 + i * 7919 % (CLASSES - 1);
    for (int k = 0; k < 3; k++) {
        const tp_dtype dt = k == 2 ? TP_F64 : TP_F32;
        world s = begin(k == 1 ? 7 : 1);
        const tp_tensor tx = values_input(s.T, dt, TP_SHAPE(B, LONG, CLASSES), x);
        const tp_tensor y =
            tp_ctc(s.T, tx, tp_from(s.T, TP_I32, TP_SHAPE(B, LABELS), target), TP_NONE,
                   tp_from(s.T, TP_I32, TP_SHAPE(B), lengths), (tp_ctc_cfg){ 0 }, TP_SUM);
        loss[k] = tp_item(s.T, y);
        tp_backward(s.T, y);
        values_read(s.T, tp_grad(s.T, tx), dx[k]);
        cr_expect(tp_ok(s.T), "%s", tp_why(s.T));
        end(&s);
    }
    cr_expect_gt(loss[2], 3e4);
    cr_expect_leq(fabs(loss[0] - loss[2]), 1e-6 * loss[2], "%g and %g", loss[0], loss[2]);
    const double off = values_error(dx[0], dx[2], B * LONG * CLASSES, 1.0);
    cr_expect_leq(off, 5e-4, "the gradient is off by %g", off);
    cr_expect_eq(loss[0], loss[1]);
    cr_expect_arr_eq(dx[0], dx[1], sizeof dx[0], "7 threads give different bits");
}

Test(losses_rows, ctc_without_an_alignment)
{
    world s = begin(1);
    const double x[2 * 2 * 3] = { -1, -2, -3, -1, -2, -3, -1, -2, -3, -1, -2, -3 };
    const int64_t target[2 * 2] = { 1, 1, 1, 2 },
                             lengths[2] = { 2, 2 }; /* 1 _ 1 needs three rows */
    for (int zero = 0; zero < 2; zero++) {
        double each[2], dx[12];
        const tp_tensor tx = values_input(s.T, TP_F64, TP_SHAPE(2, 2, 3), x);
        const tp_tensor y = tp_ctc(s.T, tx, tp_from(s.T, TP_I64, TP_SHAPE(2, 2), target), TP_NONE,
                                   tp_from(s.T, TP_I64, TP_SHAPE(2), lengths),
                                   (tp_ctc_cfg){ .zero_infinity = zero }, TP_EACH);
        values_read(s.T, y, each);
        tp_backward(s.T, tp_sum(s.T, y, TP_ALL));
        values_read(s.T, tp_grad(s.T, tx), dx);
        cr_expect_eq(each[0], zero ? 0.0 : INFINITY);
        cr_expect_float_eq(each[1], 5.0, 1e-12);
        for (int i = 0; i < 6; i++) cr_expect_eq(dx[i], 0.0);
        cr_expect_float_eq(dx[7], -1.0, 1e-12);
        tp_reset(s.T);
    }
    end(&s);
}

/* ---- places without a slope ---- */

Test(losses_rows, degenerate_rows)
{
    world s = begin(1);
    const double zeros[6] = { 0 }, x[6] = { 0.5, -1, 2, 0, 0, 0 };
    double dx[6], c[2];
    tp_tensor a = values_input(s.T, TP_F64, TP_SHAPE(2, 3), x);
    tp_tensor b = values_constant(s.T, TP_F64, TP_SHAPE(2, 3), x);
    tp_tensor y = tp_cosine_similarity(s.T, a, b, 1e-8);
    values_read(s.T, y, c);
    cr_expect_float_eq(c[0], 1.0, 1e-15);
    cr_expect_eq(c[1], 0.0, "two zero vectors");
    tp_backward(s.T, tp_sum(s.T, y, TP_ALL));
    values_read(s.T, tp_grad(s.T, a), dx);
    for (int i = 0; i < 6; i++) cr_expect_float_eq(dx[i], 0.0, 1e-15);

    a = values_input(s.T, TP_F64, TP_SHAPE(2, 3), zeros);
    b = values_constant(s.T, TP_F64, TP_SHAPE(2, 3), zeros);
    y = tp_dice(s.T, a, b, 1, 0.0, TP_SUM);
    cr_expect_eq(tp_item(s.T, y), 0.0, "no mask, and none predicted");
    tp_backward(s.T, y);
    values_read(s.T, tp_grad(s.T, a), dx);
    for (int i = 0; i < 6; i++) cr_expect_eq(dx[i], 0.0);

    for (int p = 1; p <= 3; p++) {
        a = values_input(s.T, TP_F64, TP_SHAPE(2, 3), zeros);
        y = tp_triplet_margin(s.T, a, b, b, (tp_triplet_cfg){ 1.0, p, true }, TP_MEAN);
        cr_expect_float_eq(tp_item(s.T, y), 1.0, 1e-15, "equal vectors leave the margin");
        tp_backward(s.T, y);
        values_read(s.T, tp_grad(s.T, a), dx);
        for (int i = 0; i < 6; i++) cr_expect(isfinite(dx[i]), "p %d: %g", p, dx[i]);
    }
    const tp_tensor none = tp_input(s.T, TP_F64, TP_SHAPE(0, 3), NULL);
    cr_expect_eq(tp_item(s.T, tp_dice(s.T, none, none, 1, 0.0, TP_MEAN)), 0.0);
    cr_expect_eq(tp_item(s.T, tp_nll(s.T, none, tp_from(s.T, TP_I32, TP_SHAPE(0), NULL), TP_MEAN)),
                 0.0);
    cr_expect(tp_ok(s.T), "%s", tp_why(s.T));
    end(&s);
}

/* Logits beyond the range of exponentials, and targets of both kinds against one-hot ones of
 * tp_focal. */
Test(losses_rows, focal_of_extreme_logits)
{
    static const float logits[6] = { 200, -200, 1e30F, -1e30F, 50, -50 };
    static const int32_t target[3] = { 0, 2, 1 };
    static const float hot[6] = { 1, 0, 0, 0, 0, 1 };
    for (int gamma = 0; gamma <= 3; gamma++) {
        world s = begin(1);
        double loss[2], dx[2][6];
        for (int k = 0; k < 2; k++) {
            const tp_tensor x = tp_input(s.T, TP_F32, TP_SHAPE(3, 2), logits);
            const tp_tensor t = k ? tp_from(s.T, TP_I32, TP_SHAPE(3), target)
                                  : tp_from(s.T, TP_F32, TP_SHAPE(3, 2), hot);
            const tp_tensor y = tp_focal(s.T, x, t, 0.25, gamma, TP_SUM);
            loss[k] = tp_item(s.T, y);
            tp_backward(s.T, y);
            values_read(s.T, tp_grad(s.T, x), dx[k]);
        }
        cr_expect_float_eq(loss[0] / loss[1], 1.0, 1e-5, "gamma %d: %g, %g", gamma, loss[0],
                           loss[1]);
        for (int i = 0; i < 6; i++)
            cr_expect_float_eq(dx[0][i], dx[1][i], 1e-5, "gamma %d, %d: %g, %g", gamma, i, dx[0][i],
                               dx[1][i]);
        cr_expect(tp_ok(s.T), "%s", tp_why(s.T));
        end(&s);
    }
}

/* Equal corners (halved gradient), a box without area, and one that touches its target. */
Test(losses_rows, giou_of_special_boxes)
{
    world s = begin(1);
    static const double box[16] = { 0, 0, 2, 2, 1, 1, 1, 1, 0, 0, 1, 1, 0, 0, 4, 2 };
    static const double goal[16] = { 0, 0, 2, 2, 0, 0, 2, 2, 1, 0, 2, 1, 5, 0, 9, 2 };
    double loss[4], dx[16];
    const tp_tensor x = tp_input(s.T, TP_F64, TP_SHAPE(4, 4), box);
    const tp_tensor y = tp_giou(s.T, x, tp_from(s.T, TP_F64, TP_SHAPE(4, 4), goal), 0.0, TP_EACH);
    static const double expected[4] = { 0, 1, 1, 1 + 2.0 / 18 };
    values_read(s.T, y, loss);
    for (int i = 0; i < 4; i++) cr_expect_float_eq(loss[i], expected[i], 1e-15, "%d", i);
    tp_backward(s.T, tp_sum(s.T, y, TP_ALL));
    values_read(s.T, tp_grad(s.T, x), dx);
    for (int i = 0; i < 16; i++) cr_expect(isfinite(dx[i]), "%d: %g", i, dx[i]);
    cr_expect_float_eq(dx[0], -dx[2], 1e-15, "symmetric");
    cr_expect(tp_ok(s.T), "%s", tp_why(s.T));
    end(&s);
}

/* ---- messages ---- */

Test(losses_rows, messages)
{
    world s = begin(1);
    static const float zeros[24];
    static const int64_t ones[6] = { 1, 1, 1, 1, 1, 1 }, large[2] = { 1, 4 }, many[2] = { 3, 4 };
    static const char *const expected[] = {
        "nll: target 4 in row 1, but there are 3 classes",
        "nll: target must be i32 or i64, not f32",
        "nll: target must have the axes of x without the last one, the classes",
        "cosine_similarity: inputs differ in shape; tp_expand repeats one along an axis",
        "cosine_similarity: eps must be in (0,1], not 0",
        "triplet_margin: p must be in [1,16], not 0.5",
        "dice: axes must be in [0,2], the number of axes of x, not 3",
        "dice: smooth must not be negative or infinite: -1",
        "ctc: x must be [B,N,V], V > 0: batch, time, classes",
        "ctc: target must be [2,S], padded",
        "ctc: target_lengths must be [2], one for each row of the batch",
        "ctc: blank must be in [0,3), not 3",
        "ctc: target_lengths[1] is 4; it must be in [0,3]",
        "ctc: x_lengths[0] is 3; it must be in [0,2]",
        "ctc: target[0,0] is 1; labels are in [0,3) without the blank, 1",
        "ctc: unknown reduction 7",
        "focal_class: target 4 in row 1, but classes end at 3, the background",
        "focal_class: a target of classes must have the axes of x without the last one",
        "focal_class: gamma must be in [0,100], not -1",
        "giou: boxes have four corners along the last axis",
        "giou: x and target differ in shape",
        "giou: eps must be in [0,1], not -1",
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        tp_tape *T = s.T;
        const tp_tensor x = tp_input(T, TP_F32, TP_SHAPE(2, 3), zeros);
        const tp_tensor turned = tp_input(T, TP_F32, TP_SHAPE(3, 2), zeros);
        const tp_tensor box = tp_input(T, TP_F32, TP_SHAPE(2, 2, 3), zeros);
        const tp_tensor corners = tp_input(T, TP_F32, TP_SHAPE(2, 4), zeros);
        const tp_tensor ids = tp_from(T, TP_I64, TP_SHAPE(2, 3), ones);
        const tp_tensor one = tp_from(T, TP_I64, TP_SHAPE(2), ones);
        const tp_tensor four = tp_from(T, TP_I64, TP_SHAPE(2), large);
        const tp_tensor rows = tp_from(T, TP_I64, TP_SHAPE(2), many);
        const tp_ctc_cfg cfg = { .blank = i == 11 ? 3 : i == 14 ? 1 : 0 };
        switch (i) {
        case 0: tp_nll(T, x, four, TP_SUM); break;
        case 1: tp_nll(T, x, x, TP_SUM); break;
        case 2: tp_nll(T, x, ids, TP_SUM); break;
        case 3: tp_cosine_similarity(T, x, turned, 1e-8); break;
        case 4: tp_cosine_similarity(T, x, x, 0.0); break;
        case 5: tp_triplet_margin(T, x, x, x, (tp_triplet_cfg){ .p = 0.5 }, TP_SUM); break;
        case 6: tp_dice(T, x, x, 3, 1.0, TP_SUM); break;
        case 7: tp_dice(T, x, x, 1, -1.0, TP_SUM); break;
        case 8: tp_ctc(T, x, ids, TP_NONE, one, cfg, TP_SUM); break;
        case 9: tp_ctc(T, box, one, TP_NONE, one, cfg, TP_SUM); break;
        case 10: tp_ctc(T, box, ids, TP_NONE, ids, cfg, TP_SUM); break;
        case 12: tp_ctc(T, box, ids, TP_NONE, four, cfg, TP_SUM); break;
        case 13: tp_ctc(T, box, ids, rows, one, cfg, TP_SUM); break;
        case 16: tp_focal(T, x, four, 0.25, 2.0, TP_SUM); break;
        case 17: tp_focal(T, x, ids, 0.25, 2.0, TP_SUM); break;
        case 18: tp_focal(T, x, one, 0.25, -1.0, TP_SUM); break;
        case 19: tp_giou(T, x, x, 1e-7, TP_SUM); break;
        case 20: tp_giou(T, x, turned, 1e-7, TP_SUM); break;
        case 21: tp_giou(T, corners, corners, -1.0, TP_SUM); break;
        case 15: tp_ctc(T, box, ids, TP_NONE, one, cfg, (tp_reduction)7); break;
        default: tp_ctc(T, box, ids, TP_NONE, one, cfg, TP_SUM); break;
        }
        cr_expect_eq(strncmp(tp_why(T), expected[i], strlen(expected[i])), 0, "case %zu: %s", i,
                     tp_why(T));
        tp_clear(T);
        tp_reset(T);
    }
    end(&s);
}
