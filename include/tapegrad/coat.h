/* coat.h - CoaT-Lite (Xu et al. 2021): factorised attention with convolutional position encodings,
 * in four stages with a class token each. MPViT has the same blocks. Images are [B,H,W,3], tokens
 * [B,c+N,D] row by row, after a class token if c = 1. */
#ifndef TAPEGRAD_COAT_H
#define TAPEGRAD_COAT_H

#include <tapegrad/conv_norm.h>
#include <tapegrad/model.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TP_COAT_STAGES = 4, TP_COAT_MAX_BLOCKS = 64, TP_COAT_KERNELS = 4 };

/* The depthwise convolutions of the relative encoding: the first heads[0] heads have kernel[0], and
 * so on. The published models have 8 heads and kernels of 3, 5 and 7 for 2, 3 and 3 of them. */
typedef struct tp_coat_kernels {
    int n, kernel[TP_COAT_KERNELS], heads[TP_COAT_KERNELS]; /* kernels are odd */
} tp_coat_kernels;
#define TP_COAT_PUBLISHED                                                                          \
    {                                                                                              \
        .n = 3, .kernel = { 3, 5, 7 }, .heads = { 2, 3, 3 }                                        \
    }

/* Part "shared", the encodings that all blocks of a stage (in MPViT of a path) share: "proj" of the
 * positions, "conv_list.N" of the relative ones. It computes map + conv(map) of the tokens x
 * [B,c+H*W,D]; a class token is kept. with, here and in the parts below: a tensor [H,W,0] that
 * gives the size of the map. */
typedef struct tp_coat_shared {
    tp_conv2d_m cpe;                   /* 3 x 3 */
    tp_conv2d_m crpe[TP_COAT_KERNELS]; /* each over some heads' channels */
    tp_coat_kernels kernels;
    const char *cpe_path, *crpe_path;
} tp_coat_shared;
typedef struct tp_coat_shared_cfg {
    const char *cpe, *crpe; /* names of the two; NULL: that one is not declared */
    int64_t dim;
    tp_coat_kernels kernels;
} tp_coat_shared_cfg;

/* Part "attn", factorised attention: in each head q (softmax(k)^T v) / sqrt(d) + q * conv(v), the
 * softmax over all tokens, the second term for tokens of the map only; then "proj". */
typedef struct tp_coat_attn {
    const char *path;
    int heads;
    tp_linear_m qkv, proj;
    tp_coat_shared shared; /* a copy: the parameters are those of the stage */
} tp_coat_attn;
typedef struct tp_coat_attn_cfg {
    int64_t dim;
    int heads;
    const tp_coat_shared *shared;
} tp_coat_attn_cfg;

/* Part "block": x = cpe(x), then x + attention(norm1(x)), then x + mlp(norm2(x)); the norms'
 * epsilon is 1e-6. */
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
    const tp_coat_shared *shared;
} tp_coat_block_cfg;

/* ---- CoaT-Lite ---- */

typedef struct tp_coat_cfg {
    int64_t image[2], classes; /* image: height and width for costs; multiples of 32 */
    int64_t dim[TP_COAT_STAGES];
    int depths[TP_COAT_STAGES], mlp_ratio[TP_COAT_STAGES], heads;
    tp_coat_kernels kernels;
    double drop_path; /* of every block */
    tp_recompute recompute;
} tp_coat_cfg;

/* Initialised like the official code: matrices and class tokens N(0, 0.02), biases 0, convolutions
 * by PyTorch's default. Each block aliases the shared encodings, as in published files. The sides
 * of images must be multiples of 32. */
typedef struct tp_coat {
    const char *path;
    const tp_params *params;
    tp_coat_cfg cfg;
    tp_tensor cls_token[TP_COAT_STAGES];   /* [1,1,D] */
    tp_conv_norm embed[TP_COAT_STAGES];    /* "patch_embedN": 4 x 4, then 2 x 2 */
    tp_coat_shared shared[TP_COAT_STAGES]; /* "cpeN", "crpeN" */
    tp_coat_block block[TP_COAT_MAX_BLOCKS];
    tp_layernorm_m norm[TP_COAT_STAGES]; /* "normN": published and frozen; only the last is used */
    tp_linear_m head;
} tp_coat;

extern TP_API const tp_model tp_model_coat;

#ifdef __cplusplus
}
#endif
#endif
