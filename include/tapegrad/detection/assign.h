/* assign.h - which boxes learn which objects: matching and sampling (detection library). */
#ifndef TAPEGRAD_DETECTION_ASSIGN_H
#define TAPEGRAD_DETECTION_ASSIGN_H

#include <tapegrad/detection/boxes.h>
#include <tapegrad/random.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TP_MATCH_THRESHOLDS = 4 };

/* A box's label follows from its largest overlap v: label[0] if v < threshold[0], label[i] if threshold[i-1] <= v <
 * threshold[i], else the last one. */
typedef struct tp_matcher {
    int thresholds;
    double threshold[TP_MATCH_THRESHOLDS]; /* ascending                       */
    int label[TP_MATCH_THRESHOLDS + 1];    /* 1 object, 0 background, -1 not counted */
    bool low_quality; /* the boxes that overlap an object most get label 1, too             */
    bool
        overwrite; /* mmdetection: and that object, in the order of the objects. Otherwise they keep the one that
                         they overlap most                                                   */
    double least; /* overwrite: not for objects that no box overlaps that much           */
} tp_matcher;

/* The published ones: anchors of RetinaNet, anchors of region proposals, proposals of heads. */
TP_API tp_matcher tp_matcher_retinanet(tp_detection_profile profile);
TP_API tp_matcher tp_matcher_rpn(tp_detection_profile profile);
TP_API tp_matcher tp_matcher_roi(void);

/* From the overlaps iou [objects,n] of n boxes: match [n], the object that each overlaps most (the first of equal ones,
 * 0 if there are none), and label [n]. An object that no box overlaps makes all boxes of overlap 0 its best ones. */
TP_API void tp_match(const tp_matcher *m, const double *iou, int64_t objects, int64_t n,
                     int64_t *match, int *label);

/* How a sample is taken from a list of k: the first of a random permutation; evenly, element i being
 * list[floor((i + 1) k / n) - 1]; or the first ones. */
typedef enum tp_sampling { TP_SAMPLE_RANDOM, TP_SAMPLE_EVEN, TP_SAMPLE_FIRST } tp_sampling;

typedef struct tp_sampler {
    int64_t samples;
    double positive; /* at most that part of them has objects */
    tp_sampling how;
    const int64_t
        *order[2]; /* random: permutations of objects and background to use; NULL: drawn */
} tp_sampler;

/* Samples boxes by their labels [n]: first those of objects (neither `background` nor -1), then background. index has
 * room for `samples`. Returns how many there are and stores the number of objects; -1: out of memory. r may be NULL
 * unless permutations are drawn. */
TP_API int64_t tp_sample(const tp_sampler *s, const int *label, int64_t n, int background,
                         tp_random *r, int64_t *index, int64_t *objects);

#ifdef __cplusplus
}
#endif
#endif
