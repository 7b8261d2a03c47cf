/* cvt.h - CvT (Wu et al. 2021), CvT* (with full attention at full resolution) and CvT*-LS (Zhu et
 * al. 2021, section 4.3): three stages of convolutional attention. Images are [B,H,W,3], feature
 * maps [B,H,W,D], tokens [B,N,D] row by row. */
#ifndef TAPEGRAD_CVT_H
#define TAPEGRAD_CVT_H

#include <tapegrad/model.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TP_CVT_STAGES     3
#define TP_CVT_MAX_BLOCKS 64 /* in all stages */

typedef struct tp_cvt_cfg {
    int64_t image[2];           /* height and width, for ranks, windows and costs */
    int64_t classes, kv_stride; /* kv_stride: of the convolutions before keys and values */
    int64_t dim[TP_CVT_STAGES];
    int heads[TP_CVT_STAGES], blocks[TP_CVT_STAGES];
    bool long_short;             /* window and dynamic projection instead of full attention */
    int64_t rank[TP_CVT_STAGES]; /* long_short: rank of the dynamic projection, per head */
    /* long_short: side w of a chunk of queries, which see max(1, w/2) rows and columns around it */
    int64_t window[TP_CVT_STAGES];
    bool conv_bias;       /* of the depthwise convolutions */
    bool wide_scale;      /* scale logits by 1/sqrt(width), not by 1/sqrt(head size) */
    bool quick_gelu;      /* instead of GELU */
    bool raw_class;       /* the class token is its own query, key and value */
    bool single_proj;     /* stages with one head also project their output */
    bool raw_kv;          /* long_short: keys and values without DualLN */
    bool biased_ws;       /* long_short: weights standardised by the biased variance */
    bool mean_pool;       /* the mean of the last stage's tokens, no class token */
    double class_std;     /* initial deviation of the class token */
    double drop_path;     /* of the last block; it rises from 0 */
    bool drop_last_stage; /* it rises over the last stage only */
    tp_recompute recompute;
} tp_cvt_cfg;

/* "conv_proj_N.conv", "conv_proj_N.bn", "proj_N": depthwise 3x3, batch norm, linear. */
typedef struct tp_cvt_proj {
    tp_conv2d_m conv;
    tp_batchnorm_m bn;
    tp_linear_m linear;
} tp_cvt_proj;

/* Part "attn", [B,c+H*W,D] -> the same shape: x is normalised, and c = 1 if a class token comes
 * first. with: a tensor of shape [H,W,0], which gives the size of the map. */
typedef struct tp_cvt_attn {
    const char *path;
    int64_t heads, rank, window; /* rank 0: full attention */
    double scale;
    bool raw_class, biased_ws;
    tp_cvt_proj q, k, v;
    tp_conv2d_m conv_p; /* long-short: "conv_proj_p.conv", standardised, "proj_p" */
    tp_linear_m proj_p;
    tp_dualln_m dual_ln; /* "dual_ln_full", "dual_ln_dp"; may be absent */
    tp_linear_m proj;    /* may be absent */
} tp_cvt_attn;

/* Part "block", whose input and `with` are those of the attention. */
typedef struct tp_cvt_block {
    const char *path;
    double drop_path;
    tp_recompute recompute;
    tp_layernorm_m norm1, norm2;
    tp_cvt_attn attn;
    tp_mlp_m mlp;
} tp_cvt_block;

/* The configuration of both parts. */
typedef struct tp_cvt_block_cfg {
    const tp_cvt_cfg *model;
    int stage;
    double drop_path;
} tp_cvt_block_cfg;

/* Part "embed", "patch_embed.proj", "patch_embed.norm": [B,H,W,C] -> [B,H',W',D]. */
typedef struct tp_cvt_embed {
    const char *path;
    tp_conv2d_m proj;
    tp_layernorm_m norm;
} tp_cvt_embed;
typedef struct tp_cvt_embed_cfg {
    int64_t in, out, kernel, stride, pad;
} tp_cvt_embed_cfg;

/* Initialised by the official rule: linear weights N(0, 0.02), their biases 0 except the head's,
 * everything else by the modules' defaults. Weights of another resolution: where the rank is k
 * times that of the file, each row of proj_p is repeated k times and the initial value is added as
 * noise (deviation 0.02), so load them before training. */
typedef struct tp_cvt {
    const char *path;
    const tp_params *params;
    tp_cvt_cfg cfg;
    tp_cvt_embed embed[TP_CVT_STAGES];
    tp_tensor cls_token; /* [1,1,D], absent with mean_pool */
    tp_cvt_block block[TP_CVT_MAX_BLOCKS];
    tp_layernorm_m norm;
    tp_linear_m head;
} tp_cvt;

extern TP_API const tp_model tp_model_cvt;

#ifdef __cplusplus
}
#endif
#endif
