/* resnet.h - ResNet (He et al. 2016, with the stride on the 3x3 convolution, as in torchvision) and
 * ResNeXt (Xie et al. 2017). Images are [B,H,W,3], feature maps [B,H,W,C]. */
#ifndef TAPEGRAD_RESNET_H
#define TAPEGRAD_RESNET_H

#include <tapegrad/model.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TP_RESNET_STAGES     4
#define TP_RESNET_MAX_BLOCKS 64 /* in all stages */

typedef struct tp_resnet_cfg {
    int64_t image[2], classes; /* image: height and width, for costs; classes 0: a backbone */
    int64_t base; /* width of the stem and planes of stage 0; they double with each stage */
    int blocks[TP_RESNET_STAGES];
    bool bottleneck; /* three convolutions and 4 planes channels, instead of two and planes */
    /* of the 3x3 convolution of a bottleneck, which has floor(planes group_width / 64) groups
     * channels */
    int64_t groups, group_width;
    /* batch norms always use their running statistics, as in detection: they are folded into the
     * convolutions */
    bool frozen_norm;

    /* ---- detectron2; not stored in checkpoints ---- */

    /* weights and biases of frozen norms are buffers too, and names are detectron2's */
    bool detectron;
    bool early_stride; /* bottlenecks have their stride in the first convolution */
    /* channels of the stages, and of the 3x3 convolutions of their bottlenecks; 0: from base */
    int64_t out[TP_RESNET_STAGES], inner[TP_RESNET_STAGES];
    tp_recompute recompute;
} tp_resnet_cfg;

/* How the norm after a convolution is computed. FROZEN (cfg.frozen_norm, cfg.detectron): each
 * forward pass multiplies it into the weights. FUSED: they contain it, see fuse of
 * tp_backbone_kind. */
typedef enum tp_resnet_norm {
    TP_RESNET_BATCH_NORM,
    TP_RESNET_FROZEN,
    TP_RESNET_FUSED
} tp_resnet_norm;

/* Part "block", [B,H,W,in] -> [B,ceil(H/stride),ceil(W/stride),planes], for bottlenecks 4 planes:
 * "conv1", "bn1", "conv2", "bn2", for bottlenecks "conv3", "bn3"; "downsample.0", "downsample.1" if
 * the block changes the size of its input. detectron: "conv1.norm" ..., "shortcut",
 * "shortcut.norm". */
typedef struct tp_resnet_block {
    const char *path;
    int convs;
    tp_resnet_norm norm;
    tp_recompute recompute;
    tp_conv2d_m conv[3], down; /* down: without weight if the shortcut is the input itself */
    tp_batchnorm_m bn[3], down_bn;
} tp_resnet_block;
typedef struct tp_resnet_block_cfg {
    const tp_resnet_cfg *model;
    int64_t in, planes, stride; /* in: channels of the input */
} tp_resnet_block_cfg;

/* torchvision's names and initial values: convolutions N(0, sqrt(2 / fan out)), the rest by the
 * modules' defaults. detectron: stages are called "res2" to "res5" instead of "layer1" to "layer4",
 * and the first convolution is "stem.conv1". Images may have any size. */
typedef struct tp_resnet {
    const char *path;
    const tp_params *params;
    tp_resnet_cfg cfg;
    tp_resnet_norm norm;
    tp_conv2d_m conv1;
    tp_batchnorm_m bn1;
    tp_resnet_block block[TP_RESNET_MAX_BLOCKS];
    tp_linear_m fc;
} tp_resnet;

extern TP_API const tp_model tp_model_resnet;

#ifdef __cplusplus
}
#endif
#endif
