/* swin.h - Swin Transformer (Liu et al. 2021): softmax attention with relative biases in windows, which
 * every second block shifts. Images are [B,H,W,3], feature maps [B,H,W,D]. */
#ifndef TAPEGRAD_SWIN_H
#define TAPEGRAD_SWIN_H

#include <tapegrad/conv_norm.h>
#include <tapegrad/model.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TP_SWIN_MAX_STAGES = 8, TP_SWIN_MAX_BLOCKS = 128 };

/* Attention in windows: "qkv", "proj", "relative_position_bias_table" [(2 rows - 1)(2 columns - 1),H].
 * An impossible size fails P. */
typedef struct tp_swin_attn {
    const char *path;
    int heads;
    int64_t window[2]; /* rows and columns */
    tp_linear_m qkv, proj;
    tp_tensor table;
} tp_swin_attn;
TP_API void tp_swin_attn_init(tp_params *P, tp_swin_attn *m, const char *name, int64_t dim,
                              int heads, const int64_t window[2]);
/* x [B,H,W,D] -> the same shape; height and width must be multiples of the window. With a shift the
 * map is rolled up and left before it is divided, tokens that meet there without being neighbours get
 * -100 in their logits, and the window must be a square. */
TP_API tp_tensor tp_swin_attn_forward(tp_tape *T, const tp_swin_attn *m, tp_tensor x,
                                      int64_t shift);

/* x + attn(norm1(x)), then x + mlp(norm2(x)). */
typedef struct tp_swin_block {
    const char *path;
    int64_t window; /* as configured; attn.window is what the map allows */
    int64_t shift;  /* used if the map is larger than the window         */
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
TP_API void tp_swin_block_init(tp_params *P, tp_swin_block *m, const char *name,
                               tp_swin_block_cfg cfg);
/* x [B,H,W,D] -> the same shape. x has the size that m was made for or one with equal windows. m must
 * live until backward if the block recomputes. */
TP_API tp_tensor tp_swin_block_forward(tp_tape *T, const tp_swin_block *m, tp_tensor x);

/* Patch merging: the four tokens of each 2 x 2 cell, column by column, are joined, normalised and
 * projected: "norm", "reduction". [B,H,W,D] -> [B,H/2,W/2,2 D], both sides even */
typedef struct tp_swin_merge {
    const char *path;
    tp_layernorm_m norm;
    tp_linear_m reduction;
} tp_swin_merge;
TP_API void tp_swin_merge_init(tp_params *P, tp_swin_merge *m, const char *name, int64_t dim);
TP_API tp_tensor tp_swin_merge_forward(tp_tape *T, const tp_swin_merge *m, tp_tensor x);

/* image is the height and width that the model is made for. Where a map is too small for the window, the
 * window becomes the map's smaller side, without a shift. */
typedef struct tp_swin_cfg {
    int64_t image[2], classes, dim; /* dim: of the first stage, doubled in each one after it */
    int stages, depths[TP_SWIN_MAX_STAGES], heads[TP_SWIN_MAX_STAGES];
    int64_t window;
    double mlp_ratio;
    double drop_path; /* of the last block; linear from 0 in the first */
    bool ape;         /* a position embedding is added to the patches  */
    tp_recompute recompute;
} tp_swin_cfg;

/* True if cfg describes a possible model; else why receives a sentence that says what is wrong. */
TP_API bool tp_swin_cfg_check(const tp_swin_cfg *cfg, char *why, size_t size);

typedef struct tp_swin {
    const char *path;
    const tp_params *params;
    tp_swin_cfg cfg;
    tp_conv_norm embed;                      /* patches of 4 x 4 pixels */
    tp_tensor ape;                           /* [1,tokens,dim], absent unless cfg.ape     */
    tp_swin_block block[TP_SWIN_MAX_BLOCKS]; /* of all stages, one after the other        */
    tp_swin_merge merge[TP_SWIN_MAX_STAGES]; /* after stage i, except the last            */
    tp_layernorm_m norm;
    tp_linear_m head;
} tp_swin;

/* Declares the model, initialised as the official code: matrices and tables N(0, 0.02), biases 0, the
 * patches' convolution by PyTorch's default. An impossible cfg fails P. */
TP_API void tp_swin_init(tp_params *P, tp_swin *m, const char *name, tp_swin_cfg cfg);

/* images [B,H,W,3] -> logits [B,classes]. Images may have any size whose maps divide into windows of
 * the same size as those of cfg.image; with a position embedding only that size. */
TP_API tp_tensor tp_swin_forward(tp_tape *T, const tp_swin *m, tp_tensor images);

/* Loads weights of the same model for another image size. Where windows differ, tables are resized over
 * positions, and so is the position embedding (bicubic). The file must contain all names of P.
 * False: see tp_params_why. */
TP_API TP_CHECKED bool tp_swin_load(tp_params *P, const tp_swin *m, const char *path);

extern TP_API const tp_model tp_model_swin;

#ifndef TP_NO_SITE
/* clang-format off */
#define tp_swin_attn_forward(T, ...)  tp_swin_attn_forward(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_swin_block_forward(T, ...) tp_swin_block_forward(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_swin_merge_forward(T, ...) tp_swin_merge_forward(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_swin_forward(T, ...)       tp_swin_forward(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
/* clang-format on */
#endif

#ifdef __cplusplus
}
#endif
#endif
