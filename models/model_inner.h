/* model_inner.h - functions that the files of the models library share. */
#ifndef TP_MODEL_INNER_H
#define TP_MODEL_INNER_H

#include <string.h>
#include <tapegrad/model.h>
#include <tapegrad/random.h>

/* The name of the model in a file, or NULL: metadata "model", or "classifier" in early checkpoints
 * of a model that wrote no other. */
const char *tp__model_of(tp_file *F);

/* Loads weights of another input size; see the functions without a second underscore. */
bool tp__vil_load(tp_params *P, const void *m, tp_file *F);
bool tp__cvt_load(tp_params *P, tp_file *F);
bool tp__vit_lsla_load(tp_params *P, tp_file *F);
bool tp__swin_load(tp_params *P, const void *m, tp_file *F);

/* The member `resizes_to` of these models. */
bool tp__vil_resizes(const char *name, const tp_shape *here, const tp_shape *there);
bool tp__cvt_resizes(const char *name, const tp_shape *here, const tp_shape *there);
bool tp__vit_lsla_resizes(const char *name, const tp_shape *here, const tp_shape *there);
bool tp__swin_resizes(const char *name, const tp_shape *here, const tp_shape *there);

/* Have both as many axes, of the same lengths? */
static inline bool tp__equal_shapes(const tp_shape *a, const tp_shape *b)
{
    return a->ndim == b->ndim && memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof a->dim[0]) == 0;
}

/* Gives a publisher's file the names of P, which holds that model, and copies the prefix that was
 * removed from them. None is if F has any of the names itself: an optimiser's moments must not stand in
 * for a weight that is missing. */
void tp__published_enter(const tp_model *model, const tp_params *P, tp_file *F, char *prefix,
                         size_t size);

/* Fills w [m,D] with random features of Performer: blocks of D orthogonal rows, each with the length of a
 * normal vector. False: P has failed. */
bool tp__draw_features(tp_params *P, tp_tensor w, tp_random *r);

/* ---- parts of image models ---- image_parts.c */

/* The usual initial values (a tp_init_rule): matrices, tables and tokens N(0, 0.02), biases of linear layers
 * 0, the rest by the modules' defaults. env is a bool: the weight declared last is a convolution's. */
tp_init tp__vit_init(const char *name, tp_shape s, tp_init dflt, void *env);

/* x times part `part` of the matrix, whose rows are divided into `parts` equal parts, which are views. */
tp_tensor tp__project(tp_tape *T, const tp_linear_m *m, tp_tensor x, int part, int parts);

/* x + drop_path(mlp(norm(x))). Without drop path the sum is part of the last product. */
tp_tensor tp__mlp_branch(tp_tape *T, const tp_layernorm_m *norm, const tp_mlp_m *mlp, tp_tensor x,
                         double drop_path);

tp_tensor tp__tokens(tp_tape *T, tp_tensor map); /* [B,H,W,D] -> [B,H*W,D] */
tp_tensor tp__after_token(tp_tape *T, tp_tensor token,
                          tp_tensor x); /* [1,1,D], [B,N,D] -> [B,1+N,D] */

/* Fails T with P's error, or unless images are [B,h,w,3]. True: T is fine. */
bool tp__takes_images(tp_tape *T, const tp_params *P, tp_tensor images);

/* Fails T unless map [B,H,W,D] divides into windows of the parameters' size, `own`. Windows are `window`, or
 * the map's smaller side if that is less. loader: the function that resizes the weights. */
bool tp__fits_windows(tp_tape *T, tp_tensor map, int64_t window, int64_t own, const char *loader);

/* Stochastic depth of block i of n, which rises from 0 to `last`. */
double tp__drop_rate(double last, int i, int n);

/* Hidden width of an MLP, and whether it is whole and from 1 to `most`. */
int64_t tp__hidden(double ratio, int64_t dim);
bool tp__is_ratio(double ratio, int64_t dim, int64_t most);

/* ---- resized positions ---- positions.c */

/* A parameter over positions: [axis 0, axis 1, ..., inner] in the file and in the model. */
typedef struct tp_positions {
    int axes;
    int64_t from[4], to[4], inner;
} tp_positions;

/* True, with p filled, if here [(2w-1)^2,H] and there are tables of relative positions. */
bool tp__relative_table(const tp_shape *here, const tp_shape *there, tp_positions *p);

/* Loads t into the parameter, resized over positions, bicubic as in PyTorch's interpolate. */
void tp__load_positions(tp_params *P, tp_file *F, const tp_param_info *it, const tp_file_tensor *t,
                        const tp_positions *p);

/* The exact root of n, or 0. */
int64_t tp__root(int64_t n);

/* ---- checks of configurations ---- */

static inline bool tp__in_range(int64_t x, int64_t least, int64_t most)
{
    return x >= least && x <= most;
}

/* A probability of dropping something; false for NaN. */
static inline bool tp__is_rate(double p)
{
    return p >= 0.0 && p < 1.0;
}

#endif
