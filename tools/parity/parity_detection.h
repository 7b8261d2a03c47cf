/* parity_detection.h - what the cases of detection share: boxes, anchors, coders. */
#ifndef PARITY_DETECTION_H
#define PARITY_DETECTION_H

#include <tapegrad/detection.h>
#include <tapegrad/detection/loader.h>
#include <tapegrad/resnet.h>
#include <tapegrad/vil.h>

#include "parity_case.h"

/* The boxes [n,4] of a tensor; NULL: failed. */
tp_corners *par_corners(parity *p, const char *name, int64_t *n);
/* Compares boxes with an output [n,4]. */
void par_check_corners(parity *p, const char *name, const tp_corners *box, int64_t n);
/* A tensor of floats of any shape; NULL: failed. */
float *par_floats(parity *p, const char *name, tp_shape *shape);
/* A number from 0 to 1. */
double par_share(parity *p, const char *key);
/* Height and width of a key. par_square: or one number for both. */
void par_sides(parity *p, const char *key, int64_t sides[2]);
void par_square(parity *p, const char *key, int64_t sides[2]);
/* tp_roi_align_cfg.samples. The references' -1 means the same as 0. */
int par_samples(parity *p, const char *key);

/* strides, offset, ratios, order, and anchor_sizes or mmdetection's scales. par_anchors: the number of levels must be
 * that of the rows of input.grid_sizes, which are returned. */
void par_anchor_cfg(parity *p, bool mm, tp_anchor_cfg *c);
const int64_t *par_anchors(parity *p, bool mm, tp_anchor_cfg *c);
/* The anchors of a level over its map. */
tp_corners *par_level(parity *p, const tp_anchor_cfg *c, const int64_t *grid, int level,
                      int64_t *n);
/* mmdetection's predictions of level k, input.cls_scoreK and bbox_predK, channels last, and the size of its map: for
 * each of A anchors of a cell, that many scores and four offsets. */
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

/* The backbone that the metadata describe. False: failed. */
bool par_backbone(parity *p, tp_backbone_cfg *c);
/* Declares it with the eps of the metadata, and the parameters that only references have (unused_params). */
void par_declare_backbone(parity *p, tp_backbone *m, const char *name, const tp_backbone_cfg *c);
/* The same for a backbone that a model has declared. */
void par_finish_backbone(parity *p, tp_backbone *m, const char *name);
/* top_block_type and top_block_relu; fuse. */
tp_fpn_top par_fpn_top(parity *p);
bool par_fpn_average(parity *p);

/* ---- kinds of parity_detection_select.c ---- */
void par_run_proposals(parity *p);
void par_run_retinanet(parity *p);
void par_run_boxes(parity *p);
void par_run_paste(parity *p);
void par_run_mask_targets(parity *p);
void par_run_coco(parity *p);

/* ---- kinds of parity_detection_train.c ---- */
void par_run_preprocess(parity *p);
void par_run_milestones(parity *p);
void par_run_clipped(parity *p);

#endif
