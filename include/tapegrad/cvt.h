/* cvt.h - CvT (Wu et al. 2021), CvT* (with full attention at full resolution) and CvT*-LS (Zhu et al.
 * 2021, section 4.3): three stages of convolutional attention. Images are [B,H,W,3], feature maps
 * [B,H,W,D], tokens [B,N,D] row by row. */
#ifndef TAPEGRAD_CVT_H
#define TAPEGRAD_CVT_H

#include <tapegrad/model.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TP_CVT_STAGES     3
#define TP_CVT_MAX_BLOCKS 64 /* of all stages together */

typedef struct tp_cvt_cfg {
    int64_t image[2];           /* height and width, for ranks, windows and costs           */
    int64_t classes, kv_stride; /* kv_stride: of the convolutions before keys and values    */
    int64_t dim[TP_CVT_STAGES];
    int heads[TP_CVT_STAGES], blocks[TP_CVT_STAGES];
    bool long_short;               /* window and dynamic projection instead of full attention */
    int64_t rank[TP_CVT_STAGES];   /* long_short: rank of the dynamic projection, per head     */
    int64_t window[TP_CVT_STAGES]; /* long_short: side w of a chunk of queries, which see
                                      max(1, w/2) rows and columns around it                  */
    bool conv_bias;                /* of the depthwise convolutions                           */
    bool wide_scale;               /* scale logits by 1/sqrt(width), not by 1/sqrt(head size) */
    bool quick_gelu;               /* instead of GELU                                         */
    bool raw_class;                /* the class token is its own query, key and value         */
    bool single_proj;              /* stages with one head also project their output          */
    bool raw_kv;                   /* long_short: keys and values without DualLN              */
    bool biased_ws;                /* long_short: weights standardised by the biased variance */
    bool mean_pool;                /* the mean of the last stage's tokens, no class token     */
    double class_std;              /* initial deviation of the class token                    */
    double drop_path;              /* of the last block; rises from 0 over all blocks or,     */
    bool drop_last_stage;          /* if this is set, over those of the last stage only       */
    tp_recompute recompute;
} tp_cvt_cfg;

typedef enum tp_cvt_name {
    TP_CVT_13,
    TP_CVT_21,
    TP_CVT_W24,
    TP_CVT_STAR_13,
    TP_CVT_STAR_21,
    TP_CVT_LS_13,
    TP_CVT_LS_17,
    TP_CVT_LS_21,
    TP_CVT_LS_21S
} tp_cvt_name;

/* The paper's model for images of size x size, with 1000 classes and with drop path 0.1 where the papers
 * train with it. 224, 384 and 448 differ in ranks and windows of CvT*-LS; other sizes use those of the
 * next smaller one. */
TP_API tp_cvt_cfg tp_cvt_preset(tp_cvt_name name, int64_t size);

/* True if cfg describes a possible model; else why receives a sentence that says what is wrong. */
TP_API bool tp_cvt_cfg_check(const tp_cvt_cfg *cfg, char *why, size_t size);

/* "conv_proj_N.conv", "conv_proj_N.bn", "proj_N": depthwise 3x3, batch norm, linear. */
typedef struct tp_cvt_proj {
    tp_conv2d_m conv;
    tp_batchnorm_m bn;
    tp_linear_m linear;
} tp_cvt_proj;

typedef struct tp_cvt_attn {
    const char *path;
    int64_t heads, rank, window; /* rank 0: full attention                          */
    double scale;
    bool raw_class, biased_ws;
    tp_cvt_proj q, k, v;
    tp_conv2d_m conv_p; /* long-short: "conv_proj_p.conv", standardised, "proj_p"  */
    tp_linear_m proj_p;
    tp_dualln_m dual_ln; /* "dual_ln_full", "dual_ln_dp"; may be absent             */
    tp_linear_m proj;    /* may be absent                                           */
} tp_cvt_attn;
TP_API void tp_cvt_attn_init(tp_params *P, tp_cvt_attn *m, const char *name, const tp_cvt_cfg *cfg,
                             int stage);
/* x [B,c+H*W,D], normalised, with c = 1 if a class token comes first -> the same shape. grid, of shape
 * [H,W,0], gives the size of the map. */
TP_API tp_tensor tp_cvt_attn_forward(tp_tape *T, const tp_cvt_attn *m, tp_tensor x, tp_tensor grid);

typedef struct tp_cvt_block {
    const char *path;
    double drop_path;
    tp_recompute recompute;
    tp_layernorm_m norm1, norm2;
    tp_cvt_attn attn;
    tp_mlp_m mlp;
} tp_cvt_block;
TP_API void tp_cvt_block_init(tp_params *P, tp_cvt_block *m, const char *name,
                              const tp_cvt_cfg *cfg, int stage, double drop_path);
/* x and grid as above. m must live until backward if the block recomputes. */
TP_API tp_tensor tp_cvt_block_forward(tp_tape *T, const tp_cvt_block *m, tp_tensor x,
                                      tp_tensor grid);

/* "patch_embed.proj", "patch_embed.norm": [B,H,W,C] -> [B,H',W',D]. */
typedef struct tp_cvt_embed {
    const char *path;
    tp_conv2d_m proj;
    tp_layernorm_m norm;
} tp_cvt_embed;
TP_API void tp_cvt_embed_init(tp_params *P, tp_cvt_embed *m, const char *name, int64_t in,
                              int64_t out, int64_t kernel, int64_t stride, int64_t pad);
TP_API tp_tensor tp_cvt_embed_forward(tp_tape *T, const tp_cvt_embed *m, tp_tensor x);

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

/* Declares the model, initialised by the official rule: linear weights N(0, 0.02), their biases 0 except
 * the head's, everything else by the modules' defaults. An impossible cfg fails P. */
TP_API void tp_cvt_init(tp_params *P, tp_cvt *m, const char *name, tp_cvt_cfg cfg);
TP_API tp_tensor tp_cvt_forward(tp_tape *T, const tp_cvt *m, tp_tensor images); /* -> [B,classes] */

/* Loads weights of the same model for another resolution. Where the rank is k times that of the file,
 * each row of proj_p is repeated k times and the initial value in P is added as noise (deviation 0.02),
 * so call this before training. False: see tp_params_why. */
TP_API TP_CHECKED bool tp_cvt_load(tp_params *P, const char *path);

extern TP_API const tp_model tp_model_cvt;

#ifndef TP_NO_SITE
/* clang-format off */
#define tp_cvt_attn_forward(T, ...)  tp_cvt_attn_forward(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_cvt_block_forward(T, ...) tp_cvt_block_forward(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_cvt_embed_forward(T, ...) tp_cvt_embed_forward(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_cvt_forward(T, ...)       tp_cvt_forward(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
/* clang-format on */
#endif

#ifdef __cplusplus
}
#endif
#endif
