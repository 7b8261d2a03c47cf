/* ops.h - every op: what it computes, the shapes, and a prototype.
 *
 * Letters: B batch, N tokens (queries), S tokens attended to, C channels, H heads, D head size,
 * l chunk length, r rank. "..." stands for any leading axes. Every op checks its arguments before it
 * allocates anything; a failed op returns a failed tensor, and the tape keeps the text. No op
 * synchronises. Results belong to the tape. Every op has a gradient unless its comment says otherwise.
 * Negative axes count from the end. Integer tensors are TP_I32 or TP_I64, masks TP_U8 (1 = true).
 * Configurations (tp_..._cfg) are passed by value; { 0 } is the default except for sizes. */
#ifndef TAPEGRAD_OPS_H
#define TAPEGRAD_OPS_H

#include <tapegrad/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- elementwise, two operands: b broadcasts into a (aligned at the last axis; equal sizes or 1) ---- */
TP_API tp_tensor tp_add(tp_tape *T, tp_tensor a, tp_tensor b); /* a + b */
TP_API tp_tensor tp_sub(tp_tape *T, tp_tensor a, tp_tensor b); /* a - b */
TP_API tp_tensor tp_mul(tp_tape *T, tp_tensor a, tp_tensor b); /* a b   */
TP_API tp_tensor tp_div(tp_tape *T, tp_tensor a, tp_tensor b); /* a / b */

/* ---- elementwise, one operand ---- */
TP_API tp_tensor tp_scale(tp_tape *T, tp_tensor x, double k); /* k x */
TP_API tp_tensor tp_neg(tp_tape *T, tp_tensor x);
TP_API tp_tensor tp_exp(tp_tape *T, tp_tensor x);
TP_API tp_tensor tp_log(tp_tape *T, tp_tensor x);
TP_API tp_tensor tp_sqrt(tp_tape *T, tp_tensor x);
TP_API tp_tensor tp_square(tp_tape *T, tp_tensor x);
TP_API tp_tensor tp_abs(tp_tape *T, tp_tensor x);        /* gradient 0 at 0                */
TP_API tp_tensor tp_reciprocal(tp_tape *T, tp_tensor x); /* 1 / x                          */
TP_API tp_tensor tp_rsqrt(tp_tape *T, tp_tensor x);      /* 1 / sqrt(x)                    */
TP_API tp_tensor tp_expm1(tp_tape *T, tp_tensor x);      /* e^x - 1, exact near 0          */
TP_API tp_tensor tp_log1p(tp_tape *T, tp_tensor x);      /* log(1 + x), exact near 0       */
TP_API tp_tensor tp_floor(tp_tape *T, tp_tensor x);      /* gradient 0                     */
TP_API tp_tensor tp_round(tp_tape *T, tp_tensor x);      /* halves to even; gradient 0     */
TP_API tp_tensor tp_sign(tp_tape *T, tp_tensor x);       /* -1, 0, 1; gradient 0           */
TP_API tp_tensor tp_relu(tp_tape *T, tp_tensor x);
TP_API tp_tensor tp_gelu(tp_tape *T, tp_tensor x);       /* x/2 (1 + erf(x/sqrt 2))        */
TP_API tp_tensor tp_gelu_tanh(tp_tape *T, tp_tensor x);  /* tanh approximation of GELU     */
TP_API tp_tensor tp_quick_gelu(tp_tape *T, tp_tensor x); /* x sigmoid(1.702 x)             */
TP_API tp_tensor tp_hardswish(tp_tape *T, tp_tensor x);  /* x clamp(x + 3, 0, 6) / 6       */
TP_API tp_tensor tp_silu(tp_tape *T, tp_tensor x);       /* x sigmoid(x)                   */
TP_API tp_tensor tp_mish(tp_tape *T, tp_tensor x);       /* x tanh(softplus(x))            */
TP_API tp_tensor tp_leaky_relu(tp_tape *T, tp_tensor x,
                               double k);                   /* x above 0, k x below         */
TP_API tp_tensor tp_elu(tp_tape *T, tp_tensor x, double k); /* x above 0, k (e^x - 1) below */
TP_API tp_tensor tp_softplus(tp_tape *T, tp_tensor x);      /* log(1 + e^x)                 */
TP_API tp_tensor tp_sigmoid(tp_tape *T, tp_tensor x);
TP_API tp_tensor tp_tanh(tp_tape *T, tp_tensor x);
TP_API tp_tensor tp_clamp(tp_tape *T, tp_tensor x, double lo, double hi); /* gradient inside only */
TP_API tp_tensor tp_cast(tp_tape *T, tp_tensor x, tp_dtype dt); /* between floating dtypes */

/* mask ? a : b, elementwise; mask is TP_U8, and all three have the same shape. */
TP_API tp_tensor tp_where(tp_tape *T, tp_tensor mask, tp_tensor a, tp_tensor b);

/* ---- reductions: over one axis, which is removed, or over all (TP_ALL), to a scalar ---- */
#define TP_ALL INT32_MIN
TP_API tp_tensor tp_sum(tp_tape *T, tp_tensor x, int axis);
TP_API tp_tensor tp_mean(tp_tape *T, tp_tensor x, int axis);
TP_API tp_tensor tp_max(tp_tape *T, tp_tensor x, int axis); /* gradient to the first maximum */
TP_API tp_tensor tp_argmax(tp_tape *T, tp_tensor x,
                           int axis); /* TP_I64, first maximum; no gradient */
TP_API tp_tensor tp_logsumexp(tp_tape *T, tp_tensor x, int axis);

/* ---- shape ---- */
TP_API tp_tensor tp_reshape(tp_tape *T, tp_tensor x, tp_shape s); /* a view; one size may be -1 */
TP_API tp_tensor tp_permute(tp_tape *T, tp_tensor x,
                            tp_shape order); /* y axis i = x axis order[i] */

/* Indices start .. start+count-1 of an axis. A view if all axes before it have size 1. */
TP_API tp_tensor tp_slice(tp_tape *T, tp_tensor x, int axis, int64_t start, int64_t count);

/* tp_concat(T, axis, a, b, ...): up to TP_MAX_INPUTS tensors whose shapes differ only in that axis. */
TP_API tp_tensor tp_concat_n(tp_tape *T, int axis, int n, const tp_tensor *x);

/* Splits x into n equal parts along axis and writes them to y[0..n). */
TP_API void tp_split(tp_tape *T, tp_tensor x, int axis, int n, tp_tensor *y);

/* tp_stack(T, axis, a, b, ...): joins n tensors of equal shape along a new axis. */
TP_API tp_tensor tp_stack_n(tp_tape *T, int axis, int n, const tp_tensor *x);

/* Repeats axes of size 1 to the shape s; missing leading axes are added. */
TP_API tp_tensor tp_expand(tp_tape *T, tp_tensor x, tp_shape s);

/* Adds `before` and `after` elements equal to value at the two ends of an axis. */
TP_API tp_tensor tp_pad(tp_tape *T, tp_tensor x, int axis, int64_t before, int64_t after,
                        double value);
TP_API tp_tensor tp_roll(tp_tape *T, tp_tensor x, int axis,
                         int64_t shift); /* cyclic, as torch.roll */

/* ---- index ---- */

/* scale * table[ids]: table [V,C], ids integer [...] in [0, V) -> [...,C]. An id out of range is an
 * error on the CPU. When the gradient is added to an existing one, only the rows used are touched. */
TP_API tp_tensor tp_embedding(tp_tape *T, tp_tensor table, tp_tensor ids, double scale);

/* y[i][j][k] = x[i][index[i][j][k]][k] for axis 1 (torch.gather). index has as many axes as x and, except
 * along axis, at most x's sizes. */
TP_API tp_tensor tp_gather(tp_tape *T, tp_tensor x, int axis, tp_tensor index);

/* A copy of x with src added at index along axis (torch.scatter_add). src and index have one shape. */
TP_API tp_tensor tp_scatter_add(tp_tape *T, tp_tensor x, int axis, tp_tensor index, tp_tensor src);

/* ids [...] -> [...,n] of dtype dt: 1 at the id, else 0. No gradient. */
TP_API tp_tensor tp_one_hot(tp_tape *T, tp_tensor ids, int64_t n, tp_dtype dt);

/* ---- linear algebra ---- */

/* a [...,M,K] b [...,K,N] -> [...,M,N]; the leading axes are equal, or b has none. With ta or tb that
 * operand is given transposed, [...,K,M] or [...,N,K]. */
TP_API tp_tensor tp_matmul(tp_tape *T, tp_tensor a, tp_tensor b);
TP_API tp_tensor tp_matmul_t(tp_tape *T, tp_tensor a, bool ta, tp_tensor b, bool tb);

typedef enum tp_act { TP_ACT_NONE, TP_ACT_RELU, TP_ACT_GELU, TP_ACT_QUICK_GELU } tp_act;

/* act(x w^T + b): x [...,K], w [N,K], b [N] or TP_NONE -> [...,N]. Bias and activation are applied while
 * the product is still in cache. */
TP_API tp_tensor tp_linear(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b, tp_act act);

/* ---- norms and softmax ---- */

/* w (x - mean) / sqrt(var + eps) + b over the last axis, with the biased variance: x [...,C]; w, b [C]
 * or TP_NONE. Saves x and two numbers per row. (Ba, Kiros, Hinton 2016.) tp_rmsnorm is w x /
 * sqrt(mean of x^2 + eps) (Zhang, Sennrich 2019). */
TP_API tp_tensor tp_layernorm(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b, double eps);
TP_API tp_tensor tp_rmsnorm(tp_tape *T, tp_tensor x, tp_tensor w, double eps);

/* Batch normalisation (Ioffe, Szegedy 2015) of x [...,C], channels last; w, b [C] or TP_NONE. mean and
 * var are buffers [C]: training mode updates them with the unbiased variance, new = (1-momentum) old +
 * momentum batch; evaluation normalises with them. batches counts the updates, a buffer of one TP_I64,
 * or TP_NONE. */
TP_API tp_tensor tp_batchnorm(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b, tp_tensor mean,
                              tp_tensor var, tp_tensor batches, double momentum, double eps);

/* Normalises each image and channel of x [B,...,C] over all positions, with the biased variance; w, b
 * [C] or TP_NONE. (Ulyanov et al. 2016.) */
TP_API tp_tensor tp_instancenorm(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b, double eps);

/* Standardises the weights w [Co,...] of each output channel: (w - mean) / (std + eps) with the unbiased
 * deviation or, if biased, (w - mean) / sqrt(var + eps) with the biased variance. */
TP_API tp_tensor tp_weight_standardize(tp_tape *T, tp_tensor w, double eps, bool biased);
TP_API tp_tensor tp_softmax(tp_tape *T, tp_tensor x);     /* over the last axis */
TP_API tp_tensor tp_log_softmax(tp_tape *T, tp_tensor x); /* over the last axis */

/* ---- random: the identity outside training; kept values are scaled by 1/(1-p); 0 <= p < 1 ---- */
TP_API tp_tensor tp_dropout(tp_tape *T, tp_tensor x, double p);
TP_API tp_tensor tp_drop_path(tp_tape *T, tp_tensor x, double p); /* whole samples of axis 0 */

/* residual + dropout(x + b) in one pass; x, residual [...,C], b [C] or TP_NONE. The mask equals that of
 * tp_dropout at the same offset. */
TP_API tp_tensor tp_dropout_add(tp_tape *T, tp_tensor x, tp_tensor b, tp_tensor residual, double p);

/* ---- convolution: activations channels last, weights in PyTorch's layout ---- */
typedef struct tp_conv_cfg {
    int64_t stride[2], pad[2], dilation[2]; /* of rows and columns; 0 means 1, 0, 1        */
    int64_t groups;                         /* 0 means 1; must be 0 for depthwise ops      */
} tp_conv_cfg;
/* x [B,N,C], w [C,1,K], b [C] or TP_NONE. The axis uses element 0 of each pair; element 1 must be 0. */
TP_API tp_tensor tp_depthwise_conv1d(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b,
                                     tp_conv_cfg cfg);
/* x [B,H,W,C], w [C,1,KH,KW], b [C] or TP_NONE */
TP_API tp_tensor tp_depthwise_conv2d(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b,
                                     tp_conv_cfg cfg);

/* x [B,H,W,Ci], w [Co,Ci/groups,KH,KW], b [Co] or TP_NONE -> [B,Ho,Wo,Co] with
 * Ho = floor((H + 2 pad - dilation (KH - 1) - 1) / stride) + 1. With one input and one output
 * channel per group it is tp_depthwise_conv2d. */
TP_API tp_tensor tp_conv2d(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b, tp_conv_cfg cfg);

typedef struct tp_pool_cfg {
    int64_t kernel[2], stride[2], pad[2]; /* of rows and columns; stride 0: the kernel */
    bool ignore_pad; /* averages divide by the number of inputs in the window, without padding */
} tp_pool_cfg;
/* Max and average pooling of x [B,H,W,C] -> [B,Ho,Wo,C], Ho = floor((H + 2 pad - kernel) / stride) + 1;
 * pad is at most half of the kernel. The gradient of a maximum goes to its first occurrence. */
TP_API tp_tensor tp_max_pool2d(tp_tape *T, tp_tensor x, tp_pool_cfg cfg);
TP_API tp_tensor tp_avg_pool2d(tp_tape *T, tp_tensor x, tp_pool_cfg cfg);

/* Resizes x [B,H,W,C] -> [B,height,width,C] as PyTorch does without antialiasing; a sequence has H = 1.
 * align_corners: the centres of the corner pixels coincide; otherwise the image's edges do. */
typedef enum tp_interpolation { TP_INTERPOLATE_BILINEAR, TP_INTERPOLATE_BICUBIC } tp_interpolation;
TP_API tp_tensor tp_interpolate(tp_tape *T, tp_tensor x, int64_t height, int64_t width,
                                tp_interpolation mode, bool align_corners);

/* ---- attention: tiled, so nothing of size N*S is stored. Heads are packed: [B,N,H*D] ---- */
typedef struct tp_attn_cfg {
    int heads;
    bool causal;      /* query i sees keys j <= i + S - N                            */
    double scale;     /* factor of q k; 0 means 1/sqrt(D)                            */
    double dropout;   /* of the probabilities, in training                           */
    int64_t max_span; /* tp_rel_attention; > 0: each query sees at most that many keys, its
                         own included (Transformer-XL's same_length)                 */
} tp_attn_cfg;

/* softmax(scale q k^T + bias) v: q [B,N,H*D], k, v [B,S,H*D]; mask TP_U8 [B,S] (1 = visible) or
 * TP_NONE; bias [H,N,S] or [B,H,N,S] or TP_NONE. A query that sees no key gives zeros. Saves
 * inputs, output and the log-sum-exp. (Vaswani et al. 2017; tiling after Dao et al. 2022.) */
TP_API tp_tensor tp_attention(tp_tape *T, tp_tensor q, tp_tensor k, tp_tensor v, tp_tensor mask,
                              tp_tensor bias, tp_attn_cfg cfg);

/* Attention of Transformer-XL: causal, S = memory + N, distance d = i + S - N - j >= 0, logit
 * scale ((q_i + r_w) k_j + (q_i + r_r) pos_d). pos [S,H*D] is ordered by increasing distance; r_w, r_r
 * are [H,D]. (Dai et al. 2019, Appendix B.) */
TP_API tp_tensor tp_rel_attention(tp_tape *T, tp_tensor q, tp_tensor k, tp_tensor v, tp_tensor pos,
                                  tp_tensor r_w, tp_tensor r_r, tp_attn_cfg cfg);

/* Dynamic projection: head slice i of output row c*r+j is sum_s p[s] x[c*l+s], with
 * p = softmax over the l tokens of chunk c of scores[., i*r+j].
 * x [B,N,H*D], scores [B,N,H*r], N a multiple of l -> [B,(N/l)*r,H*D].
 * (Zhu et al. 2021, Transformer-LS, equation 3.) */
TP_API tp_tensor tp_chunk_project(tp_tape *T, tp_tensor x, tp_tensor scores, int heads, int chunk,
                                  int rank);

/* Long-short attention of the language model (Zhu et al. 2021, equation 6; official computation).
 * N queries follow a cache. Its last Wc <= window rows are in k_win, v_win, and the vectors of its
 * Cc = nc/r - floor(N/l) whole chunks are in k_cmp, v_cmp; the cache itself may be longer. */
typedef struct tp_ls_attn_cfg {
    int heads, chunk;
    int rank;               /* 0: only the window; k_cmp, v_cmp, pos_cmp are absent            */
    int window;             /* 0: only the vectors; k_win, v_win, pos_win, r_w, r_r are absent */
    int clamp, chunk_clamp; /* largest distances looked up in pos_win, pos_cmp; <= 0: no limit */
    /* variants; the official code has all of them false: */
    bool masked;  /* empty cache rows are invisible; otherwise they act as zero tokens  */
    bool segment; /* a query also sees the window before its own segment of w tokens    */
} tp_ls_attn_cfg;

typedef struct tp_ls_in {
    tp_tensor q;            /* [B,N,H*D] unscaled; the op scales by 1/sqrt(D)               */
    tp_tensor k_win, v_win; /* [B,Wc+N,H*D] normalised, oldest first                        */
    tp_tensor k_cmp, v_cmp; /* [B,nc,H*D] normalised, oldest first, or TP_NONE if nc is 0   */
    tp_tensor pos_win;      /* [w,H*D], indexed by distance (segment: [2w,H*D])             */
    tp_tensor pos_cmp;      /* [>=nc,H*D], row 0 for the nearest vector; TP_NONE if nc is 0 */
    tp_tensor r_w, r_r;     /* [1,H,1,1,D], [1,H,1,D] or [H,D]: H*D elements                */
    int64_t cache, valid;   /* masked: rows of the cache; the last `valid` of them are real */
} tp_ls_in;

/* One softmax over window rows and chunk vectors -> [B,N,H*D]. Query t sees the window rows at distances
 * 0..w-1 and the vectors of chunks c < Cc + t/l. Saves inputs, output and log-sum-exp. N need not be a
 * multiple of l: the last, partial chunk has no vector, and no query could see it. A query that sees
 * nothing (no window and no real chunk before its own) gives zeros. */
TP_API tp_tensor tp_ls_attention(tp_tape *T, tp_ls_in in, tp_ls_attn_cfg cfg);

/* ---- attention over maps of tokens ---- */
typedef enum tp_edge {
    TP_EDGE_MASK,  /* keys outside the map are invisible                                        */
    TP_EDGE_EXACT, /* so are keys more than halo rows or columns away from the query            */
    TP_EDGE_CYCLIC /* chunks wrap around. The last chunks are padded with zero keys and values,
                      visible where wrapping reaches them unless mask_wrapped is set            */
} tp_edge;

/* tp_window_attn_cfg.block; 1..8: the query's own chunk and one neighbour */
enum { TP_BLOCK_OWN = -1, TP_BLOCK_ALL = 0 };

typedef struct tp_window_attn_cfg {
    int heads;
    int64_t height, width; /* of the map of tokens                                              */
    int64_t global;        /* number of global tokens, which precede those of the map           */
    int64_t window[2]; /* rows and columns of a chunk of queries; { 0, 0 }: no keys of the map */
    int64_t halo[2];   /* rows and columns visible around a query's chunk, <= window        */
    tp_edge edge;
    int block;        /* 1..8: the only visible one of the eight chunks around a query's, by rows */
    int64_t reach[2]; /* largest position differences in the table; 0: window + halo - 1       */
    int64_t stride;   /* table rows per difference of one map row; 0: 2 reach[1] + 1           */
    bool mask_wrapped; /* TP_EDGE_CYCLIC                                                        */
    double scale;      /* factor of q k; 0 means 1/sqrt(D)                                      */
} tp_window_attn_cfg;

typedef struct tp_window_in {
    tp_tensor q, k, v; /* [B,g+N,H*D], N = height * width row by row; global rows of q are unused */
    tp_tensor low_k, low_v; /* [B,r,H*D] keys and values that every query sees, or TP_NONE       */
    tp_tensor table;        /* [2 reach[0] stride + 2 reach[1] + 1,H] or TP_NONE: added to the logit
                               of query (y,x) and key (u,v) is row
                               (y - u + reach[0]) stride + x - v + reach[1]                      */
    tp_tensor global_bias;  /* [H,g] or TP_NONE: added to the logits of the global keys          */
} tp_window_in;

/* One softmax over the low keys, the global tokens and the keys around the query's chunk -> [B,N,H*D].
 * Chunks start at row and column 0; the last ones may be smaller. For the attention of the global rows
 * use tp_attention. Nothing of size N * keys is stored; saves inputs, output and log-sum-exp.
 *
 * Vision Longformer (Zhang et al. 2021): halo = window, and block is the random shift. Its full
 * attention with relative bias is one window of the map's size with halo 0. Long-short attention of
 * images (Zhu et al. 2021, section 4.3): halo = half the window, low keys from the dynamic projection. */
TP_API tp_tensor tp_window_attention_2d(tp_tape *T, tp_window_in in, tp_window_attn_cfg cfg);

typedef struct tp_lsla_attn_cfg {
    int heads;
    int64_t height, width; /* of the map of tokens, both multiples of window                   */
    int64_t window, shift; /* the map is rolled up and left by shift before it is partitioned   */
    bool mask_outer;       /* shifted windows: no outer bias between different border regions    */
    double scale;          /* used without a learned scale; 0 means 1/sqrt(D)                   */
} tp_lsla_attn_cfg;

/* Light self-limited attention in each window of w x w tokens and each head:
 * (softmax(E (q k^T) + inner + mask) + outer) v, where E multiplies elementwise and the mask is -100
 * between tokens of different border regions of the rolled map. q, k, v [B,N,H*D], N = height * width;
 * the layer's input itself may be k and v. E [w*w,w*w] is shared by the heads, or TP_NONE. inner and
 * outer [(2w-1)^2,H] or TP_NONE: row (dy + w - 1)(2w - 1) + dx + w - 1 holds the bias for a query's
 * position minus a key's. Saves inputs and log-sum-exp. (ViT-LSLA, Hechen et al. 2022, equations 15-18
 * and Algorithm 1.) */
TP_API tp_tensor tp_lsla_attention(tp_tape *T, tp_tensor q, tp_tensor k, tp_tensor v,
                                   tp_tensor scale, tp_tensor inner, tp_tensor outer,
                                   tp_lsla_attn_cfg cfg);

/* ---- losses: f32 (f64 if the input is) ---- */
typedef enum tp_reduction {
    TP_MEAN,     /* mean over the counted rows                                 */
    TP_MEAN_ALL, /* sum over the counted rows divided by the number of all rows */
    TP_SUM,
    TP_EACH /* no reduction: one loss per row or element                  */
} tp_reduction;

/* Softmax cross-entropy: logits [...,V]; target integer [...] (negative: not counted) or probabilities
 * [...,V]. Label smoothing e replaces the target t by t (1-e) + e/V. Softmax probabilities are never
 * stored. No gradient to target. */
TP_API tp_tensor tp_cross_entropy(tp_tape *T, tp_tensor logits, tp_tensor target, tp_reduction r);
TP_API tp_tensor tp_cross_entropy_smooth(tp_tape *T, tp_tensor logits, tp_tensor target,
                                         double smoothing, tp_reduction r);
/* The losses below are elementwise. x and target have the same shape and a floating dtype; no gradient
 * to target. tp_bce_logits is the binary cross-entropy of sigmoid(x). */
TP_API tp_tensor tp_bce_logits(tp_tape *T, tp_tensor x, tp_tensor target, tp_reduction r);
/* Sigmoid focal loss (Lin et al. 2017): alpha_t (1-p_t)^gamma bce; alpha < 0: without alpha_t. */
TP_API tp_tensor tp_focal(tp_tape *T, tp_tensor x, tp_tensor target, double alpha, double gamma,
                          tp_reduction r);
/* With d = x - target and beta > 0: d^2/(2 beta) if |d| < beta, else |d| - beta/2. beta 0: |d|. */
TP_API tp_tensor tp_smooth_l1(tp_tape *T, tp_tensor x, tp_tensor target, double beta,
                              tp_reduction r);
TP_API tp_tensor tp_mse(tp_tape *T, tp_tensor x, tp_tensor target, tp_reduction r);

#define tp_concat(T, axis, ...) tp_concat_n(T, axis, TP_TENSORS(__VA_ARGS__))
#define tp_stack(T, axis, ...)  tp_stack_n(T, axis, TP_TENSORS(__VA_ARGS__))

#ifndef TP_NO_SITE
/* clang-format off */
#define tp_add(T, ...)                  tp_add(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_sub(T, ...)                  tp_sub(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_mul(T, ...)                  tp_mul(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_div(T, ...)                  tp_div(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_scale(T, ...)                tp_scale(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_neg(T, ...)                  tp_neg(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_exp(T, ...)                  tp_exp(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_log(T, ...)                  tp_log(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_sqrt(T, ...)                 tp_sqrt(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_square(T, ...)               tp_square(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_abs(T, ...)                  tp_abs(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_relu(T, ...)                 tp_relu(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_gelu(T, ...)                 tp_gelu(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_gelu_tanh(T, ...)            tp_gelu_tanh(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_quick_gelu(T, ...)           tp_quick_gelu(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_hardswish(T, ...)            tp_hardswish(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_silu(T, ...)                 tp_silu(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_mish(T, ...)                 tp_mish(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_leaky_relu(T, ...)           tp_leaky_relu(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_elu(T, ...)                  tp_elu(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_softplus(T, ...)             tp_softplus(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_reciprocal(T, ...)           tp_reciprocal(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_rsqrt(T, ...)                tp_rsqrt(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_expm1(T, ...)                tp_expm1(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_log1p(T, ...)                tp_log1p(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_floor(T, ...)                tp_floor(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_round(T, ...)                tp_round(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_sign(T, ...)                 tp_sign(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_sigmoid(T, ...)              tp_sigmoid(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_tanh(T, ...)                 tp_tanh(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_clamp(T, ...)                tp_clamp(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_cast(T, ...)                 tp_cast(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_where(T, ...)                tp_where(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_sum(T, ...)                  tp_sum(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_mean(T, ...)                 tp_mean(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_max(T, ...)                  tp_max(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_argmax(T, ...)               tp_argmax(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_logsumexp(T, ...)            tp_logsumexp(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_reshape(T, ...)              tp_reshape(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_permute(T, ...)              tp_permute(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_slice(T, ...)                tp_slice(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_concat_n(T, ...)             tp_concat_n(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_split(T, ...)                tp_split(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_stack_n(T, ...)              tp_stack_n(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_expand(T, ...)               tp_expand(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_pad(T, ...)                  tp_pad(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_roll(T, ...)                 tp_roll(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_embedding(T, ...)            tp_embedding(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_gather(T, ...)               tp_gather(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_scatter_add(T, ...)          tp_scatter_add(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_one_hot(T, ...)              tp_one_hot(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_matmul(T, ...)               tp_matmul(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_matmul_t(T, ...)             tp_matmul_t(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_linear(T, ...)               tp_linear(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_layernorm(T, ...)            tp_layernorm(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_rmsnorm(T, ...)              tp_rmsnorm(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_batchnorm(T, ...)            tp_batchnorm(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_instancenorm(T, ...)         tp_instancenorm(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_weight_standardize(T, ...)   tp_weight_standardize(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_softmax(T, ...)              tp_softmax(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_log_softmax(T, ...)          tp_log_softmax(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_dropout(T, ...)              tp_dropout(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_drop_path(T, ...)            tp_drop_path(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_dropout_add(T, ...)          tp_dropout_add(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_depthwise_conv1d(T, ...)     tp_depthwise_conv1d(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_depthwise_conv2d(T, ...)     tp_depthwise_conv2d(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_conv2d(T, ...)               tp_conv2d(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_max_pool2d(T, ...)           tp_max_pool2d(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_avg_pool2d(T, ...)           tp_avg_pool2d(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_interpolate(T, ...)          tp_interpolate(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_attention(T, ...)            tp_attention(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_rel_attention(T, ...)        tp_rel_attention(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_chunk_project(T, ...)        tp_chunk_project(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_ls_attention(T, ...)         tp_ls_attention(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_window_attention_2d(T, ...)  tp_window_attention_2d(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_lsla_attention(T, ...)       tp_lsla_attention(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_cross_entropy(T, ...)        tp_cross_entropy(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_cross_entropy_smooth(T, ...) tp_cross_entropy_smooth(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_bce_logits(T, ...)           tp_bce_logits(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_focal(T, ...)                tp_focal(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_smooth_l1(T, ...)            tp_smooth_l1(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_mse(T, ...)                  tp_mse(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
/* clang-format on */
#endif

#ifdef __cplusplus
}
#endif
#endif
