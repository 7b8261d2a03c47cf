/* parts.c - pieces that several models share: initial values, checks, projections by part of a
 * matrix, drop-path branches, tokens, position tables, normalised convolutions, random features. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/conv_norm.h>
#include <tapegrad/random.h>
#include <tapegrad/vit.h>

#include "model_inner.h"
#include "parts.h"

bool tp__side_of(const char *text, int64_t most, int64_t *side)
{
    char *end;
    if (text[0] != '-' || text[1] < '1' || text[1] > '9') return false;
    *side = strtoll(text + 1, &end, 10);
    return !*end && *side <= most;
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

tp_init tp__usual_init(const char *name, tp_shape s, tp_init dflt, void *last)
{
    bool *convolution = last;
    if (tp_ends_in(name, ".weight")) *convolution = s.ndim == 4;
    if (s.ndim == 2 || s.ndim == 3) return (tp_init){ TP_INIT_NORMAL, 0.02, 0.0 };
    if (tp_ends_in(name, ".bias") && !*convolution) return (tp_init){ .kind = TP_INIT_ZERO };
    return dflt;
}

/* ---- forward ---- */

bool tp__check_images(tp_tape *T, const tp_params *P, tp_tensor images)
{
    if (!tp_params_ok(P))
        tp_raise(T, TP_E_STATE, "%s", tp_params_why(P));
    else if (tp_ok(T) && (tp_ndim(images) != 4 || tp_dim(images, 3) != 3))
        tp_raise(T, TP_E_SHAPE, "images must be [batch,height,width,3], channels last");
    return tp_ok(T);
}

bool tp__fits_windows(tp_tape *T, tp_tensor map, int64_t window, int64_t own)
{
    if (!tp_ok(T)) return false;
    const int64_t rows = tp_dim(map, 1), cols = tp_dim(map, 2), side = rows < cols ? rows : cols;
    const int64_t wanted = window < side ? window : side;
    if (wanted != own)
        tp_raise(
            T, TP_E_SHAPE,
            "a map of %lld x %lld has windows of %lld, but the parameters are for windows of %lld: "
            "declare the model for this image size and load the weights with tp_net_load",
            (long long)rows, (long long)cols, (long long)wanted, (long long)own);
    else if (rows % own || cols % own)
        tp_raise(T, TP_E_SHAPE,
                 "a map of %lld x %lld does not divide into windows of %lld: "
                 "choose another image size or window",
                 (long long)rows, (long long)cols, (long long)own);
    return tp_ok(T);
}

/* ---- branches ---- */

static bool drops(const tp_tape *T, double rate)
{
    return rate > 0.0 && tp_is_training(T);
}

tp_tensor tp__residual(const tp_tape *T, tp_tensor x, double rate)
{
    return drops(T, rate) ? TP_NONE : x;
}

tp_tensor tp__add_branch(tp_tape *T, tp_tensor x, tp_tensor y, double rate)
{
    return drops(T, rate) ? tp_add(T, x, tp_drop_path(T, y, rate)) : y;
}

tp_tensor tp__linear_add(tp_tape *T, const tp_linear_m *m, tp_tensor x, tp_tensor residual,
                         double dropout)
{
    if (!tp_given(residual)) return tp_dropout(T, tp_linear_forward(T, m, x), dropout);
    const tp_tensor y = tp_linear_product(T, m, x);
    tp_enter(T, m->path);
    return tp_leave(T, tp_dropout_add(T, y, m->bias, residual, dropout));
}

tp_tensor tp__feed_forward(tp_tape *T, const tp_layernorm_m *norm, const tp_mlp_m *mlp, tp_tensor x,
                           double rate)
{
    const tp_tensor u = tp_layernorm_forward(T, norm, x);
    return tp__add_branch(T, x, tp_mlp_forward(T, mlp, u, tp__residual(T, x, rate)), rate);
}

/* ---- tokens and positions ---- */

tp_tensor tp__tokens(tp_tape *T, tp_tensor map)
{
    const int64_t B = tp_dim(map, 0), N = tp_dim(map, 1) * tp_dim(map, 2);
    return tp_reshape(T, map, TP_SHAPE(B, N, tp_dim(map, 3)));
}

tp_tensor tp__prepend(tp_tape *T, tp_tensor token, tp_tensor x)
{
    const tp_shape s = TP_SHAPE(tp_dim(x, 0), 1, tp_dim(x, 2));
    return tp_concat(T, 1, tp_expand(T, tp_cast(T, token, tp_dtype_of(x)), s), x);
}

tp_tensor tp_resize_positions(tp_tape *T, tp_tensor table, int64_t extra, const int64_t from[2],
                              const int64_t to[2], tp_interpolation mode)
{
    if (!from) {
        tp_raise_here(T, TP_E_STATE, "resize_positions: NULL was given in place of an array");
        return TP_NONE;
    }
    const int64_t D = tp_dim(table, 2), old = from[0] * from[1], new = to[0] * to[1];
    if (tp_ok(T) &&
        (tp_ndim(table) != 3 || tp_dim(table, 0) != 1 || tp_dim(table, 1) != extra + old))
        return tp_raise(T, TP_E_SHAPE, "a table of %lld + %lld x %lld positions must be [1,%lld,D]",
                        (long long)extra, (long long)from[0], (long long)from[1],
                        (long long)(extra + old));
    if (from[0] == to[0] && from[1] == to[1]) return table;
    tp_tensor grid =
        tp_reshape(T, tp_slice(T, table, 1, extra, old), TP_SHAPE(1, from[0], from[1], D));
    grid = tp_interpolate(T, grid, to[0], to[1], mode, false);
    grid = tp_reshape(T, grid, TP_SHAPE(1, new, D));
    return extra ? tp_concat(T, 1, tp_slice(T, table, 1, 0, extra), grid) : grid;
}

tp_tensor tp__positions(tp_tape *T, const tp__table *t, int64_t height, int64_t width)
{
    const int64_t to[2] = { height, width };
    return tp_resize_positions(T, t->table, t->extra, t->grid, to, t->mode);
}

/* ---- tables in files ---- */

bool tp__table_resizes(const tp_shape *here, const tp_shape *there)
{
    return here->ndim == 3 && there->ndim == 3 && there->dim[0] == 1 &&
           here->dim[2] == there->dim[2];
}

/* Resizes x, a table of `rows` rows, into the parameter, in double on the CPU. */
static void set_resized(tp_params *P, const tp__table *t, const double *x, int64_t rows)
{
    const int64_t side = llround(sqrt((double)(rows - t->extra))), from[2] = { side, side };
    const size_t bytes = (size_t)tp_numel(t->table) * sizeof(double);
    double *y = malloc(bytes);
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .threads = 1 });
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = TP_F64 });
    const tp_tensor old = tp_from(T, TP_F64, TP_SHAPE(1, rows, tp_dim(t->table, 2)), x);
    const tp_tensor new = tp_resize_positions(T, old, t->extra, from, t->grid, t->mode);
    if (!y)
        tp_params_raise(P, TP_E_MEMORY, "%s: out of host memory", t->name);
    else if (!tp_read(T, new, y, bytes))
        tp_params_raise(P, tp_code_of(T), "%s: %s", t->name, tp_why(T));
    else if (!tp_param_set(P, t->table, TP_F64, y, bytes))
        tp_params_raise(P, TP_E_VALUE, "%s", tp_params_why(P));
    tp_tape_free(T);
    tp_device_close(D);
    free(y);
}

/* The file's table if it needs resizing, else NULL. */
static const tp_file_tensor *other_table(const tp_file *F, const tp__table *t)
{
    const tp_shape here = tp_shape_of(t->table);
    const tp_file_tensor *there = tp_file_find(F, t->name);
    return there && tp__table_resizes(&here, &there->shape) &&
                   !tp__equal_shapes(&here, &there->shape)
               ? there
               : NULL;
}

bool tp__check_table(tp_params *P, const tp_file *F, const tp__table *t)
{
    const tp_file_tensor *there = other_table(F, t);
    if (!there) return tp_params_ok(P);
    const int64_t rows = there->shape.dim[1], side = llround(sqrt((double)(rows - t->extra)));
    if (rows > t->extra && side * side == rows - t->extra) return tp_params_ok(P);
    return tp_params_refuse(P, TP_E_SHAPE,
                            "%s: %s has %lld rows, which are not %lld and those of a square grid",
                            tp_file_path(F), t->name, (long long)rows, (long long)t->extra);
}

bool tp__load_table(tp_params *P, tp_file *F, const tp__table *t)
{
    const tp_file_tensor *there = other_table(F, t);
    if (!there || !tp_params_ok(P)) return tp_params_ok(P);
    const int64_t rows = there->shape.dim[1];
    double *x = malloc((size_t)there->numel * sizeof *x);
    if (!x)
        tp_params_raise(P, TP_E_MEMORY, "%s: out of host memory", t->name);
    else if (tp_file_read(F, there, TP_F64, x))
        set_resized(P, t, x, rows);
    else
        tp_params_raise(P, TP_E_IO, "%s", tp_file_why(F));
    free(x);
    return tp_params_ok(P);
}

/* ---- positions that only loading resizes ----
 *
 * Bicubic as in PyTorch's interpolate without antialiasing (a = -0.75, edges repeated), one axis
 * after the other, in double. */

/* Weights of four samples for a position t in [0,1) after the second sample. */
static void cubic(double t, double weight[4])
{
    const double a = -0.75;
    for (int i = 0; i < 4; i++) {
        const double x = fabs((double)i - 1.0 - t);
        weight[i] = x <= 1.0 ? ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
                             : (((x - 5.0) * x + 8.0) * x - 4.0) * a;
    }
}

/* y [outer,to,inner] = x [outer,from,inner], resized along the middle axis with repeated edges. */
static void resize(const double *x, double *y, int64_t outer, int64_t from, int64_t to,
                   int64_t inner)
{
    for (int64_t o = 0; o < outer * to; o++) {
        const double place = ((double)(o % to) + 0.5) * (double)from / (double)to - 0.5;
        const int64_t first = (int64_t)floor(place) - 1;
        double weight[4];
        cubic(place - floor(place), weight);
        for (int64_t i = 0; i < inner; i++) {
            double sum = 0.0;
            for (int64_t k = 0; k < 4; k++) {
                const int64_t at = first + k < 0 ? 0 : first + k >= from ? from - 1 : first + k;
                sum += weight[k] * x[(o / to * from + at) * inner + i];
            }
            y[o * inner + i] = sum;
        }
    }
}

int64_t tp__root(int64_t n)
{
    const int64_t r = (int64_t)llround(sqrt((double)n));
    return r * r == n ? r : 0;
}

bool tp__relative_table(const tp_shape *here, const tp_shape *there, tp__grid *p)
{
    if (here->ndim != 2 || there->ndim != 2 || here->dim[1] != there->dim[1]) return false;
    const int64_t from = tp__root(there->dim[0]), to = tp__root(here->dim[0]);
    *p = (tp__grid){ 2, { from, from }, { to, to }, here->dim[1] };
    return from > 0 && to > 0;
}

/* Product of the sizes of axes first .. last - 1. */
static int64_t product(const int64_t *size, int first, int last)
{
    int64_t n = 1;
    for (int i = first; i < last; i++) n *= size[i];
    return n;
}

/* Largest intermediate number of elements. */
static int64_t most_elements(const tp__grid *p)
{
    int64_t n = p->inner;
    for (int i = 0; i < p->axes; i++) n *= p->from[i] > p->to[i] ? p->from[i] : p->to[i];
    return n;
}

void tp__load_positions(tp_params *P, tp_file *F, const tp_param_info *it, const tp_file_tensor *t,
                        const tp__grid *p)
{
    const int64_t most = most_elements(p), n = product(p->to, 0, p->axes) * p->inner;
    double *x = malloc((size_t)(2 * most) * sizeof *x), *y = x ? x + most : NULL, *source = x;
    if (!x) {
        tp_params_raise(P, TP_E_MEMORY, "%s: out of host memory", it->name);
        return;
    }
    if (tp_file_read(F, t, TP_F64, x)) {
        for (int axis = 0; axis < p->axes; axis++) {
            const int64_t each = p->inner * product(p->from, axis + 1, p->axes);
            resize(source, y, product(p->to, 0, axis), p->from[axis], p->to[axis], each);
            double *spare = source;
            source = y;
            y = spare;
        }
        if (!tp_param_set(P, it->tensor, TP_F64, source, (size_t)n * sizeof *source))
            tp_params_raise(P, TP_E_VALUE, "%s", tp_params_why(P));
    } else {
        tp_params_raise(P, TP_E_IO, "%s", tp_file_why(F));
    }
    free(x);
}

/* ---- random features of Performer's attention ---- */

/* a -= (a . b) b */
static void project_out(double *a, const double *b, int64_t D)
{
    double along = 0.0;
    for (int64_t c = 0; c < D; c++) along += a[c] * b[c];
    for (int64_t c = 0; c < D; c++) a[c] -= along * b[c];
}

/* Gram-Schmidt on the rows of x [n,D], n <= D. Orthogonalises each row twice against the earlier
 * ones: the second pass removes the rounding error of the first. */
static void orthonormalise(double *x, int64_t n, int64_t D)
{
    for (int64_t i = 0; i < n; i++) {
        double *row = x + i * D, square = 0.0;
        for (int pass = 0; pass < 2; pass++)
            for (int64_t k = 0; k < i; k++) project_out(row, x + k * D, D);
        for (int64_t c = 0; c < D; c++) square += row[c] * row[c];
        for (int64_t c = 0; c < D; c++) row[c] /= sqrt(square);
    }
}

/* x [m,D]: blocks of D orthogonal rows, each with the length of a random normal vector. */
static void draw_features(tp_random *r, double *x, int64_t m, int64_t D)
{
    for (int64_t i = 0; i < m * D; i++) x[i] = tp_random_normal(r);
    for (int64_t i = 0; i < m; i += D) orthonormalise(x + i * D, m - i < D ? m - i : D, D);
    for (int64_t i = 0; i < m; i++) {
        double square = 0.0;
        for (int64_t c = 0; c < D; c++) {
            const double z = tp_random_normal(r);
            square += z * z;
        }
        for (int64_t c = 0; c < D; c++) x[i * D + c] *= sqrt(square);
    }
}

bool tp__draw_features(tp_params *P, tp_tensor w, tp_random *r)
{
    const size_t n = (size_t)tp_numel(w);
    double *x = calloc(n, sizeof *x);
    if (!x) {
        tp_params_raise(P, TP_E_MEMORY, "random features: out of host memory");
        return false;
    }
    draw_features(r, x, tp_dim(w, 0), tp_dim(w, 1));
    const bool ok = tp_param_set(P, w, TP_F64, x, n * sizeof *x);
    free(x);
    return ok;
}

/* ---- a convolution with bias and a layer norm over the channels ---- */

void tp_conv_norm_init(tp_params *P, tp_conv_norm *m, const char *name, tp_conv_norm_cfg c)
{
    if (!tp_params_want_module(P, m, "conv_norm")) return;
    const tp_conv_cfg conv = { .stride = { c.stride, c.stride }, .pad = { c.pad, c.pad } };
    m->path = tp_push(P, name);
    tp_conv2d_init(P, &m->conv, c.conv ? c.conv : "proj", c.in, c.out, c.kernel, true, conv);
    tp_layernorm_init(P, &m->norm, c.norm ? c.norm : "norm", c.out, c.eps > 0.0 ? c.eps : 1e-5);
    tp_pop(P);
}

tp_tensor tp_conv_norm_forward(tp_tape *T, const tp_conv_norm *m, tp_tensor x)
{
    if (!tp_want_module(T, m, "conv_norm")) return TP_NONE;
    tp_enter(T, m->path);
    return tp_leave(T, tp_layernorm_forward(T, &m->norm, tp_conv2d_forward(T, &m->conv, x)));
}
