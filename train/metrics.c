/* metrics.c - figures of predictions, by their definitions. */
#include <math.h>
#include <stdlib.h>
#include <tapegrad/metrics.h>
#include <tapegrad/random.h>

/* ---- classes ---- */

int64_t tp_confusion_add(int32_t classes, int64_t *count, int64_t n, const int32_t *target,
                         const int32_t *predicted)
{
    int64_t bad = 0;
    for (int64_t i = 0; count && target && predicted && i < n; i++) {
        const int32_t t = target[i], p = predicted[i];
        if (t < 0) continue;
        if (t < classes && p >= 0 && p < classes)
            count[(int64_t)t * classes + p]++;
        else
            bad++;
    }
    return bad;
}

static double ratio(double part, double of)
{
    return of > 0.0 ? part / of : 0.0;
}

tp_class_score tp_class_score_of(int32_t classes, const int64_t *count, int32_t class_)
{
    int64_t examples = 0, predictions = 0;
    if (!count || class_ < 0 || class_ >= classes) return (tp_class_score){ NAN, NAN, NAN, 0 };
    for (int32_t k = 0; k < classes; k++) {
        examples += count[(int64_t)class_ * classes + k];
        predictions += count[(int64_t)k * classes + class_];
    }
    const double right = (double)count[(int64_t)class_ * classes + class_];
    return (tp_class_score){ .precision = ratio(right, (double)predictions),
                             .recall = ratio(right, (double)examples),
                             .f1 = ratio(2.0 * right, (double)predictions + (double)examples),
                             .examples = examples };
}

tp_class_score tp_class_score_mean(int32_t classes, const int64_t *count, tp_class_mean mean)
{
    tp_class_score sum = { 0.0, 0.0, 0.0, 0 };
    int64_t right = 0;
    double weights = 0.0;
    for (int32_t k = 0; count && k < classes; k++) {
        const tp_class_score s = tp_class_score_of(classes, count, k);
        const double weight = mean == TP_MACRO ? 1.0 : (double)s.examples;
        sum.precision += weight * s.precision;
        sum.recall += weight * s.recall;
        sum.f1 += weight * s.f1;
        sum.examples += s.examples;
        weights += weight;
        right += count[(int64_t)k * classes + k];
    }
    const double micro = ratio((double)right, (double)sum.examples);
    if (mean == TP_MICRO) return (tp_class_score){ micro, micro, micro, sum.examples };
    sum.precision = ratio(sum.precision, weights);
    sum.recall = ratio(sum.recall, weights);
    sum.f1 = ratio(sum.f1, weights);
    return sum;
}

double tp_accuracy(int32_t classes, const int64_t *count)
{
    const tp_class_score s = tp_class_score_mean(classes, count, TP_MICRO);
    return s.examples > 0 ? s.recall : (double)NAN;
}

double tp_balanced_accuracy(int32_t classes, const int64_t *count)
{
    int64_t present = 0;
    double sum = 0.0;
    for (int32_t k = 0; count && k < classes; k++) {
        const tp_class_score s = tp_class_score_of(classes, count, k);
        if (s.examples > 0) sum += s.recall;
        present += s.examples > 0;
    }
    return present > 0 ? sum / (double)present : (double)NAN;
}

/* ---- area under the curve ---- */

typedef struct scored {
    double score;
    bool positive;
} scored;

static int by_score(const void *a, const void *b)
{
    const double x = ((const scored *)a)->score, y = ((const scored *)b)->score;
    return (x > y) - (x < y);
}

/* Pairs in which the positive example is above, an equal one counting half, of examples in order;
 * below, here: negatives with smaller and with the same score. */
static double pairs_above(const scored *s, int64_t n)
{
    double pairs = 0.0, below = 0.0;
    for (int64_t first = 0, end; first < n; first = end) {
        double positives = 0.0, negatives = 0.0;
        for (end = first; end < n && s[end].score == s[first].score; end++)
            *(s[end].positive ? &positives : &negatives) += 1.0;
        pairs += positives * (below + 0.5 * negatives);
        below += negatives;
    }
    return pairs;
}

double tp_auc(int64_t n, const double *score, const bool *positive)
{
    double positives = 0.0;
    bool whole = n > 0 && score && positive && (uint64_t)n <= SIZE_MAX / sizeof(scored);
    scored *s = whole ? malloc((size_t)n * sizeof *s) : NULL;
    for (int64_t i = 0; s && i < n; i++) {
        s[i] = (scored){ score[i], positive[i] };
        positives += positive[i];
        whole = whole && score[i] == score[i];
    }
    const double negatives = (double)n - positives;
    whole = whole && s && positives > 0.0 && negatives > 0.0;
    if (whole) qsort(s, (size_t)n, sizeof *s, by_score);
    const double area = whole ? pairs_above(s, n) / (positives * negatives) : (double)NAN;
    free(s);
    return area;
}

/* ---- means ---- */

double tp_perplexity(double sum, double terms)
{
    return terms > 0.0 ? exp(sum / terms) : (double)NAN;
}

static double mean_of(int64_t n, const double *x)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    return n > 0 ? sum / (double)n : (double)NAN;
}

/* z with probability p below it, in (1/2, 1): Newton's iteration on the normal distribution, which
 * is concave there, so that it climbs from 0. */
static double normal_quantile(double p)
{
    const double root_two_pi = 2.5066282746310002;
    double z = 0.0;
    for (int i = 0; i < 200; i++) {
        const double above = 0.5 * erfc(z / sqrt(2.0)); /* 1 - F(z), exact far out */
        const double by = (above - (1.0 - p)) * root_two_pi * exp(0.5 * z * z);
        z += by;
        if (fabs(by) <= 1e-15 * z) break;
    }
    return z;
}

static bool usable(int64_t n, const double *x, double level)
{
    return n >= 2 && x && level > 0.0 && level < 1.0;
}

tp_interval tp_interval_normal(int64_t n, const double *x, double level)
{
    const double mean = x ? mean_of(n, x) : (double)NAN;
    if (!usable(n, x, level)) return (tp_interval){ mean, NAN, NAN };
    double squares = 0.0;
    for (int64_t i = 0; i < n; i++) squares += (x[i] - mean) * (x[i] - mean);
    const double error = sqrt(squares / (double)(n - 1) / (double)n);
    const double by = normal_quantile(0.5 + 0.5 * level) * error;
    return (tp_interval){ mean, mean - by, mean + by };
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Between the two nearest of n sorted numbers. */
static double quantile(const double *sorted, int64_t n, double p)
{
    const double at = p * (double)(n - 1), low = floor(at);
    const int64_t i = (int64_t)low, next = i + 1 < n ? i + 1 : i;
    return sorted[i] + (at - low) * (sorted[next] - sorted[i]);
}

tp_interval tp_interval_bootstrap(int64_t n, const double *x, double level, int64_t draws,
                                  uint64_t seed)
{
    tp_interval v = { x ? mean_of(n, x) : (double)NAN, NAN, NAN };
    const bool possible = draws >= 2 && (uint64_t)draws <= SIZE_MAX / sizeof(double);
    double *means = usable(n, x, level) && possible ? malloc((size_t)draws * sizeof *means) : NULL;
    if (!means) return v;
    for (int64_t k = 0; k < draws; k++) {
        tp_random r = tp_random_stream(seed, "bootstrap", (uint64_t)k, 0);
        double sum = 0.0;
        for (int64_t i = 0; i < n; i++) sum += x[tp_random_below(&r, n)];
        means[k] = sum / (double)n;
    }
    qsort(means, (size_t)draws, sizeof *means, by_value);
    if (v.mean == v.mean) {
        v.low = quantile(means, draws, 0.5 - 0.5 * level);
        v.high = quantile(means, draws, 0.5 + 0.5 * level);
    }
    free(means);
    return v;
}
