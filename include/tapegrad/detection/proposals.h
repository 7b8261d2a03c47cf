/* proposals.h - from the outputs of heads to boxes: suppression and selection (detection library).
 *
 * Functions that return a number return -1 if memory runs out. Outputs of heads are floats, as networks give them;
 * what is computed from them is double. A score that is NaN ranks above all numbers, as PyTorch sorts it: it takes a
 * candidate's place even where it is dropped afterwards. */
#ifndef TAPEGRAD_DETECTION_PROPOSALS_H
#define TAPEGRAD_DETECTION_PROPOSALS_H

#include <tapegrad/detection/boxes.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Greedy suppression: boxes by descending score (of equal ones the lower index) drop all later ones of their group
 * that overlap them more than the threshold; mmdetection: at least. Boxes without area overlap nothing. group may be
 * NULL. keep [n] receives the indices that remain, by descending score; returns how many. */
TP_API int64_t tp_nms(const tp_corners *box, const double *score, const int64_t *group, int64_t n,
                      double threshold, tp_detection_profile profile, int64_t *keep);
/* The indices of the k largest scores, descending; of equal ones the lower index first. */
TP_API int64_t tp_top(const double *score, int64_t n, int64_t k, int64_t *index);

/* What heads say about the anchors of one level, for one image. */
typedef struct tp_level {
    const tp_corners *anchor; /* [n]          */
    const float *logit;       /* [n,classes]  */
    const float *offset;      /* [n,4]        */
    int64_t n;
} tp_level;

/* A detection, or a proposal of category 0. */
typedef struct tp_found {
    tp_corners box;
    double score;
    int64_t category, row; /* row: the anchor, counted over all levels, or the proposal */
} tp_found;

typedef struct tp_select_cfg {
    tp_detection_profile profile;
    tp_box_coder coder;    /* `both` follows from the profile                                  */
    int64_t height, width; /* of the image without padding                                     */
    double score;          /* lower ones are dropped. 0.05                                     */
    double overlap;        /* threshold of suppression. 0.5; of region proposals 0.7           */
    int64_t candidates;    /* of each level, before suppression. 1000; training proposals 2000 */
    int64_t most;          /* results. 100; region proposals 1000                              */
    double side;           /* region proposals with a side no longer are dropped. 0            */
    bool one_box;          /* box heads: offsets are shared by all categories                  */
} tp_select_cfg;

/* Region proposals of one image: of each level the best candidates, decoded, clipped; finite ones with sides; suppressed
 * within each level; the best of all. Scores are logits, in mmdetection sigmoids of them. out has room for c->most. */
TP_API int64_t tp_select_proposals(const tp_select_cfg *c, const tp_level *level, int levels,
                                   tp_found *out);

/* Detections of RetinaNet. Of each level the best candidates (anchor and category) with a score above c->score; mmdetection:
 * the best anchors by their best category, with all their categories above it, clipped to the image. Suppressed
 * within each category; the best of all. */
TP_API int64_t tp_select_retinanet(const tp_select_cfg *c, const tp_level *level, int levels,
                                   int64_t classes, tp_found *out);

/* Detections of a box head on n proposals: logits [n,classes + 1] with the background last, offsets [n,classes,4], or
 * [n,4] with one_box. Clipped; rows that are not finite are dropped. */
TP_API int64_t tp_select_boxes(const tp_select_cfg *c, const tp_corners *proposal,
                               const float *logit, const float *offset, int64_t n, int64_t classes,
                               tp_found *out);

/* Scales n detections from a resized image to the original one, clips them and drops those without area. Returns how
 * many remain; sizes are height and width. */
TP_API int64_t tp_to_original(tp_found *found, int64_t n, const int64_t resized[2],
                              const int64_t original[2]);

/* The level from `first` to `last` whose map a region is pooled from: by the root of its area, a region of `canonical`
 * (224) belonging to level 4. mmdetection rounds otherwise at the limits. */
TP_API int tp_region_level(tp_corners region, double canonical, int level, int first, int last,
                           tp_detection_profile profile);

#ifdef __cplusplus
}
#endif
#endif
