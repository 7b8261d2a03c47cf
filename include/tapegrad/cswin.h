/* cswin.h - CSWin Transformer (Dong et al. 2022): half of the heads attend in vertical stripes,
 * half in horizontal ones. Images are [B,R,R,3], squares; feature maps [B,R,R,D]; tokens [B,R*R,D]
 * row by row. */
#ifndef TAPEGRAD_CSWIN_H
#define TAPEGRAD_CSWIN_H

#include <tapegrad/conv_norm.h>
#include <tapegrad/model.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TP_CSWIN_STAGES = 4, TP_CSWIN_MAX_BLOCKS = 64 };

typedef struct tp_cswin_cfg {
    int64_t image[2], classes, dim; /* dim: of the first stage; each next one doubles it */
    int depths[TP_CSWIN_STAGES], heads[TP_CSWIN_STAGES];
    int64_t split[TP_CSWIN_STAGES]; /* width of the stripes; the last one is not used */
    double mlp_ratio;
    double drop_path; /* of the last block; linear from 0 in the first */
    tp_recompute recompute;
} tp_cswin_cfg;

typedef enum tp_cswin_stripes {
    TP_CSWIN_VERTICAL,   /* of the map's height, `split` columns wide */
    TP_CSWIN_HORIZONTAL, /* of the map's width, `split` rows high */
    TP_CSWIN_WHOLE       /* one stripe: the map */
} tp_cswin_stripes;

/* Part "lepe": attention in stripes with locally enhanced positions: softmax(q k^T / sqrt(d)) v +
 * conv(v), where the depthwise 3 x 3 convolution "get_v" sees zeros beyond a stripe. x is q
 * [B,side*side,D], and so is the result; side must be a multiple of split. with: a
 * tp_cswin_lepe_in. */
typedef struct tp_cswin_lepe {
    const char *path;
    int heads;
    tp_cswin_stripes stripes;
    int64_t split;
    tp_conv2d_m get_v;
} tp_cswin_lepe;
typedef struct tp_cswin_lepe_cfg {
    int64_t dim, split;
    int heads;
    tp_cswin_stripes stripes;
} tp_cswin_lepe_cfg;
typedef struct tp_cswin_lepe_in {
    tp_tensor k, v;
    int64_t side; /* of the map */
} tp_cswin_lepe_in;

/* Part "block", [B,R,R,D] -> the same shape: x + attention(norm1(x)), then x + mlp(norm2(x)). The
 * first half of the channels of queries, keys and values goes to vertical stripes. There is one
 * branch, over the whole map, in the last stage and where the map is as wide as a stripe. */
typedef struct tp_cswin_block {
    const char *path;
    double drop_path;
    tp_recompute recompute;
    int branches; /* 1 or 2 */
    tp_layernorm_m norm1, norm2;
    tp_linear_m qkv, proj;
    tp_cswin_lepe branch[2]; /* "attns.0", "attns.1" */
    tp_mlp_m mlp;
} tp_cswin_block;
typedef struct tp_cswin_block_cfg {
    int64_t side, dim, split; /* side: of the map */
    int heads;
    bool last; /* a block of the last stage */
    double mlp_ratio, drop_path;
    tp_recompute recompute;
} tp_cswin_block_cfg;
/* Initialised like the official code: matrices N(0, 0.02), biases 0, convolutions by PyTorch's
 * default. Sizes other than cfg.image work if their maps divide into stripes, and into several
 * where the model has two branches. */
typedef struct tp_cswin {
    const char *path;
    const tp_params *params;
    tp_cswin_cfg cfg;
    tp_conv_norm embed; /* "stage1_conv_embed": 7 x 7, stride 4 */
    tp_cswin_block block[TP_CSWIN_MAX_BLOCKS];
    tp_conv_norm merge[TP_CSWIN_STAGES - 1]; /* "merge1" ...: 3 x 3, stride 2 */
    tp_layernorm_m norm;
    tp_linear_m head;
} tp_cswin;

extern TP_API const tp_model tp_model_cswin;

#ifdef __cplusplus
}
#endif
#endif
