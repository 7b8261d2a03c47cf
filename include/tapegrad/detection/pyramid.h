/* pyramid.h - feature maps of several strides: backbones and feature pyramid networks (detection
 * library). */
#ifndef TAPEGRAD_DETECTION_PYRAMID_H
#define TAPEGRAD_DETECTION_PYRAMID_H

#include <tapegrad/detection/boxes.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TP_PYRAMID_LEVELS = 8, TP_FPN_MAPS = TP_PYRAMID_LEVELS - 2 };

/* ---- backbones ---- */

/* A classifier without head: a configuration without classes of a model that has
 * tp_model.backbone. */
typedef struct tp_backbone_cfg {
    tp_model_cfg model;
    /* the stem (from 1 on) and the first frozen - 1 stages are not trained, if the model has
     * `freeze` */
    int frozen;
} tp_backbone_cfg;

typedef struct tp_backbone {
    const char *path;
    const tp_params *params;
    tp_backbone_cfg cfg;
    void *module; /* the model's own, such as a tp_vil; it lives as long as the parameters */
} tp_backbone;

/* A published backbone of detectors:
 *
 *     vil-SIZE, vil-SIZE-ape    SIZE: tiny, small, medium, base; positions relative or absolute.
 *                               Windows in all stages, no global token in the last one
 *     vil-SIZE-ATTENTION        absolute positions; ATTENTION: sra64, sra32, global, performer;
 *                               partial (ape with full attention in stages 3 and 4),
 *                               partial-sra32, -global, -performer
 *     resnet18, -34, -50, -101  the stem and the first stage are frozen, and so are the norms
 *                               (TP_DETECTRON2), whose weights and biases TP_MMDETECTION trains
 *     pvt-tiny, -small, -medium, -large, pvt2-b0 ... pvt2-b5, pvt2-b2-li
 *
 * and small ones for a first run: vil-mini, resnet-mini, pvt-mini (1 to 3 million parameters), all
 * of which is trained. Tables of positions are for images of up to 1344 pixels. False with the
 * reason in why. */
TP_API bool tp_backbone_preset(tp_backbone_cfg *c, const char *name, tp_detection_profile profile,
                               char *why, size_t size);
/* The name of backbone i, model by model; NULL past the last. */
TP_API const char *tp_backbone_known(int i);
/* Sets the drop path of the last block, which a ResNet does not have, and what training
 * recomputes. */
TP_API void tp_backbone_set(tp_backbone_cfg *c, double drop_path, tp_recompute recompute);
/* True if c describes a possible backbone; else why receives a sentence that says what is wrong. */
TP_API bool tp_backbone_check(const tp_backbone_cfg *c, char *why, size_t size);
/* Channels of the four maps. */
TP_API void tp_backbone_channels(const tp_backbone_cfg *c, int64_t channels[TP_BACKBONE_STAGES]);

/* Declares the backbone with the names and initial values of the model, below `name`, which is
 * "backbone.bottom_up" in published detectors. An impossible c fails P. */
TP_API void tp_backbone_init(tp_params *P, tp_backbone *m, const char *name,
                             const tp_backbone_cfg *c);
/* images [B,H,W,3] -> the outputs of the four stages, [B,h,w,C], at 1/4, 1/8, 1/16 and 1/32 of H
 * and W, which must be multiples of 32. */
TP_API void tp_backbone_forward(tp_tape *T, const tp_backbone *m, tp_tensor images,
                                tp_tensor map[TP_BACKBONE_STAGES]);

/* Loads the weights of a classifier of the same kind into the backbone, which is declared in P,
 * perhaps beside other parts; F gets the classifier's names, publishers' included (tp_model_adopt),
 * and ResNets may have detectron2's. Head and last norm are left out. For a Vision Longformer, full
 * attention gives its rows of queries, keys and values to windows; tables of relative positions
 * (bilinear) and of positions (linear) are resized; global tokens are repeated if more are wanted;
 * the biases of global tokens keep their initial values where the file has none of their shape.
 * Differences that remain are refused before anything changes. False: see tp_params_why.
 * Synchronises. */
TP_API TP_CHECKED bool tp_backbone_load(tp_params *P, const tp_backbone *m, tp_file *F);

/* Multiplies a ResNet's frozen norms into its weights, for inference: fuse of tp_backbone_kind.
 * Other backbones are unchanged. False: see tp_params_why. Synchronises. */
TP_API bool tp_backbone_fuse(tp_params *P, tp_backbone *m);

/* ---- feature pyramid networks (FPN; Lin et al. 2017) ---- */

/* The maps of a pyramid, from fine to coarse. */
typedef struct tp_pyramid {
    int levels;
    tp_tensor map[TP_PYRAMID_LEVELS]; /* [B,h,w,C] */
} tp_pyramid;

/* The levels above that of the last map, here of C5; each has half as many rows and columns as the
 * one below, rounded up. */
typedef enum tp_fpn_top {
    TP_FPN_SUBSAMPLE, /* Mask R-CNN: P6, every second row and column of P5 */
    TP_FPN_RELU,      /* RetinaNet: P6 = conv(C5), P7 = conv(relu(P6)) */
    TP_FPN_PLAIN      /* RetinaNet in mmdetection: P7 = conv(P6) */
} tp_fpn_top;

/* { 0 } is Mask R-CNN's but for the channels; tp_fpn_of sets them. */
typedef struct tp_fpn_cfg {
    int first;                     /* the first map is C(first), of stride 2^first; 0: C2 */
    int maps;                      /* how many there are; 0: 4 */
    int64_t channels[TP_FPN_MAPS]; /* of the maps */
    int64_t dim;                   /* channels of the pyramid; 0: 256 */
    tp_fpn_top top;
    bool average; /* halves the sums of neighbouring levels */
} tp_fpn_cfg;

/* The pyramid on a backbone: of C2 to C5, or of C3 to C5 if it has a P7. */
TP_API tp_fpn_cfg tp_fpn_of(const tp_backbone_cfg *backbone, int64_t dim, tp_fpn_top top);
/* False, with the reason in why, if a number is out of range. */
TP_API bool tp_fpn_check(const tp_fpn_cfg *c, char *why, size_t size);

typedef struct tp_fpn {
    const char *path;
    tp_fpn_cfg cfg;
    tp_conv2d_m lateral[TP_FPN_MAPS], output[TP_FPN_MAPS], p6, p7;
} tp_fpn;

/* From coarse to fine M = lateral(C) + M of the next level, resized by nearest; P = output(M).
 * lateral is a 1x1, output a 3x3 convolution. Names: fpn_lateral2 ..., fpn_output2 ..., by the
 * number of the level; top_block.p6, top_block.p7 whatever the levels; below `name`, which is
 * "backbone" in published detectors. Weights U(-b, b) with b = sqrt(3 / fan in), biases 0. An
 * impossible cfg fails P. */
TP_API void tp_fpn_init(tp_params *P, tp_fpn *m, const char *name, tp_fpn_cfg cfg);
/* map[0] is C(first): of a backbone with four maps, pass `map + m->cfg.first - 2`. */
TP_API tp_pyramid tp_fpn_forward(tp_tape *T, const tp_fpn *m, const tp_tensor *map);

#ifndef TP_NO_SITE
#include <tapegrad/sites/detection/pyramid.h>
#endif

#ifdef __cplusplus
}
#endif
#endif
