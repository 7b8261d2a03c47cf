/* ref_norms.c - composes norms and linear layers of plain ops. */
#include "ops/ref_norms.h"

/* [...] to [...,1]. */
static tp_tensor column(tp_tape *T, tp_tensor x)
{
    tp_shape s = tp_shape_of(x);
    s.dim[s.ndim++] = 1;
    return tp_reshape(T, x, s);
}

/* y w + b. */
static tp_tensor affine(tp_tape *T, tp_tensor y, tp_tensor w, tp_tensor b)
{
    if (tp_given(w)) y = tp_mul(T, y, w);
    return tp_given(b) ? tp_add(T, y, b) : y;
}

/* sqrt(m + eps). */
static tp_tensor deviation(tp_tape *T, tp_tensor m, double eps)
{
    return tp_sqrt(T, tp_add(T, m, tp_full(T, tp_dtype_of(m), TP_SCALAR, eps)));
}

tp_tensor ref_layernorm(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b, double eps)
{
    const tp_tensor d = tp_sub(T, x, column(T, tp_mean(T, x, -1)));
    const tp_tensor var = column(T, tp_mean(T, tp_square(T, d), -1));
    return affine(T, tp_div(T, d, deviation(T, var, eps)), w, b);
}

tp_tensor ref_rmsnorm(tp_tape *T, tp_tensor x, tp_tensor w, double eps)
{
    const tp_tensor m = column(T, tp_mean(T, tp_square(T, x), -1));
    return affine(T, tp_div(T, x, deviation(T, m, eps)), w, TP_NONE);
}

tp_tensor ref_batchnorm(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b, double eps)
{
    const tp_tensor d = tp_sub(T, x, tp_mean(T, x, 0));
    const tp_tensor var = tp_mean(T, tp_square(T, d), 0);
    return affine(T, tp_div(T, d, deviation(T, var, eps)), w, b);
}

tp_tensor ref_instancenorm(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b, double eps)
{
    const tp_tensor rows = tp_permute(T, x, TP_SHAPE(0, 2, 1)); /* [B,C,positions] */
    const tp_tensor y = ref_layernorm(T, rows, TP_NONE, TP_NONE, eps);
    return affine(T, tp_permute(T, y, TP_SHAPE(0, 2, 1)), w, b);
}

tp_tensor ref_groupnorm(tp_tape *T, tp_tensor x, int64_t groups, tp_tensor w, tp_tensor b,
                        double eps)
{
    const int64_t B = tp_dim(x, 0), N = tp_dim(x, 1), D = tp_dim(x, 2) / groups;
    tp_tensor y = tp_reshape(T, x, TP_SHAPE(B, N, groups, D));
    y = tp_reshape(T, tp_permute(T, y, TP_SHAPE(0, 2, 1, 3)), TP_SHAPE(B, groups, N * D));
    y = tp_reshape(T, ref_layernorm(T, y, TP_NONE, TP_NONE, eps), TP_SHAPE(B, groups, N, D));
    y = tp_permute(T, y, TP_SHAPE(0, 2, 1, 3));
    return affine(T, tp_reshape(T, y, tp_shape_of(x)), w, b);
}

tp_tensor ref_weight_standardize(tp_tape *T, tp_tensor w, double eps, bool biased)
{
    const tp_tensor d = tp_sub(T, w, column(T, tp_mean(T, w, -1)));
    const tp_tensor var = column(T, tp_mean(T, tp_square(T, d), -1));
    const double n = (double)tp_dim(w, 1);
    if (biased) return tp_div(T, d, deviation(T, var, eps));
    const tp_tensor std = tp_sqrt(T, tp_scale(T, var, n / (n - 1.0)));
    return tp_div(T, d, tp_add(T, std, tp_full(T, tp_dtype_of(w), TP_SCALAR, eps)));
}

tp_tensor ref_softmax(tp_tape *T, tp_tensor x)
{
    const tp_tensor e = tp_exp(T, tp_sub(T, x, tp_detach(T, column(T, tp_max(T, x, -1)))));
    return tp_div(T, e, column(T, tp_sum(T, e, -1)));
}

tp_tensor ref_log_softmax(tp_tape *T, tp_tensor x)
{
    return tp_sub(T, x, column(T, tp_logsumexp(T, x, -1)));
}

tp_tensor ref_linear(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b, tp_act act)
{
    const int64_t R = tp_dim(x, 0), N = tp_dim(w, 0), K = tp_dim(x, 1);
    const tp_tensor rows = tp_expand(T, tp_reshape(T, x, TP_SHAPE(R, 1, K)), TP_SHAPE(R, N, K));
    const tp_tensor z = affine(T, tp_sum(T, tp_mul(T, rows, w), -1), TP_NONE, b);
    switch (act) {
    case TP_ACT_RELU: return tp_relu(T, z);
    case TP_ACT_GELU: return tp_gelu(T, z);
    case TP_ACT_QUICK_GELU: return tp_quick_gelu(T, z);
    case TP_ACT_SILU: return tp_silu(T, z);
    case TP_ACT_GELU_TANH: return tp_gelu_tanh(T, z);
    case TP_ACT_TANH: return tp_tanh(T, z);
    case TP_ACT_SIGMOID: return tp_sigmoid(T, z);
    case TP_ACT_NONE: break;
    }
    return z;
}
