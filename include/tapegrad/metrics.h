/* metrics.h - figures of predictions, from arrays in host memory: confusions, accuracy, precision,
 * recall, F1, area under the ROC curve, perplexity, means with intervals.
 *
 * Nothing here knows devices or tapes: tp_read copies predictions. Sums of integers are exact, so
 * parts of a set, and of processes, add up to the same figures as the whole. The functions neither
 * fail nor print; what cannot be computed is NaN. */
#ifndef TAPEGRAD_METRICS_H
#define TAPEGRAD_METRICS_H

#include <tapegrad/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- classes ---- */

/* Adds n predictions to count [classes,classes], which begins as zeros: count[t * classes + p] is
 * the number of examples of class t that are predicted as p. Examples with a negative target are
 * not counted. Returns the number of the others whose target or prediction is no class; they are
 * not counted either, and should be 0. */
TP_API int64_t tp_confusion_add(int32_t classes, int64_t *count, int64_t n, const int32_t *target,
                                const int32_t *predicted);

/* How figures of classes are joined, as in scikit-learn with labels=range(classes) and
 * zero_division=0. */
typedef enum tp_class_mean {
    TP_MACRO,       /* the mean over all classes, also those without examples */
    TP_MICRO,       /* from the sums over classes: the accuracy, as each example has one class */
    TP_BY_FREQUENCY /* weighted by the examples of each class: scikit-learn's "weighted" */
} tp_class_mean;

/* One class, or a mean. precision: right predictions / predictions of the class; recall: right ones
 * / examples of the class; f1: 2 precision recall / (precision + recall). Each is 0 where it would
 * be 0 / 0. For two classes, those of class 1 are scikit-learn's average="binary". */
typedef struct tp_class_score {
    double precision, recall, f1;
    int64_t examples; /* of the class, or all */
} tp_class_score;
TP_API tp_class_score tp_class_score_of(int32_t classes, const int64_t *count, int32_t class_);
TP_API tp_class_score tp_class_score_mean(int32_t classes, const int64_t *count,
                                          tp_class_mean mean);
/* Right predictions / examples; NaN without examples. */
TP_API double tp_accuracy(int32_t classes, const int64_t *count);
/* The mean recall of the classes that have examples; NaN without any. */
TP_API double tp_balanced_accuracy(int32_t classes, const int64_t *count);

/* Area under the ROC curve: the probability that a positive example has a higher score than a
 * negative one; equal scores count half. NaN if one of the kinds is absent, if a score is NaN, or
 * without memory for n numbers. */
TP_API double tp_auc(int64_t n, const double *score, const bool *positive);

/* ---- means ---- */

/* e^(sum / terms) of a sum of negative log-likelihoods in nats: of tokens, characters ..; infinity
 * if it is too large for a double; NaN without terms. */
TP_API double tp_perplexity(double sum, double terms);

typedef struct tp_interval {
    double mean, low, high;
} tp_interval;
/* The mean of x [n] and an interval that covers the true one with probability `level`, in (0,1),
 * such as 0.95. tp_interval_normal: mean -+ z s / sqrt(n), s the standard deviation with n - 1, for
 * many numbers. tp_interval_bootstrap: quantiles of the means of `draws` samples of n numbers,
 * drawn with replacement from a stream of `seed` (percentiles; Efron 1979), interpolated as
 * numpy.quantile does; 1000 draws are usual. It needs no normal means. NaN for low and high if n <
 * 2, or if level or draws are impossible, or without memory for draws. */
TP_API tp_interval tp_interval_normal(int64_t n, const double *x, double level);
TP_API tp_interval tp_interval_bootstrap(int64_t n, const double *x, double level, int64_t draws,
                                         uint64_t seed);

#ifdef __cplusplus
}
#endif
#endif
