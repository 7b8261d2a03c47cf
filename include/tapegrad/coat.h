/* coat.h - CoaT-Lite (Xu et al. 2021): factorised attention with convolutional position encodings, in
 * four stages with a class token each. MPViT has the same blocks. Images are [B,H,W,3], tokens [B,c+N,D]
 * row by row, after a class token if c = 1. */
#ifndef TAPEGRAD_COAT_H
#define TAPEGRAD_COAT_H

#include <tapegrad/conv_norm.h>
#include <tapegrad/model.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TP_COAT_STAGES = 4, TP_COAT_MAX_BLOCKS = 64, TP_COAT_KERNELS = 4 };

/* The depthwise convolutions of the relative encoding: the first heads[0] heads have kernel[0], and so on.
 * The published models have 8 heads and kernels of 3, 5 and 7 for 2, 3 and 3 of them. */
typedef struct tp_coat_kernels {
    int n, kernel[TP_COAT_KERNELS], heads[TP_COAT_KERNELS]; /* kernels are odd */
} tp_coat_kernels;
TP_API extern const tp_coat_kernels tp_coat_published;

/* Encodings that all blocks of a stage (in MPViT of a path) share: "proj" of the positions, "conv_list.N"
 * of the relative ones. */
typedef struct tp_coat_shared {
    tp_conv2d_m cpe;                   /* 3 x 3 */
    tp_conv2d_m crpe[TP_COAT_KERNELS]; /* of some heads' channels each */
    tp_coat_kernels kernels;
    const char *cpe_path, *crpe_path;
} tp_coat_shared;
/* cpe, crpe: the names of the two; NULL: that one is not declared. Impossible sizes fail P. */
TP_API void tp_coat_shared_init(tp_params *P, tp_coat_shared *m, const char *cpe, const char *crpe,
                                int64_t dim, const tp_coat_kernels *kernels);

/* map + conv(map) of the tokens x [B,c+H*W,D]; a class token stays. grid, of shape [H,W,0], gives the size
 * of the map. */
TP_API tp_tensor tp_coat_cpe_forward(tp_tape *T, const tp_coat_shared *m, tp_tensor x,
                                     tp_tensor grid);

/* Factorised attention: in each head q (softmax(k)^T v) / sqrt(d) + q * conv(v), the softmax over all
 * tokens, the second term for tokens of the map only; then "proj". */
typedef struct tp_coat_attn {
    const char *path;
    int heads;
    tp_linear_m qkv, proj;
    tp_coat_shared shared; /* a copy: the parameters are those of the stage */
} tp_coat_attn;
TP_API void tp_coat_attn_init(tp_params *P, tp_coat_attn *m, const char *name, int64_t dim,
                              int heads, const tp_coat_shared *shared);
TP_API tp_tensor tp_coat_attn_forward(tp_tape *T, const tp_coat_attn *m, tp_tensor x,
                                      tp_tensor grid);

/* x = cpe(x), then x + attention(norm1(x)), then x + mlp(norm2(x)); the norms' epsilon is 1e-6. */
typedef struct tp_coat_block {
    const char *path;
    double drop_path;
    tp_recompute recompute;
    tp_layernorm_m norm1, norm2;
    tp_coat_attn attn; /* "factoratt_crpe" */
    tp_mlp_m mlp;
} tp_coat_block;
typedef struct tp_coat_block_cfg {
    int64_t dim;
    int heads;
    double mlp_ratio, drop_path;
    tp_recompute recompute;
} tp_coat_block_cfg;
TP_API void tp_coat_block_init(tp_params *P, tp_coat_block *m, const char *name,
                               tp_coat_block_cfg cfg, const tp_coat_shared *shared);
/* x and grid as above. m must live until backward if the block recomputes. */
TP_API tp_tensor tp_coat_block_forward(tp_tape *T, const tp_coat_block *m, tp_tensor x,
                                       tp_tensor grid);

/* ---- CoaT-Lite ---- */

typedef struct tp_coat_cfg {
    int64_t image[2], classes; /* image: height and width that costs are for; multiples of 32 */
    int64_t dim[TP_COAT_STAGES];
    int depths[TP_COAT_STAGES], mlp_ratio[TP_COAT_STAGES], heads;
    tp_coat_kernels kernels;
    double drop_path; /* of every block */
    tp_recompute recompute;
} tp_coat_cfg;

/* True if cfg describes a possible model; else why receives a sentence that says what is wrong. */
TP_API bool tp_coat_cfg_check(const tp_coat_cfg *cfg, char *why, size_t size);

typedef struct tp_coat {
    const char *path;
    const tp_params *params;
    tp_coat_cfg cfg;
    tp_tensor cls_token[TP_COAT_STAGES];   /* [1,1,D] */
    tp_conv_norm embed[TP_COAT_STAGES];    /* "patch_embedN": 4 x 4, then 2 x 2 */
    tp_coat_shared shared[TP_COAT_STAGES]; /* "cpeN", "crpeN" */
    tp_coat_block block[TP_COAT_MAX_BLOCKS];
    tp_layernorm_m
        norm[TP_COAT_STAGES]; /* "normN": published, and frozen, but for the last not used */
    tp_linear_m head;
} tp_coat;

/* Declares the model, initialised as the official code: matrices and class tokens N(0, 0.02), biases 0,
 * convolutions by PyTorch's default. Each block has the shared encodings under second names, as in
 * published files. An impossible cfg fails P. */
TP_API void tp_coat_init(tp_params *P, tp_coat *m, const char *name, tp_coat_cfg cfg);

/* images [B,H,W,3] -> logits [B,classes]; sides must be multiples of 32. */
TP_API tp_tensor tp_coat_forward(tp_tape *T, const tp_coat *m, tp_tensor images);

extern TP_API const tp_model tp_model_coat;

#ifndef TP_NO_SITE
/* clang-format off */
#define tp_coat_cpe_forward(T, ...)   tp_coat_cpe_forward(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_coat_attn_forward(T, ...)  tp_coat_attn_forward(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_coat_block_forward(T, ...) tp_coat_block_forward(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_coat_forward(T, ...)       tp_coat_forward(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
/* clang-format on */
#endif

#ifdef __cplusplus
}
#endif
#endif
