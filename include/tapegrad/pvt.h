/* pvt.h - the Pyramid Vision Transformers PVT (Wang et al. 2021) and PVTv2 (Wang et al. 2022), also
 * with linear attention: four stages whose keys and values are reduced in space. Images are
 * [B,H,W,3], feature maps [B,H,W,D]. */
#ifndef TAPEGRAD_PVT_H
#define TAPEGRAD_PVT_H

#include <tapegrad/model.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TP_PVT_STAGES     4
#define TP_PVT_MAX_BLOCKS 64 /* in all stages */

typedef enum tp_pvt_kind {
    TP_PVT, /* tables of positions, a class token in the last stage */
    /* overlapping patches, a depthwise convolution in feed-forward networks, a norm after each
     * stage, the mean of the last map */
    TP_PVT2,
    /* PVT2 with keys and values from a map pooled to a fixed size */
    TP_PVT2_LINEAR
} tp_pvt_kind;

typedef struct tp_pvt_cfg {
    int64_t image[2]; /* height and width for the tables of positions */
    int64_t classes;  /* 0: a backbone without class token, last norm of PVT and head */
    tp_pvt_kind kind;
    int64_t dim[TP_PVT_STAGES];
    int heads[TP_PVT_STAGES], blocks[TP_PVT_STAGES];
    /* R: keys and values come from R x R tokens; not TP_PVT2_LINEAR */
    int64_t reduction[TP_PVT_STAGES];
    int64_t mlp_ratio[TP_PVT_STAGES]; /* hidden channels of feed-forward networks divided by dim */
    int64_t pool;                     /* TP_PVT2_LINEAR: side of the pooled map, else 0 */
    double drop_path;                 /* of the last block; rises from 0 over all blocks */
    tp_recompute recompute;
} tp_pvt_cfg;

/* Part "attn", [B,H,W,D] -> the same, attention with reduced keys and values: "q", "kv" [2D,D]
 * (rows of keys, then values), "proj"; "sr" and "norm" where keys and values are reduced. with: a
 * residual to which the result is added, or NULL. Rows and columns left over by a reduction are not
 * keys. Without reduction any tokens may come as [B,1,N,D]. */
typedef struct tp_pvt_attn {
    const char *path;
    int heads;
    int64_t pool; /* 0: a convolution with stride reduces the map */
    tp_linear_m q, kv, proj;
    tp_conv2d_m sr; /* without weight if nothing is reduced */
    tp_layernorm_m norm;
} tp_pvt_attn;

/* The configuration of both parts. */
typedef struct tp_pvt_block_cfg {
    const tp_pvt_cfg *model;
    int stage;
    double drop_path;
} tp_pvt_block_cfg;

/* Part "block", [B,H,W,D] -> the same: "norm1", "attn", "norm2", "mlp.fc1", "mlp.fc2"; PVT2:
 * "mlp.dwconv.dwconv". */
typedef struct tp_pvt_block {
    const char *path;
    tp_pvt_kind kind;
    double drop_path;
    tp_recompute recompute;
    tp_layernorm_m norm1, norm2;
    tp_pvt_attn attn;
    tp_mlp_m mlp;
    tp_conv2d_m dwconv; /* PVT2 */
} tp_pvt_block;

typedef struct tp_pvt_stage {
    tp_conv2d_m proj; /* "patch_embedK.proj", "patch_embedK.norm", K from 1 to 4 */
    tp_layernorm_m patch_norm;
    tp_tensor pos_embed; /* PVT: "pos_embedK" [1,N,D], of the last stage [1,1+N,D] */
    tp_layernorm_m norm; /* PVT2: "normK" */
    int first;           /* index of its first block */
} tp_pvt_stage;

/* The official code's names and initial values: linear weights, the class token and tables N(0,
 * 0.02), linear biases 0; PVT2's convolutions N(0, sqrt(2 / fan out)) with bias 0; the rest by the
 * modules' defaults. Images may have any size: for another size PVT's tables of positions are
 * resized (bilinear). */
typedef struct tp_pvt {
    const char *path;
    const tp_params *params;
    tp_pvt_cfg cfg;
    tp_pvt_stage stage[TP_PVT_STAGES];
    tp_tensor cls_token; /* PVT with classes: [1,1,D] */
    tp_pvt_block block[TP_PVT_MAX_BLOCKS];
    tp_layernorm_m norm; /* PVT with classes */
    tp_linear_m head;
} tp_pvt;

extern TP_API const tp_model tp_model_pvt;

#ifdef __cplusplus
}
#endif
#endif
