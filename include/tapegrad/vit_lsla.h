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
    TP_LSLA_QKV,   /* keys, values and result are projected   */
    TP_LSLA_QXX_NP /* as QXX, without projecting the result   */
} tp_lsla_variant;

/* The ablations of Tables 4 and 5. { 0 } is the paper's model. */
typedef struct tp_lsla_cfg {
    tp_lsla_variant variant;
    bool fixed_scale; /* 1/sqrt(D) instead of a learned scale                                */
    bool raw_scores;  /* no inner bias                                                       */
    bool raw_weights; /* no outer bias                                                       */
    bool mask_outer;  /* shifted windows: no outer bias between different border regions */
} tp_lsla_cfg;

/* The attention module. Parameters that the configuration does not use are not created. */
typedef struct tp_lsla_attn_m {
    const char *path;
    tp_lsla_cfg cfg;
    int heads;
    int64_t window;
    tp_linear_m q, k, v, proj;     /* fc_q, fc_k, fc_v, proj                                    */
    tp_tensor scale, inner, outer; /* dynamic_scale [w^2,w^2], ..._position_bias_table
                                      [(2w-1)^2,H]                                              */
} tp_lsla_attn_m;
TP_API void tp_lsla_attn_init(tp_params *P, tp_lsla_attn_m *m, const char *name, int64_t dim,
                              int heads, int64_t window, tp_lsla_cfg cfg);
/* x [B,H,W,D] -> [B,H,W,D]; height and width must be multiples of the window. */
TP_API tp_tensor tp_lsla_attn_forward(tp_tape *T, const tp_lsla_attn_m *m, tp_tensor x,
                                      int64_t shift);

/* Intermediate results of the attention, [B*windows,heads,w^2,w^2], for figures: the scores, the logits
 * (scaled, with inner bias and mask), and the weights before and after the outer bias. Computed by plain
 * ops, with gradients. */
typedef struct tp_lsla_maps {
    tp_tensor scores, logits, before, after;
} tp_lsla_maps;
TP_API tp_lsla_maps tp_lsla_attn_maps(tp_tape *T, const tp_lsla_attn_m *m, tp_tensor x,
                                      int64_t shift);

/* image is the height and width that the model is made for. Where a map is too small for the window, the
 * window becomes the map's smaller side, without a shift. */
typedef struct tp_vit_lsla_cfg {
    int64_t image[2], classes, dim; /* dim: of the first stage, doubled in each one after it */
    int stages, depths[TP_VIT_MAX_STAGES], heads[TP_VIT_MAX_STAGES];
    int64_t window;
    double mlp_ratio;
    double drop_path; /* of the last block; linear from 0 in the first */
    tp_lsla_cfg attn;
    tp_recompute recompute;
} tp_vit_lsla_cfg;

TP_API tp_vit_lsla_cfg tp_vit_lsla_tiny(int64_t classes);  /* 1.0M, 32 x 32: for a first run */
TP_API tp_vit_lsla_cfg tp_vit_lsla_paper(int64_t classes); /* 18.9M, 224 x 224               */

/* True if cfg describes a possible model; else why receives a sentence that says what is wrong. */
TP_API bool tp_vit_lsla_cfg_check(const tp_vit_lsla_cfg *cfg, char *why, size_t size);

/* Two strided 3 x 3 convolutions with batch norm and hardswish, which reduce the image to a quarter of its
 * sides. */
typedef struct tp_lsla_stem {
    const char *path;
    tp_conv2d_m conv[2];
    tp_batchnorm_m bn[2];
} tp_lsla_stem;
TP_API void tp_lsla_stem_init(tp_params *P, tp_lsla_stem *m, const char *name, int64_t channels);
/* [B,H,W,3] -> [B,ceil(H/4),ceil(W/4),channels] */
TP_API tp_tensor tp_lsla_stem_forward(tp_tape *T, const tp_lsla_stem *m, tp_tensor images);

/* x + attn(norm1(x)), then x + mlp(norm2(x)). */
typedef struct tp_lsla_block {
    const char *path;
    int64_t window; /* as configured; attn.window is what the map allows */
    int64_t shift;  /* used if the map is larger than the window         */
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
TP_API void tp_lsla_block_init(tp_params *P, tp_lsla_block *m, const char *name,
                               tp_lsla_block_cfg cfg);
/* x [B,H,W,D] -> the same shape. x has the size that m was made for or one with equal windows. m must live
 * until backward if the block recomputes. */
TP_API tp_tensor tp_lsla_block_forward(tp_tape *T, const tp_lsla_block *m, tp_tensor x);

/* Downsampling between stages: a strided 3 x 3 convolution, then a layer norm. */
typedef struct tp_lsla_merge {
    const char *path;
    tp_conv2d_m conv;
    tp_layernorm_m norm;
} tp_lsla_merge;
TP_API void tp_lsla_merge_init(tp_params *P, tp_lsla_merge *m, const char *name, int64_t dim);
/* [B,H,W,D] -> [B,ceil(H/2),ceil(W/2),2 D] */
TP_API tp_tensor tp_lsla_merge_forward(tp_tape *T, const tp_lsla_merge *m, tp_tensor x);

typedef struct tp_vit_lsla {
    const char *path;
    const tp_params *params;
    tp_vit_lsla_cfg cfg;
    tp_lsla_stem stem;
    tp_lsla_block block[TP_VIT_MAX_BLOCKS]; /* of all stages, one after the other */
    tp_lsla_merge merge[TP_VIT_MAX_STAGES]; /* after stage i, except the last     */
    tp_layernorm_m norm;
    tp_linear_m head;
} tp_vit_lsla;

/* Declares the model, initialised as follows: matrices, stem and tables normal, scales 1/sqrt(D), other
 * convolutions by PyTorch's default, biases 0. An impossible cfg fails P. */
TP_API void tp_vit_lsla_init(tp_params *P, tp_vit_lsla *m, const char *name, tp_vit_lsla_cfg cfg);

/* images [B,H,W,3] -> logits [B,classes]. Images may have any size whose maps divide into windows
 * of the same size as those of cfg.image. */
TP_API tp_tensor tp_vit_lsla_forward(tp_tape *T, const tp_vit_lsla *m, tp_tensor images);

/* Loads weights of the same model for another image size. Where windows differ, tables and scales are
 * resized over positions (bicubic). The file must contain all names of P. False: see tp_params_why. */
TP_API TP_CHECKED bool tp_vit_lsla_load(tp_params *P, const char *path);

extern TP_API const tp_model tp_model_vit_lsla;

#ifndef TP_NO_SITE
/* clang-format off */
#define tp_lsla_attn_forward(T, ...)  tp_lsla_attn_forward(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_lsla_attn_maps(T, ...)     tp_lsla_attn_maps(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_lsla_stem_forward(T, ...)  tp_lsla_stem_forward(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_lsla_block_forward(T, ...) tp_lsla_block_forward(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_lsla_merge_forward(T, ...) tp_lsla_merge_forward(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_vit_lsla_forward(T, ...)   tp_vit_lsla_forward(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
/* clang-format on */
#endif

#ifdef __cplusplus
}
#endif
#endif
