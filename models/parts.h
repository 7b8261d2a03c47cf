/* parts.h - pieces that several models share. */
#ifndef TP_MODEL_PARTS_H
#define TP_MODEL_PARTS_H

#include <tapegrad/model.h>
#include <tapegrad/random.h>

/* The usual tp_init_rule: matrices, tables and tokens N(0, 0.02), biases of linear layers 0,
 * otherwise module defaults. env: a bool, true if the last weight declared is a convolution's. */
tp_init tp__usual_init(const char *name, tp_shape s, tp_init dflt, void *env);

/* True if P is ok and images are [B,H,W,3]; else T fails. */
bool tp__check_images(tp_tape *T, const tp_params *P, tp_tensor images);

/* Fails T unless map [B,H,W,D] divides into windows of the parameters' size, `own`. The window is
 * the smaller of `window` and the map's sides. */
bool tp__fits_windows(tp_tape *T, tp_tensor map, int64_t window, int64_t own);

/* Residual branches with drop path. Without dropping, branch(..., tp__residual(T, x, rate)) adds x
 * in its last product; otherwise tp__add_branch adds it. residual returns x or TP_NONE; add_branch
 * returns x + drop_path(y), or y if it already includes x. */
tp_tensor tp__residual(const tp_tape *T, tp_tensor x, double rate);
tp_tensor tp__add_branch(tp_tape *T, tp_tensor x, tp_tensor y, double rate);

/* dropout(x w^T + b), plus the residual unless it is TP_NONE. */
tp_tensor tp__linear_add(tp_tape *T, const tp_linear_m *m, tp_tensor x, tp_tensor residual,
                         double dropout);

/* x + mlp(norm(x)), with drop path. */
tp_tensor tp__feed_forward(tp_tape *T, const tp_layernorm_m *norm, const tp_mlp_m *mlp, tp_tensor x,
                           double rate);

/* [B,H,W,D] -> [B,H*W,D] */
tp_tensor tp__tokens(tp_tape *T, tp_tensor map);

/* Prepends the token [1,1,D] to each row of x [B,N,D]. */
tp_tensor tp__prepend(tp_tape *T, tp_tensor token, tp_tensor x);

/* Parses a preset's suffix, "-" and an image side from 1 to `most`. False for other text. */
bool tp__side_of(const char *text, int64_t most, int64_t *side);

/* Rate of block i of n, rising from 0 to `last`. */
static inline double tp__drop_rate(double last, int i, int n)
{
    return n > 1 ? last * i / (n - 1) : 0.0;
}

/* Hidden width of an MLP; is it an integer from 1 to `most`? */
int64_t tp__hidden(double ratio, int64_t dim);
bool tp__is_ratio(double ratio, int64_t dim, int64_t most);

/* ---- position tables resized in forward passes ---- */

/* A position table [1,extra+N,D]: `extra` rows for tokens, then a grid. */
typedef struct tp__table {
    const char *name;
    tp_tensor table;
    int64_t extra, grid[2]; /* of the model; other sizes in files are squares */
    tp_interpolation mode;
} tp__table;

/* The table for a map of that size, resized by tp_resize_positions. */
tp_tensor tp__positions(tp_tape *T, const tp__table *t, int64_t height, int64_t width);

/* A `resizes_to`: can a table of one shape be resized to the other? */
bool tp__table_resizes(const tp_shape *here, const tp_shape *there);

/* For a table whose number of rows differs in F: tp__check_table refuses rows it cannot resize;
 * tp__load_table resizes them after everything else is loaded. False: P has refused or failed. */
bool tp__check_table(tp_params *P, const tp_file *F, const tp__table *t);
bool tp__load_table(tp_params *P, tp_file *F, const tp__table *t);

/* ---- positions resized only when loading ---- */

/* A parameter over positions: [axis 0, axis 1, ..., inner] in the file and in the model. */
typedef struct tp__grid {
    int axes;
    int64_t from[4], to[4], inner;
} tp__grid;

/* True, filling p, if here [(2w-1)^2,H] and there are relative position tables. */
bool tp__relative_table(const tp_shape *here, const tp_shape *there, tp__grid *p);

/* Loads t into the parameter, resizing positions like PyTorch's bicubic interpolate. */
void tp__load_positions(tp_params *P, tp_file *F, const tp_param_info *it, const tp_file_tensor *t,
                        const tp__grid *p);

/* Exact root of n, or 0. */
int64_t tp__root(int64_t n);

/* ---- random features ---- */

/* Fills w [m,D] with random features of Performer: blocks of D orthogonal rows, each with the
 * length of a normal vector. False: P has failed. */
bool tp__draw_features(tp_params *P, tp_tensor w, tp_random *r);

#endif
