/* test_sets.h - scores of ImageNet-1K's classifiers on further test sets: ImageNet-A, -R, -9
 * (backgrounds), -C (corruptions), and labels of several classes, as ReaL's (data library). Classes
 * are numbered in ascending order of their WordNet ids. */
#ifndef TAPEGRAD_TEST_SETS_H
#define TAPEGRAD_TEST_SETS_H

#include <tapegrad/base.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TP_IMAGENET_CLASSES = 1000, TP_CORRUPTIONS = 15, TP_SEVERITIES = 5 };

typedef enum tp_test_set {
    TP_TEST_ALL, /* all classes */
    TP_TEST_A,   /* 200 classes of natural adversarial examples (Hendrycks et al. 2021) */
    TP_TEST_R,   /* 200 classes of renditions (Hendrycks et al. 2021) */
    /* nine superclasses (Xiao et al. 2021): dog, bird, vehicle, reptile, carnivore, insect,
     * instrument, primate, fish */
    TP_TEST_9
} tp_test_set;

/* The number of labels of a set, and the label of class `imagenet` of ImageNet: its place among the
 * set's classes, or its superclass. -1: the set has no such class. */
TP_API int tp_test_set_labels(tp_test_set set);
TP_API int tp_test_set_label(tp_test_set set, int imagenet);

/* The label that logits [1000] predict. A and R: the likeliest of the set's classes, whatever the
 * others. 9: the superclass of the likeliest of all classes, -1 if it has none. Of equal logits the
 * first counts. */
TP_API int tp_test_set_predict(tp_test_set set, const float *logits);

/* True if one of n labels is among the k likeliest of `classes` logits; negative labels are
 * fillers. */
TP_API bool tp_in_top(const float *logits, int64_t classes, int k, const int64_t *labels, int n);

/* Any number of labels for each image of a set, from a JSON array of arrays of class numbers, such
 * as that of ImageNet-ReaL (Beyer et al. 2020), whose entry i is for validation image number i + 1.
 * Initialise it to { 0 }. */
typedef struct tp_label_lists {
    int64_t count;
    int64_t *from, *label; /* image i has label[from[i]] to label[from[i + 1] - 1] */
    char why[512];
} tp_label_lists;

/* Fill l from a file of at most 256 MiB, or from a text of n bytes that messages call `name`. Class
 * numbers must be below `classes`. False with the reason and the byte offset in l->why. Free l in
 * either case. */
TP_API bool tp_label_lists_read(tp_label_lists *l, const char *path, int64_t classes);
TP_API bool tp_label_lists_parse(tp_label_lists *l, const char *name, const char *text, size_t n,
                                 int64_t classes);
TP_API void tp_label_lists_free(tp_label_lists *l);

/* ImageNet-C (Hendrycks, Dietterich 2019): the name of corruption i, NULL past the last. errors:
 * from top-1 errors (0 to 1) for each corruption and severity, relative receives the mean error of
 * each corruption divided by AlexNet's; returns their mean, the mCE. All are fractions, not
 * percent. */
TP_API const char *tp_corruption_name(int i);
TP_API double tp_corruption_errors(const double error[TP_CORRUPTIONS][TP_SEVERITIES],
                                   double relative[TP_CORRUPTIONS]);

#ifdef __cplusplus
}
#endif
#endif
