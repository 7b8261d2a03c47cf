/* image_parts.c - what image models share: initial values, products with parts of a matrix, the
 * residual branches of a transformer block, checks of maps and images.
 *
 * A block is x + attention(norm1 x), then x + mlp(norm2 x). In training each branch may be dropped
 * for whole samples (stochastic depth). */
#include <math.h>

#include "model_inner.h"

/* ---- initial values ---- */

tp_init tp__vit_init(const char *name, tp_shape s, tp_init dflt, void *last)
{
    bool *convolution = last;
    if (tp_ends_in(name, ".weight")) *convolution = s.ndim == 4;
    if (s.ndim == 2 || s.ndim == 3) return (tp_init){ TP_INIT_NORMAL, 0.02, 0.0 };
    if (tp_ends_in(name, ".bias") && !*convolution) return (tp_init){ .kind = TP_INIT_ZERO };
    return dflt;
}

/* ---- forward ---- */

tp_tensor tp__project(tp_tape *T, const tp_linear_m *m, tp_tensor x, int part, int parts)
{
    const int64_t rows = tp_dim(m->weight, 0) / parts;
    const tp_tensor w = tp_slice(T, m->weight, 0, part * rows, rows);
    const tp_tensor b = tp_given(m->bias) ? tp_slice(T, m->bias, 0, part * rows, rows) : TP_NONE;
    return tp_linear(T, x, w, b, TP_ACT_NONE);
}

tp_tensor tp__mlp_branch(tp_tape *T, const tp_layernorm_m *norm, const tp_mlp_m *mlp, tp_tensor x,
                         double drop_path)
{
    const tp_tensor u = tp_layernorm_forward(T, norm, x);
    if (!tp_is_training(T) || drop_path == 0.0) return tp_mlp_forward(T, mlp, u, x);
    return tp_add(T, x, tp_drop_path(T, tp_mlp_forward(T, mlp, u, TP_NONE), drop_path));
}

tp_tensor tp__tokens(tp_tape *T, tp_tensor map)
{
    const int64_t B = tp_dim(map, 0), N = tp_dim(map, 1) * tp_dim(map, 2);
    return tp_reshape(T, map, TP_SHAPE(B, N, tp_dim(map, 3)));
}

tp_tensor tp__after_token(tp_tape *T, tp_tensor token, tp_tensor x)
{
    const tp_shape s = TP_SHAPE(tp_dim(x, 0), 1, tp_dim(x, 2));
    return tp_concat(T, 1, tp_expand(T, tp_cast(T, token, tp_dtype_of(x)), s), x);
}

/* ---- checks ---- */

bool tp__takes_images(tp_tape *T, const tp_params *P, tp_tensor images)
{
    if (!tp_params_ok(P))
        tp_raise(T, TP_E_STATE, "%s", tp_params_why(P));
    else if (tp_ok(T) && (tp_ndim(images) != 4 || tp_dim(images, 3) != 3))
        tp_raise(T, TP_E_SHAPE, "images must be [batch,height,width,3], channels last");
    return tp_ok(T);
}

bool tp__fits_windows(tp_tape *T, tp_tensor map, int64_t window, int64_t own, const char *loader)
{
    if (!tp_ok(T)) return false;
    const int64_t rows = tp_dim(map, 1), cols = tp_dim(map, 2), side = rows < cols ? rows : cols;
    const int64_t wanted = window < side ? window : side;
    if (wanted != own)
        tp_raise(
            T, TP_E_SHAPE,
            "a map of %lld x %lld has windows of %lld, but the parameters are for windows of %lld: "
            "declare the model for this image size and load the weights with %s",
            (long long)rows, (long long)cols, (long long)wanted, (long long)own, loader);
    else if (rows % own || cols % own)
        tp_raise(T, TP_E_SHAPE,
                 "a map of %lld x %lld does not divide into windows of %lld: "
                 "choose another image size or window",
                 (long long)rows, (long long)cols, (long long)own);
    return tp_ok(T);
}

double tp__drop_rate(double last, int i, int n)
{
    return n > 1 ? last * i / (n - 1) : 0.0;
}

int64_t tp__hidden(double ratio, int64_t dim)
{
    return (int64_t)llround(ratio * (double)dim);
}

bool tp__is_ratio(double ratio, int64_t dim, int64_t most)
{
    const double hidden = ratio * (double)dim;
    return hidden >= 1.0 && hidden <= (double)most && hidden == floor(hidden);
}
