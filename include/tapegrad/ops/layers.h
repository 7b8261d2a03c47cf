/* ops/layers.h - products, norms, softmax, dropout, convolution, pooling, windows, resizing. See
 * ops.h. */
#ifndef TAPEGRAD_OPS_LAYERS_H
#define TAPEGRAD_OPS_LAYERS_H

#include <tapegrad/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- linear algebra ---- */

/* a [...,M,K] b [...,K,N] -> [...,M,N]; the leading axes are equal, or b has none. With ta or tb
 * that operand is given transposed, [...,K,M] or [...,N,K]. */
TP_API tp_tensor tp_matmul(tp_tape *T, tp_tensor a, tp_tensor b);
TP_API tp_tensor tp_matmul_t(tp_tape *T, tp_tensor a, bool ta, tp_tensor b, bool tb);

/* tp_einsum(T, "bij,bjk->bik", a, b, ...): any number of tensors, as torch.einsum. Each axis of
 * each tensor has a letter, upper or lower case; axes that share a letter have one size, or 1,
 * which is repeated. "..." stands for any further axes, aligned at the last one. The result has the
 * axes after "->", without it those of "..." and then the letters that occur once, in the order of
 * the alphabet, capitals first. Letters absent from the result are summed over; a letter that
 * occurs twice in a tensor takes its diagonal.
 *
 * The tensors are contracted from left to right, each pair by one tp_matmul_t, before which an
 * operand is copied only where no order of its axes fits; write the cheapest pair first. A pair
 * that sums over nothing is a tp_mul. Products compute as tp_matmul, and sums as tp_sum. */
TP_API tp_tensor tp_einsum_n(tp_tape *T, const char *spec, int n, const tp_tensor *x);
#define tp_einsum(T, spec, ...) tp_einsum_n(T, spec, TP_TENSORS(__VA_ARGS__))

/* Activations; each is the op of that name (elementwise.h). */
typedef enum tp_act {
    TP_ACT_NONE,
    TP_ACT_RELU,
    TP_ACT_GELU,
    TP_ACT_QUICK_GELU,
    TP_ACT_SILU,
    TP_ACT_GELU_TANH,
    TP_ACT_TANH,
    TP_ACT_SIGMOID
} tp_act;

/* act(x w^T + b): x [...,K], w [N,K], b [N] or TP_NONE -> [...,N]. Bias and activation are applied
 * while the product is still in cache. */
TP_API tp_tensor tp_linear(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b, tp_act act);

/* tp_dropout(tp_linear(x, w, b, act), p) with the same random words; in the pass of the activation
 * unless that is TP_ACT_NONE. A dropped element and its gradient are 0 whatever x and dy are. Where
 * a kept element's slope is 0, its gradient is also 0, as it is in the two ops if dy is finite. */
TP_API tp_tensor tp_linear_dropout(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b, tp_act act,
                                   double p);

/* The activation of a gated linear unit: GLU, SwiGLU, GEGLU, ReGLU. */
typedef enum tp_glu_kind { TP_GLU_SIGMOID, TP_GLU_SILU, TP_GLU_GELU, TP_GLU_RELU } tp_glu_kind;

/* Gated linear units: y = act(x Wg^T + bg) * (x Wu^T + bu), x [...,K] -> [...,N]. w [N,K] and b [N]
 * are the gate's, w_up [N,K] and b_up [N] the other factor's. If w_up is TP_NONE, w [2N,K] and b
 * [2N] hold both, the gate first. Biases may be TP_NONE. Activation, biases and product are applied
 * while the second product is in cache. Saves both products; backward recomputes the activation.
 * (Dauphin et al. 2017; Shazeer 2020.) */
TP_API tp_tensor tp_glu_linear(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b, tp_tensor w_up,
                               tp_tensor b_up, tp_glu_kind kind);

/* The first half of x along an axis times the sigmoid of the second half, as
 * torch.nn.functional.glu. Saves x. */
TP_API tp_tensor tp_glu(tp_tape *T, tp_tensor x, int axis);

/* ---- norms and softmax ----
 *
 * Numbers whose variance overflows give NaN, never zeros; on the CPU, tp_layernorm, tp_rmsnorm and,
 * but for its gradient, tp_weight_standardize are right for them. */

/* w (x - mean) / sqrt(var + eps) + b over the last axis, with the biased variance: x [...,C]; w, b
 * [C] or TP_NONE. Saves x and two numbers per row. (Ba, Kiros, Hinton 2016.) tp_rmsnorm is w x /
 * sqrt(mean of x^2 + eps) (Zhang, Sennrich 2019). */
TP_API tp_tensor tp_layernorm(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b, double eps);
TP_API tp_tensor tp_rmsnorm(tp_tape *T, tp_tensor x, tp_tensor w, double eps);

/* Batch normalisation (Ioffe, Szegedy 2015) of x [...,C], channels last; w, b [C] or TP_NONE. mean
 * and var are buffers [C]: training mode updates them with the unbiased variance, new =
 * (1-momentum) old + momentum batch; evaluation normalises with them. batches counts the updates, a
 * buffer of one TP_I64, or TP_NONE. */
TP_API tp_tensor tp_batchnorm(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b, tp_tensor mean,
                              tp_tensor var, tp_tensor batches, double momentum, double eps);

/* Normalises each image of x [B,...,C], channels last, over all positions, with the biased
 * variance; w, b [C] or TP_NONE. tp_instancenorm: each channel by itself (Ulyanov et al. 2016).
 * tp_groupnorm: each group of C / groups neighbouring channels together (Wu, He 2018), as
 * torch.nn.functional.group_norm; C must be a multiple of groups. */
TP_API tp_tensor tp_instancenorm(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b, double eps);
TP_API tp_tensor tp_groupnorm(tp_tape *T, tp_tensor x, int64_t groups, tp_tensor w, tp_tensor b,
                              double eps);

/* Standardises the weights w [Co,...] of each output channel: (w - mean) / (std + eps) with the
 * unbiased deviation or, if biased, (w - mean) / sqrt(var + eps) with the biased variance. */
TP_API tp_tensor tp_weight_standardize(tp_tape *T, tp_tensor w, double eps, bool biased);
TP_API tp_tensor tp_softmax(tp_tape *T, tp_tensor x);     /* over the last axis */
TP_API tp_tensor tp_log_softmax(tp_tape *T, tp_tensor x); /* over the last axis */

/* ---- random: the identity outside training; kept values are scaled by 1/(1-p); 0 <= p < 1 ---- */
TP_API tp_tensor tp_dropout(tp_tape *T, tp_tensor x, double p);
TP_API tp_tensor tp_drop_path(tp_tape *T, tp_tensor x, double p); /* whole samples of axis 0 */

/* residual + dropout(x + b) in one pass; x, residual [...,C], b [C] or TP_NONE. The mask equals
 * that of tp_dropout at the same offset. */
TP_API tp_tensor tp_dropout_add(tp_tape *T, tp_tensor x, tp_tensor b, tp_tensor residual, double p);

/* ---- convolution: activations channels last, weights in PyTorch's layout ---- */
typedef struct tp_conv_cfg {
    int64_t stride[2], pad[2], dilation[2]; /* of rows and columns; 0 means 1, 0, 1 */
    int64_t groups;                         /* 0 means 1; must be 0 for depthwise ops */
} tp_conv_cfg;
/* x [B,N,C], w [C,1,K], b [C] or TP_NONE. The axis uses element 0 of each pair; element 1 must be
 * 0. */
TP_API tp_tensor tp_depthwise_conv1d(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b,
                                     tp_conv_cfg cfg);
/* x [B,H,W,C], w [C,1,KH,KW], b [C] or TP_NONE */
TP_API tp_tensor tp_depthwise_conv2d(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b,
                                     tp_conv_cfg cfg);

/* x [B,H,W,Ci], w [Co,Ci/groups,KH,KW], b [Co] or TP_NONE -> [B,Ho,Wo,Co] with Ho = floor((H + 2
 * pad - dilation (KH - 1) - 1) / stride) + 1. With one input and one output channel per group it is
 * tp_depthwise_conv2d. */
TP_API tp_tensor tp_conv2d(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b, tp_conv_cfg cfg);
/* relu(tp_conv2d(x, w, b, cfg) + residual); residual like the result, or TP_NONE. On the CPU,
 * except for depthwise convolutions, the sum and ReLU need no further pass over the map in forward,
 * and in bf16 only the result is rounded, not the terms of the sum. */
TP_API tp_tensor tp_conv2d_relu(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b,
                                tp_tensor residual, tp_conv_cfg cfg);
/* tp_conv2d of sequences: x [B,N,Ci], w [Co,Ci/groups,K] -> [B,No,Co]. The axis uses element 0 of
 * each pair; element 1 must be 0. */
TP_API tp_tensor tp_conv1d(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b, tp_conv_cfg cfg);

typedef struct tp_conv_transpose_cfg {
    int64_t stride[2], pad[2], dilation[2]; /* as in tp_conv_cfg */
    int64_t groups;                         /* 0 means 1 */
    /* positions added at the end of rows, columns; less than the stride or the dilation */
    int64_t output_pad[2];
} tp_conv_transpose_cfg;
/* Transposed convolution, as torch.nn.functional.conv_transpose2d: the gradient of tp_conv2d with
 * respect to its input. x [B,H,W,Ci], w [Ci,Co/groups,KH,KW], b [Co] or TP_NONE -> [B,Ho,Wo,Co]
 * with Ho = (H - 1) stride - 2 pad + dilation (KH - 1) + output_pad + 1. An empty axis stays
 * empty. */
TP_API tp_tensor tp_conv_transpose2d(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b,
                                     tp_conv_transpose_cfg cfg);
/* x [B,N,Ci], w [Ci,Co/groups,K] -> [B,No,Co]. Element 1 of each pair must be 0. */
TP_API tp_tensor tp_conv_transpose1d(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b,
                                     tp_conv_transpose_cfg cfg);

typedef struct tp_pool_cfg {
    int64_t kernel[2], stride[2], pad[2]; /* of rows and columns; stride 0: the kernel */
    bool ignore_pad; /* averages divide by the number of inputs in the window, without padding */
    bool ceil;       /* leftover positions get a window, too */
} tp_pool_cfg;
/* Max and average pooling of x [B,H,W,C] -> [B,Ho,Wo,C], Ho = floor((H + 2 pad - kernel) / stride)
 * + 1; pad is at most half of the kernel. The gradient of a maximum goes to its first occurrence.
 * With ceil, PyTorch's ceil_mode, Ho is rounded up unless the last window would begin beyond the
 * image, and an average counts no position beyond the padding. A sequence has H = 1. */
TP_API tp_tensor tp_max_pool2d(tp_tape *T, tp_tensor x, tp_pool_cfg cfg);
TP_API tp_tensor tp_avg_pool2d(tp_tape *T, tp_tensor x, tp_pool_cfg cfg);

/* Adaptive pooling of x [B,H,W,C] -> [B,height,width,C], all sizes 1 or more: row o of the result
 * sees the rows floor(o H / height) to ceil((o + 1) H / height) - 1, columns likewise. A sequence
 * has H = 1. */
TP_API tp_tensor tp_adaptive_max_pool2d(tp_tape *T, tp_tensor x, int64_t height, int64_t width);
TP_API tp_tensor tp_adaptive_avg_pool2d(tp_tape *T, tp_tensor x, int64_t height, int64_t width);

typedef struct tp_unfold_cfg {
    /* of rows and columns; 0 means 1, except for kernel and pad */
    int64_t kernel[2], stride[2], pad[2], dilation[2];
} tp_unfold_cfg;
/* The windows of x [B,H,W,C] of any dtype -> [B,Ho,Wo,KH*KW*C], im2col: row by row the pixels of
 * each window, all channels of a pixel together, zeros in the padding; Ho as of tp_conv2d. F.unfold
 * of PyTorch sorts by channel first, [B,C*KH*KW,Ho*Wo]: its result is this one's, as
 * [B,Ho*Wo,KH*KW,C], permuted to (0,3,2,1). A sequence has H = 1. */
TP_API tp_tensor tp_unfold(tp_tape *T, tp_tensor x, tp_unfold_cfg cfg);
/* The reverse, col2im: windows x [B,Ho,Wo,KH*KW*C] -> [B,height,width,C], the sum of all elements
 * that tp_unfold would take from a position. Each function is the other's gradient. */
TP_API tp_tensor tp_fold(tp_tape *T, tp_tensor x, int64_t height, int64_t width, tp_unfold_cfg cfg);

/* Resizes x [B,H,W,C] -> [B,height,width,C] as PyTorch does without antialiasing; a sequence has H
 * = 1. align_corners: the centres of the corner pixels coincide; otherwise the image's edges do. It
 * must be false for nearest, PyTorch's "nearest" and "nearest-exact". */
typedef enum tp_interpolation {
    TP_INTERPOLATE_BILINEAR,
    TP_INTERPOLATE_BICUBIC,
    TP_INTERPOLATE_NEAREST,
    TP_INTERPOLATE_NEAREST_EXACT
} tp_interpolation;
TP_API tp_tensor tp_interpolate(tp_tape *T, tp_tensor x, int64_t height, int64_t width,
                                tp_interpolation mode, bool align_corners);

/* ---- regions of maps ---- */
#define TP_ROI_LEVELS 6
typedef struct tp_roi_align_cfg {
    int64_t size[2]; /* rows and columns of the result, 1 to 256 */
    /* of each map: its pixels for one pixel of the image, 1 / stride; 0: 1 */
    double scale[TP_ROI_LEVELS];
    int samples; /* of a bin along each axis, up to 64; 0: one per pixel, rounded up */
    /* pixel centres are at 1/2, as in detectron2; otherwise at whole numbers, and regions are at
     * least one pixel wide and high, as originally */
    bool aligned;
} tp_roi_align_cfg;
/* RoIAlign (He et al. 2017) of regions of up to six maps, levels of one pyramid: map[l] [B,H,W,C],
 * H and W differ; boxes [R,4] f32, x1, y1, x2, y2 in pixels of the image, beside bf16 maps too;
 * place [R,2] i32 or i64, the image and the map of each region -> [R,rows,columns,C]. A region is
 * cut into rows x columns bins, each the mean of bilinear samples; samples more than one pixel
 * outside the map are 0, those nearer get the value at the edge. A region without extent gives
 * zeros (aligned, samples 0), as does one that is not finite. R may be 0. Boxes get no gradient.
 * Saves boxes and places. A place outside the maps is an error on the CPU; on a GPU it gives NaN
 * and no gradient. */
TP_API tp_tensor tp_roi_align(tp_tape *T, int levels, const tp_tensor *map, tp_tensor boxes,
                              tp_tensor place, tp_roi_align_cfg cfg);

#ifndef TP_NO_SITE
#include <tapegrad/sites/ops/layers.h>
#endif

#ifdef __cplusplus
}
#endif
#endif
