/* assign.h - assignment of boxes to objects for training: matching and sampling (detection
 * library). */
#ifndef TAPEGRAD_DETECTION_ASSIGN_H
#define TAPEGRAD_DETECTION_ASSIGN_H

#include <tapegrad/detection/boxes.h>
#include <tapegrad/random.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TP_MATCH_THRESHOLDS = 4 };

/* The label of a box follows from v, its largest intersection over union (IoU) with an object:
 * label[0] if v < threshold[0], label[i] if threshold[i-1] <= v < threshold[i], else
 * label[thresholds]. */
typedef struct tp_matcher {
    int thresholds;
    double threshold[TP_MATCH_THRESHOLDS]; /* ascending */
    int label[TP_MATCH_THRESHOLDS + 1];    /* 1 object, 0 background, -1 ignored */
    bool low_quality; /* the boxes with the largest IoU of each object get label 1, too */
    /* With low_quality. true (mmdetection): these boxes are also matched to that object, in the
     * order of the objects. false: they keep the object that they overlap most. */
    bool overwrite;
    double least; /* with overwrite: objects whose largest IoU is below this are left out */
} tp_matcher;

/* The published matchers: for anchors of RetinaNet, for anchors of region proposals, and for
 * proposals of box heads. */
TP_API tp_matcher tp_matcher_retinanet(tp_detection_profile profile);
TP_API tp_matcher tp_matcher_rpn(tp_detection_profile profile);
TP_API tp_matcher tp_matcher_roi(void);

/* From the IoU of all objects with n boxes, iou [objects,n]: match [n], the object with which each
 * box has the largest IoU (the first of equals; 0 if there are no objects), and label [n]. With
 * low_quality, an object that overlaps no box has a largest IoU of 0, so that all n boxes are its
 * best ones. */
TP_API void tp_match(const tp_matcher *m, const double *iou, int64_t objects, int64_t n,
                     int64_t *match, int *label);

/* The same from objects and boxes, without the matrix of objects x n doubles: it is computed in
 * blocks, those with an object's largest IoU twice. False: out of memory. */
TP_API bool tp_match_boxes(const tp_matcher *m, const tp_corners *object, int64_t objects,
                           const tp_corners *box, int64_t n, int64_t *match, int *label);

/* How n elements are taken from a list of k: the first n of a random permutation; evenly, element i
 * being list[floor((i + 1) k / n) - 1]; or the first n. */
typedef enum tp_sampling { TP_SAMPLE_RANDOM, TP_SAMPLE_EVEN, TP_SAMPLE_FIRST } tp_sampling;

typedef struct tp_box_sampler {
    int64_t samples;
    double positive; /* largest fraction of boxes with objects */
    tp_sampling how;
    /* TP_SAMPLE_RANDOM: the permutations of boxes with objects and of background; NULL: they are
     * drawn. */
    const int64_t *order[2];
} tp_box_sampler;

/* Samples boxes by their labels [n]: first boxes with objects (labels other than `background` and
 * -1), then background. index has room for `samples`. Returns the number of sampled boxes and
 * stores in *objects how many of them have objects; -1: out of memory. r may be NULL unless
 * permutations are drawn. */
TP_API int64_t tp_sample_boxes(const tp_box_sampler *s, const int *label, int64_t n, int background,
                               tp_random *r, int64_t *index, int64_t *objects);

#ifdef __cplusplus
}
#endif
#endif
