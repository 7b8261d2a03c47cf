/* vit.h - ViT (Dosovitskiy et al. 2021) and DeiT (Touvron et al. 2021), with or without a
 * distillation token, and the losses of distillation. Images are [B,H,W,3], tokens [B,N,D]. */
#ifndef TAPEGRAD_VIT_H
#define TAPEGRAD_VIT_H

#include <tapegrad/model.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TP_VIT_BLOCKS 64 /* at most */

typedef struct tp_vit_cfg {
    int64_t image[2], classes; /* image: height and width for the table of positions */
    int64_t patch, dim;        /* side of a patch; width D */
    int heads, blocks;
    int64_t mlp_ratio; /* hidden channels of the feed-forward network divided by dim */
    bool distilled;    /* a second token and head, which learn from a teacher */
    /* variants (Zhang et al. 2021, ViL, Table 11) */
    bool patch_norm; /* LayerNorm of the patches, before tokens and positions */
    bool avg_pool;   /* the head reads the mean of all tokens, the class token too; not distilled */
    double dropout;  /* of embeddings, projections and feed-forward networks */
    double drop_path; /* of the last block; rises from 0 over all blocks */
    tp_recompute recompute;
} tp_vit_cfg;

/* Part "attn", [B,N,D] -> [B,N,D]: "qkv" [3D,D], rows of queries, keys and values in this order,
 * and "proj". with: a residual to which the result is added, or NULL. */
typedef struct tp_vit_attn {
    const char *path;
    int heads;
    double dropout;
    tp_linear_m qkv, proj;
} tp_vit_attn;
typedef struct tp_vit_attn_cfg {
    int64_t dim;
    int heads;
    double dropout;
} tp_vit_attn_cfg;

/* Part "block", [B,N,D] -> the same: "norm1", "attn", "norm2", "mlp.fc1", "mlp.fc2". */
typedef struct tp_vit_block {
    const char *path;
    double drop_path;
    tp_recompute recompute;
    tp_layernorm_m norm1, norm2;
    tp_vit_attn attn;
    tp_mlp_m mlp;
} tp_vit_block;
typedef struct tp_vit_block_cfg {
    const tp_vit_cfg *model;
    double drop_path;
} tp_vit_block_cfg;

/* DeiT's names and initial values: linear weights, tokens and the table N(0, 0.02), linear biases
 * 0, the rest by the modules' defaults. Images may have any size that holds a patch: for another
 * grid of patches the table of positions is resized (bicubic). */
typedef struct tp_vit {
    const char *path;
    const tp_params *params;
    tp_vit_cfg cfg;
    tp_tensor cls_token, dist_token, pos_embed; /* [1,1,D], [1,1,D] if distilled, [1,g+N,D] */
    tp_conv2d_m patch_embed;
    tp_layernorm_m patch_norm; /* patch_embed.norm, if patch_norm */
    tp_vit_block block[TP_VIT_BLOCKS];
    tp_layernorm_m norm;
    tp_linear_m head, head_dist; /* head_dist: if distilled */
} tp_vit;

/* A table of positions [1,extra+N,D] of a grid from[0] x from[1] for the grid `to`: the first
 * `extra` rows are copied, the others resized as by tp_interpolate. A grid of equal size returns
 * the table itself. */
TP_API tp_tensor tp_resize_positions(tp_tape *T, tp_tensor table, int64_t extra,
                                     const int64_t from[2], const int64_t to[2],
                                     tp_interpolation mode);

/* Distillation (Touvron et al. 2021): (1 - alpha) base + alpha L, where L compares the student's
 * logits `dist` [B,C] with a teacher's [B,C], which gets no gradient. base: a scalar, the loss of
 * the class head. hard: the mean cross entropy with the teacher's most likely classes. soft: tau^2
 * KL(teacher || student) at the temperature tau, divided by the number of elements of the logits,
 * as in DeiT's code. */
typedef struct tp_distill_cfg {
    bool soft;
    double alpha, tau; /* alpha in [0,1]; tau > 0, used by soft only */
} tp_distill_cfg;
TP_API tp_tensor tp_distill_loss(tp_tape *T, tp_tensor base, tp_tensor dist, tp_tensor teacher,
                                 tp_distill_cfg cfg);

extern TP_API const tp_model tp_model_vit;

#ifndef TP_NO_SITE
#define tp_resize_positions(T, ...) tp_resize_positions(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_distill_loss(T, ...)     tp_distill_loss(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#endif

#ifdef __cplusplus
}
#endif
#endif
