/* proposals.h - from the outputs of heads to boxes: selection and non-maximum suppression, NMS
 * (detection library).
 *
 * Functions that return a count return -1 if memory runs out. The outputs of heads are floats;
 * everything computed from them is double. A NaN score ranks above all numbers, as PyTorch sorts
 * it: it takes the place of a candidate even if it is dropped afterwards. */
#ifndef TAPEGRAD_DETECTION_PROPOSALS_H
#define TAPEGRAD_DETECTION_PROPOSALS_H

#include <tapegrad/detection/boxes.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Greedy non-maximum suppression (NMS). Boxes are visited by descending score (of equal scores, the
 * lower index first). A box that is kept drops all later boxes of its group whose intersection over
 * union (IoU) with it is above the threshold (mmdetection: at or above). Boxes without area overlap
 * no box. group may be NULL. keep [n] receives the indices that remain, by descending score;
 * returns their number. */
TP_API int64_t tp_nms(const tp_corners *box, const double *score, const int64_t *group, int64_t n,
                      double threshold, tp_detection_profile profile, int64_t *keep);
/* The indices of the k largest of n scores, descending; of equal scores, the lower index first.
 * Returns how many. */
TP_API int64_t tp_top_scores(const double *score, int64_t n, int64_t k, int64_t *index);

/* The outputs of the heads for the anchors of one level, for one image. */
typedef struct tp_level {
    const tp_corners *anchor; /* [n] */
    const float *logit;       /* [n,classes] */
    const float *offset;      /* [n,4] */
    int64_t n;
} tp_level;

/* A detection, or a proposal of category 0. */
typedef struct tp_found {
    tp_corners box;
    double score;
    int64_t category, row; /* row: the anchor, counted over all levels, or the proposal */
} tp_found;

/* Published values are in brackets; the functions have no defaults. */
typedef struct tp_select_cfg {
    tp_detection_profile profile;
    tp_box_coder coder;    /* `both` follows from the profile */
    int64_t height, width; /* of the image without padding */
    double score;          /* scores up to this are dropped [0.05]; not for region proposals */
    double overlap;        /* IoU threshold of NMS [0.5; region proposals 0.7] */
    int64_t candidates;    /* per level, before NMS [1000; region proposals in training 2000] */
    int64_t most;          /* results [100; region proposals 1000] */
    double side;           /* region proposals with a side up to this are dropped [0] */
    bool one_box;          /* box heads: all categories share the offsets */
} tp_select_cfg;

/* Region proposals of one image. The best candidates of each level are decoded and clipped; those
 * that are not finite or too small (side) are dropped; NMS runs within each level; the best of all
 * levels remain. Scores are logits (mmdetection: their sigmoids). out has room for c->most. */
TP_API int64_t tp_select_proposals(const tp_select_cfg *c, const tp_level *level, int levels,
                                   tp_found *out);

/* Detections of RetinaNet. Candidates of a level are the best pairs of anchor and category with a
 * score above c->score. In mmdetection, they are the best anchors by their best category, with all
 * their categories above c->score, and are clipped to the image. NMS runs within each category; the
 * best of all remain. */
TP_API int64_t tp_select_retinanet(const tp_select_cfg *c, const tp_level *level, int levels,
                                   int64_t classes, tp_found *out);

/* Detections of a box head on n proposals: logits [n,classes + 1] with the background last, offsets
 * [n,classes,4], or [n,4] with one_box. Boxes are clipped; proposals with values that are not
 * finite are dropped. NMS runs within each category; the best of all remain. */
TP_API int64_t tp_select_boxes(const tp_select_cfg *c, const tp_corners *proposal,
                               const float *logit, const float *offset, int64_t n, int64_t classes,
                               tp_found *out);

/* Scales n detections from a resized image to the original one, clips them and drops those without
 * area. Returns the number that remain. Sizes are height, width. */
TP_API int64_t tp_found_to_original(tp_found *found, int64_t n, const int64_t resized[2],
                                    const int64_t original[2]);

/* The level, from `first` to `last`, whose feature map a region is pooled from. It follows from the
 * square root of the region's area: a region of `canonical` x `canonical` pixels (224) belongs to
 * `level` (4), one of twice the side to the next. mmdetection rounds differently at the
 * boundaries. */
TP_API int tp_region_level(tp_corners region, double canonical, int level, int first, int last,
                           tp_detection_profile profile);

#ifdef __cplusplus
}
#endif
#endif
