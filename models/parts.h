/* parts.h - pieces that several models share. */
#ifndef TP_MODEL_PARTS_H
#define TP_MODEL_PARTS_H

#include <tapegrad/model.h>
#include <tapegrad/random.h>

/* The usual initial values (a tp_init_rule): matrices, tables and tokens N(0, 0.02), biases of
 * linear layers 0, the rest by the modules' defaults. env is a bool: the weight declared last is a
 * convolution's. */
tp_init tp__usual_init(const char *name, tp_shape s, tp_init dflt, void *env);

/* True if P is ok and images are [B,H,W,3]; else T fails. */
bool tp__check_images(tp_tape *T, const tp_params *P, tp_tensor images);

/* Fails T unless map [B,H,W,D] divides into windows of the parameters' size, `own`. Windows are
 * `window`, or the map's smaller side if that is less. */
bool tp__fits_windows(tp_tape *T, tp_tensor map, int64_t window, int64_t own);

/* x times part `part` of a matrix whose rows are divided into `parts` equal parts, views of it:
 * queries, keys and values are often stored as one matrix. */
tp_tensor tp__project(tp_tape *T, const tp_linear_m *m, tp_tensor x, int part, int parts);

/* A branch that is added to x, with the rate of drop path: branch(..., tp__residual(T, x, rate))
 * adds x while it computes its last product, if the branch is not dropped; tp__add_branch adds it
 * otherwise. residual: x or TP_NONE. add_branch: x + drop_path(y), or y itself if it has the sum
 * already. */
tp_tensor tp__residual(const tp_tape *T, tp_tensor x, double rate);
tp_tensor tp__add_branch(tp_tape *T, tp_tensor x, tp_tensor y, double rate);

/* x w^T + b, with dropout, added to the residual unless that is TP_NONE. */
tp_tensor tp__linear_add(tp_tape *T, const tp_linear_m *m, tp_tensor x, tp_tensor residual,
                         double dropout);

/* x + mlp(norm(x)), with drop path. */
tp_tensor tp__feed_forward(tp_tape *T, const tp_layernorm_m *norm, const tp_mlp_m *mlp, tp_tensor x,
                           double rate);

/* [B,H,W,D] -> [B,H*W,D] */
tp_tensor tp__tokens(tp_tape *T, tp_tensor map);

/* Prepends the token [1,1,D] to each row of x [B,N,D]. */
tp_tensor tp__prepend(tp_tape *T, tp_tensor token, tp_tensor x);

/* Reads the end of a preset's name, "-" and the side of images, 1 to `most`. False: it is something
 * else. */
bool tp__side_of(const char *text, int64_t most, int64_t *side);

/* The rate of block i of n, which rises from 0 to `last`. */
static inline double tp__drop_rate(double last, int i, int n)
{
    return n > 1 ? last * i / (n - 1) : 0.0;
}

/* Hidden width of an MLP, and whether it is whole and from 1 to `most`. */
int64_t tp__hidden(double ratio, int64_t dim);
bool tp__is_ratio(double ratio, int64_t dim, int64_t most);

/* ---- tables of positions that forward passes resize ---- */

/* A table of positions [1,extra+N,D]: `extra` rows of tokens, then those of a grid. */
typedef struct tp__table {
    const char *name;
    tp_tensor table;
    int64_t extra, grid[2]; /* of the model; in files of another size the grid is a square */
    tp_interpolation mode;
} tp__table;

/* The table for a map of that size: itself, or resized as by tp_resize_positions. */
tp_tensor tp__positions(tp_tape *T, const tp__table *t, int64_t height, int64_t width);

/* True if a table of one shape may be resized to the other: `resizes_to` of tables. */
bool tp__table_resizes(const tp_shape *here, const tp_shape *there);

/* If the table has other rows in F, tp__check_table refuses those that it could not resize, and
 * tp__load_table, after everything else has been loaded, resizes them. False: P has refused or
 * failed. */
bool tp__check_table(tp_params *P, const tp_file *F, const tp__table *t);
bool tp__load_table(tp_params *P, tp_file *F, const tp__table *t);

/* ---- positions that only loading resizes ---- */

/* A parameter over positions: [axis 0, axis 1, ..., inner] in the file and in the model. */
typedef struct tp__grid {
    int axes;
    int64_t from[4], to[4], inner;
} tp__grid;

/* True, with p filled, if here [(2w-1)^2,H] and there are tables of relative positions. */
bool tp__relative_table(const tp_shape *here, const tp_shape *there, tp__grid *p);

/* Loads t into the parameter, resized over positions, bicubic as in PyTorch's interpolate. */
void tp__load_positions(tp_params *P, tp_file *F, const tp_param_info *it, const tp_file_tensor *t,
                        const tp__grid *p);

/* The exact root of n, or 0. */
int64_t tp__root(int64_t n);

/* ---- random features ---- */

/* Fills w [m,D] with random features of Performer: blocks of D orthogonal rows, each with the
 * length of a normal vector. False: P has failed. */
bool tp__draw_features(tp_params *P, tp_tensor w, tp_random *r);

#endif
