/* swin.h - Swin Transformer (Liu et al. 2021): softmax attention with relative biases in windows,
 * which every second block shifts. Images are [B,H,W,3], feature maps [B,H,W,D]. */
#ifndef TAPEGRAD_SWIN_H
#define TAPEGRAD_SWIN_H

#include <tapegrad/conv_norm.h>
#include <tapegrad/model.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TP_SWIN_MAX_STAGES = 8, TP_SWIN_MAX_BLOCKS = 128 };

/* image is the height and width that the model is made for. Where a map is too small for the
 * window, the window becomes the map's smaller side, without a shift. */
typedef struct tp_swin_cfg {
    int64_t image[2], classes, dim; /* dim: of the first stage; each next one doubles it */
    int stages, depths[TP_SWIN_MAX_STAGES], heads[TP_SWIN_MAX_STAGES];
    int64_t window;
    double mlp_ratio;
    double drop_path; /* of the last block; linear from 0 in the first */
    bool ape;         /* a position embedding is added to the patches */
    tp_recompute recompute;
} tp_swin_cfg;

/* Part "attn": attention in windows, "qkv", "proj", "relative_position_bias_table" [(2 rows - 1)(2
 * columns - 1),H]. x [B,H,W,D] -> the same shape; height and width must be multiples of the window.
 * with: the shift, an int64_t. With a shift the map is rolled up and left before it is divided,
 * tokens that meet there without being neighbours get -100 in their logits, and the window must be
 * a square. */
typedef struct tp_swin_attn {
    const char *path;
    int heads;
    int64_t window[2]; /* rows and columns */
    tp_linear_m qkv, proj;
    tp_tensor table;
} tp_swin_attn;
typedef struct tp_swin_attn_cfg {
    int64_t dim, window[2];
    int heads;
} tp_swin_attn_cfg;

/* Part "block": x + attn(norm1(x)), then x + mlp(norm2(x)). x [B,H,W,D] -> the same shape, of the
 * size that the block was made for or one with equal windows. */
typedef struct tp_swin_block {
    const char *path;
    int64_t window; /* as configured; attn.window is what the map allows */
    int64_t shift;  /* used if the map is larger than the window */
    double drop_path;
    tp_recompute recompute;
    tp_layernorm_m norm1, norm2;
    tp_swin_attn attn;
    tp_mlp_m mlp;
} tp_swin_block;
typedef struct tp_swin_block_cfg {
    int64_t map[2], dim, window, shift;
    int heads;
    double mlp_ratio, drop_path;
    tp_recompute recompute;
} tp_swin_block_cfg;

/* Part "merge", patch merging: the four tokens of each 2 x 2 cell, column by column, are joined,
 * normalised and projected: "norm", "reduction". [B,H,W,D] -> [B,H/2,W/2,2 D], both sides even. Its
 * configuration is D, an int64_t. */
typedef struct tp_swin_merge {
    const char *path;
    tp_layernorm_m norm;
    tp_linear_m reduction;
} tp_swin_merge;

/* Initialised like the official code: matrices and tables N(0, 0.02), biases 0, the patches'
 * convolution by PyTorch's default. Images may have any size whose maps divide into windows of the
 * same size as those of cfg.image; with a position embedding only that size. */
typedef struct tp_swin {
    const char *path;
    const tp_params *params;
    tp_swin_cfg cfg;
    tp_conv_norm embed;                      /* patches of 4 x 4 pixels */
    tp_tensor ape;                           /* [1,tokens,dim], absent unless cfg.ape */
    tp_swin_block block[TP_SWIN_MAX_BLOCKS]; /* of all stages, in order */
    tp_swin_merge merge[TP_SWIN_MAX_STAGES]; /* after stage i, except the last */
    tp_layernorm_m norm;
    tp_linear_m head;
} tp_swin;

extern TP_API const tp_model tp_model_swin;

#ifdef __cplusplus
}
#endif
#endif
