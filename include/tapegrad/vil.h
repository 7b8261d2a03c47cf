/* vil.h - Vision Longformer (Zhang et al. 2021) and its long-short form (Zhu et al. 2021, 4.3): a
 * transformer of one to four scales with one of seven attentions, computed as in the official code.
 * Images are [B,H,W,3], tokens [B,N,D] row by row. */
#ifndef TAPEGRAD_VIL_H
#define TAPEGRAD_VIL_H

#include <tapegrad/model.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TP_VIL_MAX_STAGES 4
#define TP_VIL_MAX_BLOCKS 64
#define TP_VIL_MAX_SIZE   (1 << 16) /* limit of image sides, widths, windows, features ... */

typedef enum tp_vil_kind {
    TP_VIL_WINDOW,    /* the chunks around a token's own, and the global tokens */
    TP_VIL_GLOBAL,    /* the global tokens only */
    TP_VIL_FULL,      /* all tokens */
    TP_VIL_LINFORMER, /* `feature` mixtures of all tokens (Wang et al. 2020) */
    TP_VIL_SRA,       /* a map reduced by `feature` (Wang et al. 2021) */
    TP_VIL_PERFORMER, /* `feature` random features (Choromanski et al. 2021) */
    TP_VIL_LS         /* a window and `rank` dynamic projections (ViL-LS) */
} tp_vil_kind;

/* A value of tp_vil_cfg.shift besides TP_BLOCK_ALL, TP_BLOCK_OWN and 1..8: training draws one of
 * the eight neighbours for each attention and call from the tape's random stream. A recorded step
 * (tp_capture_begin) repeats what it drew. */
enum { TP_VIL_SHIFT_RANDOM = 9 };

/* As text, the member "arch", in the notation of the official code:
 * "l1,h3,d96,n1,s1,g1,p4,f7,a0_l2,...", one to four stages, where s0 applies to all later stages
 * too. */
typedef struct tp_vil_stage {
    int heads, blocks;
    int64_t dim, patch; /* width; side and stride of the patches of the previous map */
    int64_t global;     /* number of global tokens, g */
    int64_t feature;    /* the letter f: the window, or as in tp_vil_kind */
    int rank;
    bool dense; /* full attention, regardless of the model's kind */
    /* position tables are added to the tokens; otherwise the attention (window, full, LS) has a
     * relative bias */
    bool absolute;
} tp_vil_stage;

typedef struct tp_vil_cfg {
    tp_vil_kind kind;
    int stages;
    tp_vil_stage stage[TP_VIL_MAX_STAGES];
    int64_t image[2]; /* height and width, for which position tables are made */
    int64_t classes;  /* 0: a backbone without final norm and head */
    double drop_path; /* of the last block; rises linearly from 0 at the first */
    tp_edge edge;     /* of windows: TP_EDGE_MASK in all published models */
    int shift;        /* of windows: TP_BLOCK_ALL (0), or what training sees instead */
    bool avg_pool;    /* the head uses the mean of all tokens even if there are global ones */
    /* variants; the published models have all of them false: */
    bool mask_wrapped;    /* tp_window_attn_cfg's */
    bool separate_global; /* windows: separate projections for global tokens */
    bool separate_kv;     /* Linformer: separate mixing matrices for keys and values */
    bool distinct_bias;   /* LS: no two offsets share an entry of the table */
    bool raw_embed;       /* no norm after the patch embedding */
    bool linear_qkv;      /* projections of queries, keys and values without bias */
    tp_recompute recompute;
} tp_vil_cfg;

/* A part of a stage. */
typedef struct tp_vil_part_cfg {
    const tp_vil_cfg *model;
    int stage;
    int64_t in;      /* embed: channels of the map before it */
    const char *mlp; /* block: the name of its second half */
} tp_vil_part_cfg;

/* Part "embed", patches: [B,H,W,C] -> tokens [B,g+N,d]. Remaining rows and columns are dropped.
 * with: an int64_t [2] that receives height and width of the map. The tables may be longer than the
 * map. */
typedef struct tp_vil_embed {
    const char *path;
    tp_conv2d_m proj;
    tp_layernorm_m norm;                      /* path NULL: absent */
    tp_tensor cls, cls_pos, row_pos, col_pos; /* [1,g,d], [1,g,d], [1,height,d/2], [1,width,d/2] */
} tp_vil_embed;

/* Part "attn": any of the attentions with its projections, with the names of the official
 * checkpoints. x [B,g+N,d]: g global tokens, then N = height * width tokens of the map ->
 * [B,g+N,d]. with, also of the block: an int64_t [2], height and width. */
typedef struct tp_vil_attn {
    const char *path;
    tp_vil_kind kind;
    tp_vil_stage stage;
    int64_t map[2]; /* configured size: full attention with a bias and Linformer require it */
    tp_edge edge;
    int shift; /* may change between steps (tp_model.set_shift) */
    bool mask_wrapped, separate_global, distinct_bias;
    tp_linear_m qkv;       /* [3d,d]: full, performer, LS */
    tp_linear_m query, kv; /* [d,d], [2d,d]: the others */
    tp_linear_m query_global, kv_global, proj_global;
    tp_linear_m proj;
    tp_tensor table;               /* relative bias of the map's tokens [rows,H] */
    tp_tensor g2l, g2g;            /* [2,H,g]: global to local, local to global; [H,g,g] */
    tp_tensor proj_k, proj_v;      /* Linformer [g+N,K] */
    tp_conv2d_m proj_sr;           /* SRA */
    tp_tensor features;            /* Performer: buffer [m,D] */
    tp_linear_m dynamic;           /* LS: to_dynamic_projection [H*r,d] */
    tp_layernorm_m ln_full, ln_dp; /* LS: of keys and values, of their projections */
} tp_vil_attn;

/* Part "block": its name is that of the attention's half. */
typedef struct tp_vil_block {
    tp_layernorm_m norm1, norm2;
    tp_vil_attn attn;
    tp_mlp_m mlp;
    double drop_path;
    tp_recompute recompute;
} tp_vil_block;

/* Initialised by the official rule: linear weights, tokens and tables N(0, 0.02), convolutions and
 * Linformer's mixtures PyTorch's default, biases 0, norms 1 and 0; Performer's features N(0, 1)
 * until tp_model.redraw draws orthogonal ones. The official code does so before the first step and
 * after every I + 1 training passes, with I = 1 + 5 epoch, epochs counted from 0 (detection: I =
 * 1000). Images of other sizes are possible unless a table or a mixing matrix has a fixed size. */
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

/* Part "trunk", the model without its part "head", which applies norm, pooling and head: images ->
 * the tokens of the last stage before the final norm. with: NULL, or a tp_vil_out for each stage,
 * which receives its output: all tokens, and the map [B,height,width,d] of the local ones. */
typedef struct tp_vil_out {
    tp_tensor tokens, map;
} tp_vil_out;

/* Resizes weights for another resolution or window, bilinearly: x [from0,from1,channels] -> y
 * [to0,to1,channels]. */
TP_API void tp_vil_resize(const double *x, const int64_t from[2], double *y, const int64_t to[2],
                          int64_t channels);

extern TP_API const tp_model tp_model_vil;

#ifdef __cplusplus
}
#endif
#endif
