/* parity_detection.h - what the cases of detection share: boxes, anchors, coders, backbones,
 * batches of images. */
#ifndef PARITY_DETECTION_H
#define PARITY_DETECTION_H

#include <tapegrad/detection.h>
#include <tapegrad/detection/loader.h>
#include <tapegrad/detection/objects.h>
#include <tapegrad/resnet.h>
#include <tapegrad/vil.h>

#include "parity_case.h"

/* The boxes [n,4] of a tensor; NULL: failed. */
tp_corners *par_corners(parity *p, const char *name, int64_t *n);
/* Compares boxes with an output [n,4]. */
void par_check_corners(parity *p, const char *name, const tp_corners *box, int64_t n);
/* Compares them with an output [n,5], whose rows end with scores. */
void par_check_scored(parity *p, const char *name, const tp_corners *box, const double *score,
                      int64_t n);
/* Compares detections with the outputs of these names, but for NULL. `how`: what computed them. */
typedef enum par_found { PAR_IN_DOUBLE, PAR_ON_TAPE } par_found;
void par_check_found(parity *p, par_found how, const tp_found *found, int64_t n, const char *boxes,
                     const char *scores, const char *classes, const char *rows);
/* A number from 0 to 1. */
double par_share(parity *p, const char *key);
/* tp_roi_align_cfg.samples. The references' -1 means the same as 0. */
int par_samples(parity *p, const char *key);

/* strides, offset, ratios, order, and anchor_sizes or mmdetection's scales. par_anchors: the number
 * of levels must be that of the rows of input.grid_sizes, which are returned. */
void par_anchor_cfg(parity *p, bool mm, tp_anchor_cfg *c);
const int64_t *par_anchors(parity *p, bool mm, tp_anchor_cfg *c);
/* The anchors of a level over its map. */
tp_corners *par_level(parity *p, const tp_anchor_cfg *c, const int64_t *grid, int level,
                      int64_t *n);
/* mmdetection's predictions of level k, input.cls_scoreK and bbox_predK, channels last, and the
 * size of its map: for each of A anchors of a cell, that many scores and four offsets. */
void par_mm_level(parity *p, const int64_t *grid, int k, int64_t scores, int64_t A, int64_t size[2],
                  tp_tensor *score, tp_tensor *offset);
/* The weights of that key, or box_weights, and scale_clamp. */
tp_box_coder par_coder_of(parity *p, const char *key);
tp_box_coder par_coder(parity *p);

/* The matcher of either kind, from the metadata. */
void par_matcher(parity *p, bool mm, tp_matcher *m);
/* detectron2's, from keys of these names. */
void par_matcher_of(parity *p, const char *thresholds, const char *labels, const char *low,
                    tp_matcher *m);
/* ---- parts of detectors ---- parity_pyramid.c */

/* Of Vision Longformers, in parity_vil.c: attn_type, by default `otherwise` unless it is needed,
 * with only_glo; exact. */
tp_vil_kind par_vil_kind(parity *p, tp_vil_kind otherwise, bool needed);
tp_edge par_vil_edge(parity *p);

/* The backbone that the metadata describe. False: failed. */
bool par_backbone(parity *p, tp_backbone_cfg *c);
/* Declares the parameters that only references have (unused_params), beside a backbone of that
 * name. */
void par_finish_backbone(parity *p, const tp_backbone *m, const char *name);
/* top_block_type and top_block_relu; fuse. */
tp_fpn_top par_fpn_top(parity *p);
bool par_fpn_average(parity *p);

/* ---- images with objects ---- parity_scene.c */

typedef struct par_scene {
    int64_t images;
    int64_t (*size)[2], (*original)[2]; /* original: NULL if the case has none */
    tp_objects *objects;
} par_scene;

/* Reads input.imageN, gt_boxesN, gt_classesN and polygons, or, in full-size cases, fills one image
 * and reads gt_boxes, gt_classes and polygons without a number. Checks categories against
 * `classes`. False: failed. */
bool par_scene_read(parity *p, int64_t classes, par_scene *s);
/* The polygons of o->n objects, if input.poly_xyOF is there: poly_countOF and poly_instanceOF, or,
 * in full-size cases, the metadata's poly_counts, one for each object. */
void par_polygons(parity *p, const char *of, tp_objects *o);
/* The batch that both make, with the even rule of sampling. */
tp_detection_in par_scene_in(parity *p, const par_scene *s);

/* The boxes of the objects of B images of the size image_hw, input.gt_boxesN, and their categories
 * if there are gt_labelsN, as the losses of mmdetection's cases have them. */
tp_detection_in par_mm_in(parity *p, int64_t B);

/* Detects in evaluation mode and compares the detections in each image, converted to pixels of the
 * original one, with det_boxesN, det_scoresN, det_classesN and, if they have masks, det_masksN.
 * Nothing if the case has no original images. */
void par_scene_detect(parity *p, const par_scene *s, const tp_detector_kind *kind, const void *m,
                      const tp_detection_in *in, double threshold);

#endif
