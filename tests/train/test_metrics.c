/* test_metrics.c - figures of predictions: worked examples, ties, edges; means with intervals. The
 * comparison with scikit-learn is tests/compare/compare_metrics.py. */
#include <criterion/criterion.h>
#include <math.h>
#include <tapegrad/metrics.h>
#include <tapegrad/random.h>

static void expect(double value, double want, const char *what)
{
    cr_expect(isnan(want) ? isnan(value) : fabs(value - want) <= 1e-15, "%s: %.17g, not %.17g",
              what, value, want);
}

/* scikit-learn 1.x gives these numbers for the same lists. */
Test(metrics, classes)
{
    const int32_t t[] = { 0, 0, 0, 1, 1, 2, -1 }, p[] = { 0, 0, 1, 1, 0, 1, 2 };
    int64_t count[16] = { 0 }; /* class 3 does not occur, class 2 is never right */
    cr_expect_eq(tp_confusion_add(4, count, 4, t, p), 0);
    cr_expect_eq(tp_confusion_add(4, count, 3, t + 4, p + 4), 0, "parts add up");
    cr_expect_eq(count[0 * 4 + 0], 2);
    cr_expect_eq(count[0 * 4 + 1], 1);
    cr_expect_eq(count[2 * 4 + 1], 1);
    const tp_class_score zero = tp_class_score_of(4, count, 0);
    expect(zero.precision, 2.0 / 3, "precision");
    expect(zero.recall, 2.0 / 3, "recall");
    expect(zero.f1, 2.0 / 3, "f1");
    cr_expect_eq(zero.examples, 3);
    const tp_class_score one = tp_class_score_of(4, count, 1),
                         none = tp_class_score_of(4, count, 3);
    expect(one.precision, 1.0 / 3, "precision of 1");
    expect(one.f1, 0.4, "f1 of 1");
    expect(none.f1, 0.0, "f1 of an absent class");
    expect(tp_class_score_mean(4, count, TP_MACRO).f1, (2.0 / 3 + 0.4) / 4, "macro");
    expect(tp_class_score_mean(4, count, TP_MICRO).f1, 0.5, "micro");
    expect(tp_class_score_mean(4, count, TP_BY_FREQUENCY).f1, (3 * 2.0 / 3 + 2 * 0.4) / 6,
           "weighted");
    expect(tp_accuracy(4, count), 0.5, "accuracy");
    expect(tp_balanced_accuracy(4, count), (2.0 / 3 + 0.5 + 0.0) / 3, "balanced");
}

Test(metrics, edges_of_classes)
{
    int64_t count[4] = { 0 };
    const int32_t t[] = { 2, 0, 1 }, p[] = { 0, -1, 1 };
    expect(tp_accuracy(2, count), NAN, "accuracy of nothing");
    expect(tp_balanced_accuracy(2, count), NAN, "balanced accuracy of nothing");
    expect(tp_class_score_mean(2, count, TP_MACRO).precision, 0.0, "precision of nothing");
    cr_expect_eq(tp_confusion_add(2, count, 3, t, p), 2, "two are no classes");
    cr_expect_eq(count[3], 1);
    cr_expect(isnan(tp_class_score_of(2, count, 2).f1) && isnan(tp_class_score_of(2, NULL, 0).f1));
    cr_expect_eq(tp_confusion_add(2, NULL, 3, t, p), 0);
}

Test(metrics, area_under_the_curve)
{
    const double s[] = { 0.1, 0.4, 0.35, 0.8, 0.4 }, same[] = { 1, 1, 1, 1, 1 };
    const double bad[] = { 0.1, NAN, 0.35, 0.8, 0.4 };
    const bool y[] = { false, false, true, true, true }, all[] = { true, true, true, true, true };
    expect(tp_auc(5, s, y), (1 + 0.5 + 1 + 2) / 6, "a tie counts half");
    expect(tp_auc(5, same, y), 0.5, "all equal");
    expect(tp_auc(5, s, all), NAN, "one class");
    expect(tp_auc(5, bad, y), NAN, "NaN");
    expect(tp_auc(0, s, y), NAN, "nothing");
    expect(tp_auc(5, NULL, y), NAN, "NULL");
}

Test(metrics, perplexity)
{
    expect(tp_perplexity(0, 3), 1.0, "certain");
    expect(tp_perplexity(3 * log(2.0), 3) - 2.0, 0.0, "two choices");
    expect(tp_perplexity(1, 0), NAN, "nothing");
    cr_expect(isinf(tp_perplexity(1e6, 1)));
}

/* The quantiles of the normal distribution are tabulated: 1.959964 for 95 %, 2.575829 for 99 %. */
Test(metrics, normal_interval)
{
    const double x[] = { 1, 2, 3, 4, 10 }, error = sqrt(50.0 / 4 / 5);
    static const double level[] = { 0.95, 0.99, 0.5, 0.999999 };
    static const double z[] = { 1.9599639845400543, 2.5758293035489004, 0.67448975019608171,
                                4.8916384756985808 };
    for (int i = 0; i < 4; i++) {
        const tp_interval v = tp_interval_normal(5, x, level[i]);
        cr_expect_float_eq(v.mean, 4.0, 1e-15);
        cr_expect_float_eq(v.high - 4.0, z[i] * error, 1e-9, "%.9g", (v.high - 4.0) / error);
        cr_expect_float_eq(4.0 - v.low, z[i] * error, 1e-9);
    }
    cr_expect(isnan(tp_interval_normal(1, x, 0.95).low) &&
              isnan(tp_interval_normal(5, x, 1.0).low));
    cr_expect_eq(tp_interval_normal(1, x, 0.95).mean, 1.0);
    cr_expect(isnan(tp_interval_normal(0, NULL, 0.95).mean));
}

/* For many numbers both intervals agree; a seed gives the same one. */
Test(metrics, bootstrap_interval)
{
    enum { N = 400 };
    double x[N];
    tp_random r = tp_random_stream(3, "test", 0, 0);
    for (int i = 0; i < N; i++) x[i] = (double)tp_random_below(&r, 1000) / 1000.0;
    const tp_interval v = tp_interval_bootstrap(N, x, 0.95, 4000, 1);
    const tp_interval w = tp_interval_normal(N, x, 0.95);
    const tp_interval again = tp_interval_bootstrap(N, x, 0.95, 4000, 1);
    cr_expect_eq(v.mean, w.mean);
    cr_expect_float_eq(v.low, w.low, 0.003);
    cr_expect_float_eq(v.high, w.high, 0.003);
    cr_expect(v.low == again.low && v.high == again.high);
    cr_expect_neq(tp_interval_bootstrap(N, x, 0.95, 4000, 2).low, v.low);
    cr_expect(isnan(tp_interval_bootstrap(N, x, 0.95, 1, 1).low));
    cr_expect(isnan(tp_interval_bootstrap(1, x, 0.95, 100, 1).low));
    x[0] = NAN;
    cr_expect(isnan(tp_interval_bootstrap(N, x, 0.95, 100, 1).low));
}
