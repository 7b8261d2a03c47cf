/* metrics_figures.c - computes the figures of <tapegrad/metrics.h> for compare_metrics.py.
 *
 * Standard input: "classes n", then n lines "target prediction score". Standard output: a line with
 * accuracy, balanced accuracy, the area under the ROC curve of the targets above 0, and precision,
 * recall and F1 of each kind of mean, then of each class. */
#include <stdio.h>
#include <stdlib.h>

#include <tapegrad/metrics.h>

static void print_score(tp_class_score s)
{
    printf(" %.17g %.17g %.17g", s.precision, s.recall, s.f1);
}

static bool print_case(int32_t classes, long long n)
{
    int64_t *count = calloc((size_t)classes * (size_t)classes, sizeof *count);
    double *score = malloc((size_t)n * sizeof *score + 1);
    bool *positive = malloc((size_t)n + 1);
    bool ok = count && score && positive;
    for (long long i = 0; ok && i < n; i++) {
        int t, p;
        ok = scanf("%d %d %lf", &t, &p, &score[i]) == 3;
        if (!ok) break;
        positive[i] = t > 0;
        ok = tp_confusion_add(classes, count, 1, &(int32_t){ t }, &(int32_t){ p }) == 0;
    }
    if (ok) {
        printf("%.17g %.17g %.17g", tp_accuracy(classes, count),
               tp_balanced_accuracy(classes, count), tp_auc(n, score, positive));
        print_score(tp_class_score_mean(classes, count, TP_MACRO));
        print_score(tp_class_score_mean(classes, count, TP_MICRO));
        print_score(tp_class_score_mean(classes, count, TP_BY_FREQUENCY));
        for (int32_t k = 0; k < classes; k++) print_score(tp_class_score_of(classes, count, k));
        printf("\n");
    }
    free(count);
    free(score);
    free(positive);
    return ok;
}

int main(void)
{
    int classes;
    long long n;
    while (scanf("%d %lld", &classes, &n) == 2)
        if (classes < 1 || n < 0 || !print_case(classes, n)) return 1;
    return 0;
}
