/* vit_lsla.h - ViT-LSLA (Hechen et al. 2022): light self-limited attention in windows. Images are
 * [B,H,W,3], feature maps [B,H,W,D]. */
#ifndef TAPEGRAD_VIT_LSLA_H
#define TAPEGRAD_VIT_LSLA_H

#include <tapegrad/model.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TP_VIT_MAX_STAGES = 8, TP_VIT_MAX_BLOCKS = 128 };

typedef enum tp_lsla_variant {
    TP_LSLA_QXX,   /* keys and values are the input itself; the result is projected */
    TP_LSLA_QXV,   /* values are projected, the result is not */
    TP_LSLA_QKV,   /* keys, values and result are projected */
    TP_LSLA_QXX_NP /* as QXX, without projecting the result */
} tp_lsla_variant;

/* The ablations of Tables 4 and 5. { 0 } is the paper's model. */
typedef struct tp_lsla_cfg {
    tp_lsla_variant variant;
    bool fixed_scale; /* 1/sqrt(D) instead of a learned scale */
    bool raw_scores;  /* no inner bias */
    bool raw_weights; /* no outer bias */
    bool mask_outer;  /* shifted windows: no outer bias between different border regions */
} tp_lsla_cfg;

/* Part "attn", [B,H,W,D] -> [B,H,W,D]; height and width must be multiples of the window. with: the
 * shift, an int64_t. Parameters that the configuration does not use are not created. */
typedef struct tp_lsla_attn_m {
    const char *path;
    tp_lsla_cfg cfg;
    int heads;
    int64_t window;
    tp_linear_m q, k, v, proj; /* fc_q, fc_k, fc_v, proj */
    /* dynamic_scale [w^2,w^2], ..._position_bias_table [(2w-1)^2,H] */
    tp_tensor scale, inner, outer;
} tp_lsla_attn_m;
typedef struct tp_lsla_part_cfg {
    int64_t dim, window;
    int heads;
    tp_lsla_cfg attn;
} tp_lsla_part_cfg;

/* Intermediate results of the attention, [B*windows,heads,w^2,w^2], for figures: the scores, the
 * logits (scaled, with inner bias and mask), and the weights before and after the outer bias.
 * Computed by plain ops, with gradients. */
typedef struct tp_lsla_maps {
    tp_tensor scores, logits, before, after;
} tp_lsla_maps;
TP_API tp_lsla_maps tp_lsla_attn_maps(tp_tape *T, const tp_lsla_attn_m *m, tp_tensor x,
                                      int64_t shift);

/* image is the height and width that the model is made for. Where a map is too small for the
 * window, the window becomes the map's smaller side, without a shift. */
typedef struct tp_vit_lsla_cfg {
    int64_t image[2], classes, dim; /* dim: of the first stage; each next one doubles it */
    int stages, depths[TP_VIT_MAX_STAGES], heads[TP_VIT_MAX_STAGES];
    int64_t window;
    double mlp_ratio;
    double drop_path; /* of the last block; linear from 0 in the first */
    tp_lsla_cfg attn;
    tp_recompute recompute;
} tp_vit_lsla_cfg;

/* Part "stem", [B,H,W,3] -> [B,ceil(H/4),ceil(W/4),channels]: two strided 3 x 3 convolutions with
 * batch norm and hardswish. Its configuration is the number of channels, an int64_t. */
typedef struct tp_lsla_stem {
    const char *path;
    tp_conv2d_m conv[2];
    tp_batchnorm_m bn[2];
} tp_lsla_stem;

/* Part "block": x + attn(norm1(x)), then x + mlp(norm2(x)). x [B,H,W,D] -> the same shape, of the
 * size that the block was made for or one with equal windows. */
typedef struct tp_lsla_block {
    const char *path;
    int64_t window; /* as configured; attn.window is what the map allows */
    int64_t shift;  /* used if the map is larger than the window */
    double drop_path;
    tp_recompute recompute;
    tp_layernorm_m norm1, norm2;
    tp_lsla_attn_m attn;
    tp_mlp_m mlp;
} tp_lsla_block;
typedef struct tp_lsla_block_cfg {
    int64_t map[2], dim, window, shift;
    int heads;
    double mlp_ratio, drop_path;
    tp_lsla_cfg attn;
    tp_recompute recompute;
} tp_lsla_block_cfg;

/* Part "merge", [B,H,W,D] -> [B,ceil(H/2),ceil(W/2),2 D], downsampling between stages: a strided 3
 * x 3 convolution, then a layer norm. Its configuration is D, an int64_t. */
typedef struct tp_lsla_merge {
    const char *path;
    tp_conv2d_m conv;
    tp_layernorm_m norm;
} tp_lsla_merge;

/* Initialised as follows: matrices, stem and tables normal, scales 1/sqrt(D), other convolutions by
 * PyTorch's default, biases 0. Images may have any size whose maps divide into windows of the same
 * size as those of cfg.image. */
typedef struct tp_vit_lsla {
    const char *path;
    const tp_params *params;
    tp_vit_lsla_cfg cfg;
    tp_lsla_stem stem;
    tp_lsla_block block[TP_VIT_MAX_BLOCKS]; /* of all stages, in order */
    tp_lsla_merge merge[TP_VIT_MAX_STAGES]; /* after stage i, except the last */
    tp_layernorm_m norm;
    tp_linear_m head;
} tp_vit_lsla;

extern TP_API const tp_model tp_model_vit_lsla;

#ifndef TP_NO_SITE
#define tp_lsla_attn_maps(T, ...) tp_lsla_attn_maps(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#endif

#ifdef __cplusplus
}
#endif
#endif
