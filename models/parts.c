/* parts.c - pieces of forward passes that several image models share: initial values, checks, products with
 * parts of a matrix, branches with drop path, tokens, tables of positions. */
#include "parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/vit.h>

#include "model_inner.h"

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

tp_tensor tp__project(tp_tape *T, const tp_linear_m *m, tp_tensor x, int part, int parts)
{
    const int64_t rows = tp_dim(m->weight, 0) / parts;
    const tp_tensor w = tp_slice(T, m->weight, 0, part * rows, rows);
    const tp_tensor b = tp_given(m->bias) ? tp_slice(T, m->bias, 0, part * rows, rows) : TP_NONE;
    return tp_linear(T, x, w, b, TP_ACT_NONE);
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
    tp_enter(T, m->path);
    if (!tp_given(residual))
        return tp_leave(T,
                        tp_dropout(T, tp_linear(T, x, m->weight, m->bias, TP_ACT_NONE), dropout));
    const tp_tensor y = tp_linear(T, x, m->weight, TP_NONE, TP_ACT_NONE);
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

/* Resizes x, a table of `rows` rows, in double precision on the CPU, into the parameter. */
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

/* The file's table if it has to be resized; else NULL. */
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
