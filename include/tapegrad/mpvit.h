/* mpvit.h - MPViT (Lee et al. 2022): in each stage patches of several sizes go through separate
 * encoders, beside a convolution. Images are [B,H,W,3], feature maps [B,H,W,D]. The blocks of the
 * encoders are CoaT's (coat.h) without a class token, the stem is ViT-LSLA's (vit_lsla.h), which
 * took it from here. */
#ifndef TAPEGRAD_MPVIT_H
#define TAPEGRAD_MPVIT_H

#include <tapegrad/coat.h>
#include <tapegrad/vit_lsla.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TP_MPVIT_STAGES = 4, TP_MPVIT_PATHS = 4, TP_MPVIT_MAX_LAYERS = 16 };

/* Convolution without bias, batch norm, and hard-swish unless it is `plain`: "conv", "bn". */
typedef struct tp_mpvit_conv {
    const char *path;
    tp_conv2d_m conv;
    tp_batchnorm_m bn;
    bool plain;
} tp_mpvit_conv;

/* Patches of a path: a depthwise 3 x 3 and a 1 x 1 convolution, batch norm, hard-swish. */
typedef struct tp_mpvit_patches {
    const char *path;
    tp_conv2d_m dwconv, pwconv;
    tp_batchnorm_m bn;
} tp_mpvit_patches;

/* Part "embed", "patch_embeds.N.patch_conv": the patches of path n are made from those of path n -
 * 1. */
typedef struct tp_mpvit_embed {
    int paths;
    tp_mpvit_patches step[TP_MPVIT_PATHS];
} tp_mpvit_embed;
/* map [B,H,W,D] -> with[0 .. paths), tensors [B,ceil(H/stride),ceil(W/stride),D], and the last of
 * them as result. */
typedef struct tp_mpvit_embed_cfg {
    int64_t dim, stride; /* stride: of the first step, 1 or 2 */
    int paths;
} tp_mpvit_embed_cfg;

/* Part "encoder", [B,H,W,D] -> the same shape, the encoder of one path: blocks that share their
 * encodings, "cpe", "crpe", "MHCA_layers.N". */
typedef struct tp_mpvit_encoder {
    const char *path;
    int layers;
    tp_coat_shared shared;
    tp_coat_block block[TP_MPVIT_MAX_LAYERS];
} tp_mpvit_encoder;
typedef struct tp_mpvit_encoder_cfg {
    int64_t dim;
    int layers, heads;
    double mlp_ratio;
    const double *drop_path; /* of each layer; NULL: 0 */
    tp_coat_kernels kernels;
    tp_recompute recompute;
} tp_mpvit_encoder_cfg;

/* Part "residual", x + conv2(hardswish(norm(dwconv(conv1(x))))): the convolution beside the
 * encoders. Its configuration is D, an int64_t. */
typedef struct tp_mpvit_residual {
    const char *path;
    tp_mpvit_conv conv1, conv2;
    tp_conv2d_m dwconv;
    tp_batchnorm_m norm;
} tp_mpvit_residual;

/* Part "stage": the residual convolution of path 0 and all encoders, joined and reduced to the next
 * width: "InvRes", "mhca_blks.N", "aggregate". with[0 .. paths), of which x is the first, [B,H,W,D]
 * -> [B,H,W,out]. */
typedef struct tp_mpvit_stage {
    const char *path;
    int paths;
    tp_mpvit_encoder encoder[TP_MPVIT_PATHS];
    tp_mpvit_residual residual;
    tp_mpvit_conv aggregate;
} tp_mpvit_stage;
typedef struct tp_mpvit_stage_cfg {
    int paths;
    int64_t out;
    tp_mpvit_encoder_cfg encoder;
} tp_mpvit_stage_cfg;

/* ---- the model ---- */

typedef struct tp_mpvit_cfg {
    int64_t image[2], classes; /* image: height and width, for costs */
    int64_t dim[TP_MPVIT_STAGES];
    int paths[TP_MPVIT_STAGES], layers[TP_MPVIT_STAGES], mlp_ratio[TP_MPVIT_STAGES], heads;
    tp_coat_kernels kernels;
    double drop_path; /* of the last layer; linear from 0 in the first, the same in all paths */
    tp_recompute recompute;
} tp_mpvit_cfg;

/* Initialised as published: convolutions without bias normal by the number of their outputs,
 * matrices N(0, 0.02), biases 0, encodings by PyTorch's default. Each block aliases the shared
 * encodings, as in published files. */
typedef struct tp_mpvit {
    const char *path;
    const tp_params *params;
    tp_mpvit_cfg cfg;
    tp_lsla_stem stem;
    tp_mpvit_embed embed[TP_MPVIT_STAGES];
    tp_mpvit_stage stage[TP_MPVIT_STAGES];
    tp_linear_m head; /* "cls_head.cls" */
} tp_mpvit;

extern TP_API const tp_model tp_model_mpvit;

#ifdef __cplusplus
}
#endif
#endif
