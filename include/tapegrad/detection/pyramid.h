/* pyramid.h - feature maps of several strides: backbones and feature pyramid networks (detection library). */
#ifndef TAPEGRAD_DETECTION_PYRAMID_H
#define TAPEGRAD_DETECTION_PYRAMID_H

#include <tapegrad/pvt.h>
#include <tapegrad/resnet.h>
#include <tapegrad/vil.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TP_BACKBONE_STAGES = 4, TP_PYRAMID_LEVELS = 6 };

/* ---- backbones ---- */

typedef enum tp_backbone_kind { TP_BACKBONE_VIL, TP_BACKBONE_RESNET, TP_BACKBONE_PVT } tp_backbone_kind;

typedef struct tp_backbone_cfg {
    tp_backbone_kind kind;
    union {
        tp_vil_cfg vil;
        tp_resnet_cfg resnet;
        tp_pvt_cfg pvt;
    } of;
    int frozen; /* ResNet: the stem (1) and so many stages less one are not trained [2]           */
} tp_backbone_cfg;

typedef struct tp_backbone {
    tp_backbone_cfg cfg;
    union {
        tp_vil vil;
        tp_resnet resnet;
        tp_pvt pvt;
    } of;
} tp_backbone;

/* The published backbones of detectors: "vil-tiny", "vil-small-ape", "resnet50", "pvt-small" ... False with the reason
 * in why. */
TP_API bool tp_backbone_preset(tp_backbone_cfg *c, const char *name, char *why, size_t size);
TP_API bool tp_backbone_check(const tp_backbone_cfg *c, char *why, size_t size);
/* Declares the backbone, without the classifier's final norm and head. */
TP_API void tp_backbone_init(tp_params *P, tp_backbone *m, const char *name, tp_backbone_cfg cfg);
/* Channels of the four maps. */
TP_API void tp_backbone_channels(const tp_backbone_cfg *c, int64_t channels[TP_BACKBONE_STAGES]);
/* images [B,H,W,3] -> the outputs of the four stages, [B,h,w,C], at 1/4, 1/8, 1/16 and 1/32 of H and W. */
TP_API void tp_backbone_forward(tp_tape *T, const tp_backbone *m, tp_tensor images,
                                tp_tensor map[TP_BACKBONE_STAGES]);

/* ---- feature pyramid networks (FPN; Lin et al. 2017) ---- */

/* The maps of a pyramid, from fine to coarse. */
typedef struct tp_pyramid {
    int levels;
    tp_tensor map[TP_PYRAMID_LEVELS]; /* [B,h,w,C] */
} tp_pyramid;

/* The levels above the last one of the backbone. */
typedef enum tp_fpn_top {
    TP_FPN_SUBSAMPLE, /* Mask R-CNN: P2 ... P5, and P6, every second row and column of P5            */
    TP_FPN_RELU,      /* RetinaNet: P3 ... P5, P6 = conv(C5), P7 = conv(relu(P6))                    */
    TP_FPN_PLAIN      /* RetinaNet in mmdetection: P7 = conv(P6)                                     */
} tp_fpn_top;

typedef struct tp_fpn_cfg {
    int64_t channels[TP_BACKBONE_STAGES]; /* of the backbone's maps                                  */
    int64_t dim;                          /* channels of the pyramid [256]                           */
    tp_fpn_top top;
    bool average; /* halves the sums of neighbouring levels */
} tp_fpn_cfg;

typedef struct tp_fpn {
    tp_fpn_cfg cfg;
    tp_conv2d_m lateral[TP_BACKBONE_STAGES], output[TP_BACKBONE_STAGES], p6, p7;
} tp_fpn;

/* Names: fpn_lateral2 ..., fpn_output2 ..., top_block.p6, top_block.p7. Weights U(-b, b) with b = sqrt(3 / fan in),
 * biases 0. */
TP_API void tp_fpn_init(tp_params *P, tp_fpn *m, const char *name, tp_fpn_cfg cfg);
TP_API tp_pyramid tp_fpn_forward(tp_tape *T, const tp_fpn *m,
                                 const tp_tensor map[TP_BACKBONE_STAGES]);

#ifdef __cplusplus
}
#endif
#endif
