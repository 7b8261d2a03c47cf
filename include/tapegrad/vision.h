/* vision.h - the image models of the papers (models library): configurations, parameters, forward
 * passes. Images are [B,H,W,3], feature maps [B,H,W,D], tokens [B,N,D] row by row. */
#ifndef TAPEGRAD_VISION_H
#define TAPEGRAD_VISION_H

#include <tapegrad/models.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- ViT-LSLA: light self-limited attention in windows (Hechen et al. 2022) ---- */
enum { TP_VIT_MAX_STAGES = 8, TP_VIT_MAX_BLOCKS = 128 };

typedef enum tp_lsla_variant {
    TP_LSLA_QXX,   /* keys and values are the input itself  */
    TP_LSLA_QXV,   /* values are projected, the result not  */
    TP_LSLA_QKV,   /* keys, values and result are projected */
    TP_LSLA_QXX_NP /* as QXX, but the result not            */
} tp_lsla_variant;

/* The ablations of Tables 4 and 5; { 0 } is the paper's model. */
typedef struct tp_lsla_opts {
    tp_lsla_variant variant;
    bool fixed_scale, no_inner, no_outer;
    bool mask_outer; /* shifted windows: no outer bias between tokens of two borders of the map */
} tp_lsla_opts;

/* Parameters that the options leave out are not created. */
typedef struct tp_lsla_attn_m {
    const char *path;
    tp_lsla_opts opts;
    int heads;
    int64_t window;
    tp_linear_m q, k, v, proj;     /* fc_q, fc_k, fc_v, proj                                    */
    tp_tensor scale, inner, outer; /* dynamic_scale [w^2,w^2], ..._position_bias_table
                                      [(2w-1)^2,H]                                              */
} tp_lsla_attn_m;
TP_API void tp_lsla_attn_init(tp_params *P, tp_lsla_attn_m *m, const char *name, int64_t dim,
                              int heads, int64_t window, tp_lsla_opts opts);
/* x [B,H,W,D] -> [B,H,W,D]; height and width are multiples of the window. */
TP_API tp_tensor tp_lsla_attn_forward(tp_tape *T, const tp_lsla_attn_m *m, tp_tensor x,
                                      int64_t shift);

/* What the attention computes on the way, [B*windows,heads,w^2,w^2], for figures: the scores, the
 * logits (scaled, with inner bias and mask), and the weights before and after the outer bias. In
 * plain ops, with gradients. */
typedef struct tp_lsla_maps {
    tp_tensor scores, logits, before, after;
} tp_lsla_maps;
TP_API tp_lsla_maps tp_lsla_attn_maps(tp_tape *T, const tp_lsla_attn_m *m, tp_tensor x,
                                      int64_t shift);

/* image: height and width that the model is made for; they decide where a map is too small for the
 * window, which then becomes the map's smaller side, without a shift. */
typedef struct tp_vit_lsla_cfg {
    int64_t image[2], classes, dim; /* dim: of the first stage, doubled in each one after it */
    int stages, depths[TP_VIT_MAX_STAGES], heads[TP_VIT_MAX_STAGES];
    int64_t window;
    double mlp_ratio;
    double drop_path; /* of the last block; linear from 0 in the first */
    tp_lsla_opts attn;
    tp_recompute recompute;
} tp_vit_lsla_cfg;

TP_API tp_vit_lsla_cfg tp_vit_lsla_tiny(int64_t classes);  /* 1.0M, 32 x 32: for a first run */
TP_API tp_vit_lsla_cfg tp_vit_lsla_paper(int64_t classes); /* 18.9M, 224 x 224               */

/* NULL if cfg is a possible model, else buf, holding a sentence that says what is wrong. */
TP_API const char *tp_vit_lsla_cfg_check(const tp_vit_lsla_cfg *cfg, char *buf, size_t size);

/* As checkpoint metadata, and back: see tp_lm_cfg_write. */
TP_API void tp_vit_lsla_cfg_write(const tp_vit_lsla_cfg *cfg, tp_writer *W);
TP_API bool tp_vit_lsla_cfg_read(tp_vit_lsla_cfg *cfg, tp_file *F, char *why, size_t size);

/* Two strided convolutions of 3 x 3 with batch norm and hardswish: a quarter of the image. */
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
    int64_t window; /* wanted; attn.window is what the map allows */
    int64_t shift;  /* where the map is larger than the window    */
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
    tp_lsla_opts attn;
    tp_recompute recompute;
} tp_lsla_block_cfg;
TP_API void tp_lsla_block_init(tp_params *P, tp_lsla_block *m, const char *name,
                               const tp_lsla_block_cfg *cfg);
/* x [B,H,W,D], which m was made for or whose windows are as large. m must live until backward if it
 * recomputes. */
TP_API tp_tensor tp_lsla_block_forward(tp_tape *T, const tp_lsla_block *m, tp_tensor x);

/* Between stages: a strided convolution of 3 x 3, then a norm. */
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
    tp_lsla_merge merge[TP_VIT_MAX_STAGES]; /* after stage i, but the last        */
    tp_layernorm_m norm;
    tp_linear_m head;
} tp_vit_lsla;
/* Declares the model: matrices, stem and tables normal, scales 1/sqrt(D), the rest of the
 * convolutions as PyTorch's, biases 0. An impossible cfg fails P. */
TP_API void tp_vit_lsla_init(tp_params *P, tp_vit_lsla *m, const char *name, tp_vit_lsla_cfg cfg);
/* images [B,H,W,3] -> logits [B,classes]. Any size whose maps divide into windows as large as those
 * of cfg.image. */
TP_API tp_tensor tp_vit_lsla_forward(tp_tape *T, const tp_vit_lsla *m, tp_tensor images);

/* Loads weights of the same model for another image size: where the windows differ, tables and
 * scales are resized over positions (bicubic). All names of P must be there. False: see
 * tp_params_why. */
TP_API bool tp_vit_lsla_load(tp_params *P, const char *file);

/* One image of cfg.image, and what a recorded forward pass keeps of it for backward. */
TP_API tp_flops tp_vit_lsla_flops(const tp_vit_lsla_cfg *cfg);
TP_API double tp_vit_lsla_activations(const tp_vit_lsla_cfg *cfg);

/* ---- CvT (Wu et al. 2021), CvT* (its re-implementation with full attention at full resolution),
 * CvT*-LS (Zhu et al. 2021, section 4.3): three stages of convolutional attention ---- */
#define TP_CVT_STAGES     3
#define TP_CVT_MAX_BLOCKS 64 /* of all stages together */

typedef struct tp_cvt_cfg {
    int64_t classes, kv_stride; /* stride of the convolutions in front of keys and values */
    int64_t dim[TP_CVT_STAGES];
    int heads[TP_CVT_STAGES], blocks[TP_CVT_STAGES];
    bool long_short;               /* window and dynamic projection instead of full attention */
    int64_t rank[TP_CVT_STAGES];   /* long_short: of the dynamic projection, for each head     */
    int64_t window[TP_CVT_STAGES]; /* long_short: side w of a group of queries; they see
                                      max(1, w/2) rows and columns around it                  */
    bool conv_bias;                /* of the depthwise convolutions                           */
    bool wide_scale;               /* logits times 1/sqrt(width), not 1/sqrt(width of a head) */
    bool quick_gelu;               /* instead of GELU                                         */
    bool raw_class;                /* query, key and value of the class token: itself         */
    bool single_proj;              /* a stage of one head projects its output too             */
    bool no_dual_ln;               /* long_short: without both norms of keys and values       */
    bool biased_ws;                /* long_short: weights standardised with biased variance   */
    bool mean_pool;                /* no class token: the mean of the last stage's tokens     */
    double class_std;              /* initial deviation of the class token                    */
    double drop_path;              /* of the last block; rises from 0 over all blocks         */
    bool drop_last_stage;          /* ... over those of the last stage, others drop nothing   */
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

/* The paper's model for images of size x size: 224, 384 and 448 differ in ranks and windows of
 * CvT*-LS; others get those of the size below. ImageNet's 1000 classes, drop path 0.1 where the
 * papers train with it. */
TP_API tp_cvt_cfg tp_cvt_preset(tp_cvt_name name, int64_t size);

/* NULL if cfg is a possible model, else buf, holding a sentence that says what is wrong. */
TP_API const char *tp_cvt_cfg_check(const tp_cvt_cfg *cfg, char *buf, size_t size);

/* As tp_lm_cfg_write and tp_lm_cfg_read. */
TP_API void tp_cvt_cfg_write(const tp_cvt_cfg *cfg, tp_writer *W);
TP_API bool tp_cvt_cfg_read(tp_cvt_cfg *cfg, tp_file *F, char *why, size_t size);

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
/* x [B,c+H*W,D], normalised, c = 1 with a class token in front -> the same shape. grid [H,W,0]
 * says where rows end. */
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
/* x and grid as above; m must live until backward if it recomputes. */
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

/* Declares the model, initialised by the official rule: linear weights N(0, 0.02), their biases 0
 * but the head's, everything else as modules do. An impossible cfg fails P. */
TP_API void tp_cvt_init(tp_params *P, tp_cvt *m, const char *name, tp_cvt_cfg cfg);
TP_API tp_tensor tp_cvt_forward(tp_tape *T, const tp_cvt *m, tp_tensor images); /* -> [B,classes] */

/* Loads weights of the same model for another resolution: where this one's rank is k times theirs,
 * each row of proj_p is repeated k times and the initial value of P added as noise (deviation
 * 0.02). Call before training changes P. False: see tp_params_why. */
TP_API bool tp_cvt_load(tp_params *P, const char *file);

/* One image of height x width, and the bytes that a recorded forward pass in training mode keeps of
 * it for backward, f32. */
TP_API tp_flops tp_cvt_flops(const tp_cvt_cfg *cfg, int64_t height, int64_t width);
TP_API double tp_cvt_activations(const tp_cvt_cfg *cfg, int64_t height, int64_t width);

/* ---- Vision Longformer (Zhang et al. 2021) and its long-short form (Zhu et al. 2021, 4.3): three
 * or four scales of a Transformer, with any of seven attentions; official computation ---- */
#define TP_VIL_MAX_STAGES 4
#define TP_VIL_MAX_BLOCKS 64
#define TP_VIL_MAX_SIZE   (1 << 16) /* of an image, width, window, number of features ... */

typedef enum tp_vil_kind {
    TP_VIL_WINDOW,    /* the chunks around a token's own, and the global tokens  */
    TP_VIL_GLOBAL,    /* the global tokens only                                  */
    TP_VIL_FULL,      /* all tokens                                              */
    TP_VIL_LINFORMER, /* `feature` mixtures of all tokens (Wang et al. 2020)     */
    TP_VIL_SRA,       /* a map reduced by `feature` (Wang et al. 2021)           */
    TP_VIL_PERFORMER, /* `feature` random features (Choromanski et al. 2021)     */
    TP_VIL_LS         /* a window and `rank` dynamic projections (ViL-LS)        */
} tp_vil_kind;

/* tp_vil_cfg.shift beside 0, TP_BLOCK_OWN and 1..8: one of the eight neighbours, drawn in training
 * for each attention and call from the tape's random stream. A recorded step (tp_capture_begin)
 * repeats what it drew. */
enum { TP_VIL_SHIFT_RANDOM = 9 };

typedef struct tp_vil_stage {
    int heads, blocks;
    int64_t dim, patch; /* width; side and stride of the patches of the map before */
    int64_t global;     /* tokens, g                                               */
    int64_t feature;    /* the letter f: window, or as tp_vil_kind says            */
    int rank;
    bool dense;    /* full attention whatever the model's kind                           */
    bool absolute; /* tables of positions are added to the tokens; else the attention (window, full,
                      LS) has a relative bias                                            */
} tp_vil_stage;

typedef struct tp_vil_cfg {
    tp_vil_kind kind;
    int stages;
    tp_vil_stage stage[TP_VIL_MAX_STAGES];
    int64_t image[2]; /* rows and columns, for which tables of positions are made */
    int64_t classes;
    double drop_path; /* of the last block; rises linearly from 0 at the first    */
    tp_edge edge;     /* of windows: TP_EDGE_MASK, as all published models        */
    int shift;        /* of windows: TP_BLOCK_ALL (0), or what training sees instead */
    bool avg_pool;    /* the head takes the mean of all tokens even if there are global ones */
    /* options beside the published models (all false): */
    bool mask_wrapped;    /* tp_window_cfg's                                            */
    bool separate_global; /* windows: global queries have projections of their own      */
    bool separate_kv;     /* Linformer: keys and values are mixed by two matrices       */
    bool distinct_bias;   /* LS: no two offsets share an entry of the table             */
    bool no_norm_embed, no_qkv_bias;
    tp_recompute recompute;
} tp_vil_cfg;

/* Stages in the notation of the official code: "l1,h3,d96,n1,s1,g1,p4,f7,a0_l2,...", one to four,
 * s0 holding for all later stages too. Only cfg->stages and stage are set. False: why is filled. */
TP_API bool tp_vil_parse(tp_vil_cfg *cfg, const char *text, char *why, size_t size);
/* The same notation of cfg's stages, cut if buf is too small. */
TP_API void tp_vil_notation(const tp_vil_cfg *cfg, char *buf, size_t size);

/* A published model: "vil-SHAPE-ATTENTION", then "-384" for images of that side instead of 224.
 * SHAPE: tiny, small, medium, base, medium-wide, base-wide, swin-tiny, swin-small, or tiny or small
 * with 1-2-8-1, 1-1-9-1, 1-1-8-2, 1-10-1, 2-9-1, 1-9-2, 2-8-2 blocks ("small-1-2-8-1"), or as one
 * stage of 12 blocks with patches of 16 pixels ("small-flat": "small-flat-full" is E-ViT).
 * ATTENTION: ape, rpb (ViL with absolute or relative positions), ls (ViL-LS), full, linformer,
 * sra64, sra32, global, performer, or partial-linformer, -sra32, -global, -performer. */
TP_API bool tp_vil_preset(tp_vil_cfg *cfg, const char *name, char *why, size_t size);

/* NULL if cfg is a possible model, else buf, holding a sentence that says what is wrong. */
TP_API const char *tp_vil_cfg_check(const tp_vil_cfg *cfg, char *buf, size_t size);

/* The configuration as checkpoint metadata and back; as tp_lm_cfg_write, tp_lm_cfg_read. */
TP_API void tp_vil_cfg_write(const tp_vil_cfg *cfg, tp_writer *W);
TP_API bool tp_vil_cfg_read(tp_vil_cfg *cfg, tp_file *F, char *why, size_t size);

/* Patches [B,H,W,C] -> tokens [B,g+N,d]; rows and columns left over are dropped. */
typedef struct tp_vil_embed {
    const char *path;
    tp_conv2d_m proj;
    tp_layernorm_m norm;                      /* path NULL: none                               */
    tp_tensor cls, cls_pos, row_pos, col_pos; /* [1,g,d], [1,g,d], [1,height,d/2], [1,width,d/2] */
} tp_vil_embed;
TP_API void tp_vil_embed_init(tp_params *P, tp_vil_embed *m, const char *name, int64_t in,
                              const tp_vil_cfg *cfg, int stage);
/* size: receives height and width of the map. The tables may be longer than the map. */
TP_API tp_tensor tp_vil_embed_forward(tp_tape *T, const tp_vil_embed *m, tp_tensor x,
                                      int64_t size[2]);

/* Any of the attentions, projections included; names as in the official checkpoints. */
typedef struct tp_vil_attn {
    const char *path;
    tp_vil_kind kind;
    tp_vil_stage stage;
    int64_t map[2]; /* the configured one: full attention with a bias and Linformer want it */
    tp_edge edge;
    int shift; /* may be changed between steps (tp_vil_set_shift) */
    bool mask_wrapped, separate_global, distinct_bias;
    tp_linear_m qkv;       /* [3d,d]: full, performer, LS                         */
    tp_linear_m query, kv; /* [d,d], [2d,d]: the others                           */
    tp_linear_m query_global, kv_global, proj_global;
    tp_linear_m proj;
    tp_tensor table;               /* relative bias of the map's tokens [rows,H]          */
    tp_tensor g2l, g2g;            /* [2,H,g]: global to local, local to global; [H,g,g]  */
    tp_tensor proj_k, proj_v;      /* Linformer [g+N,K]                                   */
    tp_conv2d_m proj_sr;           /* SRA                                                 */
    tp_tensor features;            /* Performer: buffer [m,D]                             */
    tp_linear_m dynamic;           /* LS: to_dynamic_projection [H*r,d]                   */
    tp_layernorm_m ln_full, ln_dp; /* LS: of keys and values, of their projections        */
} tp_vil_attn;
TP_API void tp_vil_attn_init(tp_params *P, tp_vil_attn *m, const char *name, const tp_vil_cfg *cfg,
                             int stage);
/* x [B,g+N,d], tokens of a map of that size -> [B,g+N,d] */
TP_API tp_tensor tp_vil_attn_forward(tp_tape *T, const tp_vil_attn *m, tp_tensor x,
                                     const int64_t size[2]);

typedef struct tp_vil_block {
    tp_layernorm_m norm1, norm2;
    tp_vil_attn attn;
    tp_mlp_m mlp;
    double drop_path;
    tp_recompute recompute;
} tp_vil_block;
/* attention, mlp: names of the two halves. */
TP_API void tp_vil_block_init(tp_params *P, tp_vil_block *m, const char *attention, const char *mlp,
                              const tp_vil_cfg *cfg, int stage);
/* m must live until backward if it recomputes. */
TP_API tp_tensor tp_vil_block_forward(tp_tape *T, const tp_vil_block *m, tp_tensor x,
                                      const int64_t size[2]);

typedef struct tp_vil {
    const char *path;
    const tp_params *params;
    tp_vil_cfg cfg;
    tp_vil_embed embed[TP_VIL_MAX_STAGES];
    tp_vil_block block[TP_VIL_MAX_BLOCKS]; /* of all stages, in order */
    int blocks;
    tp_layernorm_m norm;
    tp_linear_m head;
} tp_vil;

/* Declares the model, initialised by the official rule: linear weights, tokens and tables
 * N(0, 0.02), convolutions and Linformer's mixtures PyTorch's default, biases 0, norms 1 and 0;
 * Performer's features N(0, 1) until tp_vil_redraw. An impossible cfg fails P. */
TP_API void tp_vil_init(tp_params *P, tp_vil *m, const char *name, tp_vil_cfg cfg);

/* images -> logits [B,classes]. Other sizes than the configured one are possible where no table or
 * mixture of a fixed size stands in the way. */
TP_API tp_tensor tp_vil_forward(tp_tape *T, const tp_vil *m, tp_tensor images);

/* The two halves of it. trunk: the tokens of the last stage, before the final norm; out, if not
 * NULL, receives what leaves each stage: all tokens, and the map [B,height,width,d] of the local
 * ones. */
typedef struct tp_vil_out {
    tp_tensor tokens, map;
} tp_vil_out;
TP_API tp_tensor tp_vil_trunk(tp_tape *T, const tp_vil *m, tp_tensor images, tp_vil_out *out);
TP_API tp_tensor tp_vil_head(tp_tape *T, const tp_vil *m, tp_tensor tokens);

/* Loads weights of the same model for another resolution or window, also the official ones: tables
 * of positions are resized (bilinear), of a head with more classes the first rows are taken, other
 * tensors of another shape keep their values. What the model has no counterpart for is passed over.
 * Tables of maps that are not square need the file's own metadata; those of ViL-LS, whose entries
 * collide, cannot be resized. False: see tp_params_why. */
TP_API bool tp_vil_load(tp_params *P, const tp_vil *m, const char *file);

/* That resizing: x [from0,from1,channels] -> y [to0,to1,channels]. */
TP_API void tp_vil_resize(const double *x, const int64_t from[2], double *y, const int64_t to[2],
                          int64_t channels);

/* One image of cfg.image. paper: by the rule that the figures of the ViL paper follow
 * (vil_flops.c).
 */
TP_API tp_flops tp_vil_flops(const tp_vil_cfg *cfg, bool paper);
/* Bytes that a recorded forward pass of it keeps for backward, f32, within a tenth; Performer's
 * more roughly. */
TP_API double tp_vil_activations(const tp_vil_cfg *cfg);

/* New orthogonal random features for every Performer attention, those of the draw-th time.
 * Upstream: before the first step, and before the forward pass that follows I + 1 ones of training
 * since the last time, I = 1 + 5 epoch, epochs counted from 0 (detection: I = 1000). */
TP_API bool tp_vil_redraw(tp_params *P, const tp_vil *m, uint64_t seed, uint64_t draw);

/* What windows see in training from here on: see tp_vil_cfg.shift. */
TP_API void tp_vil_set_shift(tp_vil *m, int shift);

#ifndef TP_NO_SITE
/* clang-format off */
#define tp_lsla_attn_forward(T, ...)  tp_lsla_attn_forward(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_lsla_attn_maps(T, ...)     tp_lsla_attn_maps(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_lsla_stem_forward(T, ...)  tp_lsla_stem_forward(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_lsla_block_forward(T, ...) tp_lsla_block_forward(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_lsla_merge_forward(T, ...) tp_lsla_merge_forward(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_vit_lsla_forward(T, ...)   tp_vit_lsla_forward(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_cvt_attn_forward(T, ...)  tp_cvt_attn_forward(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_cvt_block_forward(T, ...) tp_cvt_block_forward(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_cvt_embed_forward(T, ...) tp_cvt_embed_forward(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_cvt_forward(T, ...)       tp_cvt_forward(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_vil_embed_forward(T, ...) tp_vil_embed_forward(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_vil_attn_forward(T, ...)  tp_vil_attn_forward(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_vil_block_forward(T, ...) tp_vil_block_forward(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_vil_forward(T, ...)       tp_vil_forward(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_vil_trunk(T, ...)         tp_vil_trunk(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_vil_head(T, ...)          tp_vil_head(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
/* clang-format on */
#endif

#ifdef __cplusplus
}
#endif
#endif
