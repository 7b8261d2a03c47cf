/* coco_figures.c - evaluates a file of results, for compare_coco.py.
 *
 *     coco_figures ANNOTATIONS RESULTS (boxes|masks)[+box_areas][+one_class] M1 M2 M3
 *
 * Writes the figures, precision, scores and recall to the standard output as doubles, and the
 * evaluation's processor time in seconds, without reading, to the standard error. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tapegrad/coco_eval.h>

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

enum { T = TP_COCO_THRESHOLDS, POINTS = TP_COCO_POINTS, A = TP_COCO_AREAS, M = TP_COCO_LIMITS };

/* Precision, scores [T,R,K,A,M] and recall [T,K,A,M], as in pycocotools. */
static bool write_all(const tp_coco_eval *E, const double *figures)
{
    const size_t K = (size_t)tp_coco_eval_classes(E), n = T * POINTS * K * A * M,
                 recalls = n / POINTS;
    double *x = malloc((2 * n + recalls + 1) * sizeof *x);
    for (size_t i = 0; x && i < recalls; i++) {
        double precision[POINTS], score[POINTS];
        const int m = (int)(i % M), a = (int)(i / M % A), k = (int)(i / M / A % K),
                  t = (int)(i / M / A / K);
        tp_coco_eval_curve(E, k, t, a, m, precision, score);
        for (size_t r = 0; r < POINTS; r++) {
            const size_t at = (((size_t)t * POINTS + r) * K + (size_t)k) * A * M + i % (A * M);
            x[at] = precision[r];
            x[n + at] = score[r];
        }
        x[2 * n + i] = tp_coco_eval_recall(E, k, t, a, m);
    }
    if (x) fwrite(figures, sizeof *figures, TP_COCO_FIGURES, stdout);
    if (x) fwrite(x, sizeof *x, 2 * n + recalls, stdout);
    free(x);
    return x != NULL;
}

int main(int argc, char **argv)
{
    double figures[TP_COCO_FIGURES];
    if (argc != 7) {
        fprintf(stderr, "usage: coco_figures ANNOTATIONS RESULTS MODE M1 M2 M3\n");
        return 2;
    }
    tp_coco *X = tp_coco_open(argv[1]);
    tp_detections *R = tp_detections_open(X, argv[2]);
    const tp_coco_eval_opts o = { .kind = strncmp(argv[3], "masks", 5) == 0 ? TP_COCO_MASKS
                                                                            : TP_COCO_BOXES,
                                  .box_areas = strstr(argv[3], "+box_areas") != NULL,
                                  .one_class = strstr(argv[3], "+one_class") != NULL,
                                  .most = { atoi(argv[4]), atoi(argv[5]), atoi(argv[6]) } };
    const double begin = seconds();
    tp_coco_eval *E = tp_coco_eval_new(R, &o);
    for (int i = 0; i < TP_COCO_FIGURES; i++) figures[i] = tp_coco_eval_figure(E, i);
    const double took = seconds() - begin;
    const bool ok = tp_coco_eval_ok(E) && write_all(E, figures);
    if (ok)
        fprintf(stderr, "%.6f\n", took);
    else
        fprintf(stderr, "%s\n", tp_coco_eval_why(E));
    tp_coco_eval_free(E);
    tp_detections_close(R);
    tp_coco_close(X);
    return !ok;
}
