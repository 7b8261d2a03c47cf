/* load.c - loads weights of a Vision Longformer for another resolution, window or number of
 * classes, by the official rule. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inner.h"

/* ---- resizing ---- */

/* Sample i of `to` is between samples *low and *high of `from`; returns its distance from *low. */
static double place(int64_t i, int64_t from, int64_t to, int64_t *low, int64_t *high)
{
    const double at = ((double)i + 0.5) * (double)from / (double)to - 0.5;
    *low = at > 0.0 ? (int64_t)at : 0;
    *high = *low + 1 < from ? *low + 1 : from - 1;
    return at > 0.0 ? at - (double)*low : 0.0;
}

void tp_vil_resize(const double *x, const int64_t from[2], double *y, const int64_t to[2],
                   int64_t channels)
{
    if (!x) return;
    for (int64_t i = 0; i < to[0]; i++)
        for (int64_t j = 0; j < to[1]; j++) {
            int64_t top, bottom, left, right;
            const double s = place(i, from[0], to[0], &top, &bottom);
            const double t = place(j, from[1], to[1], &left, &right);
            const double *a = x + (top * from[1] + left) * channels;
            const double *b = x + (top * from[1] + right) * channels;
            const double *c = x + (bottom * from[1] + left) * channels;
            const double *d = x + (bottom * from[1] + right) * channels;
            for (int64_t k = 0; k < channels; k++)
                *y++ =
                    (1.0 - s) * ((1.0 - t) * a[k] + t * b[k]) + s * ((1.0 - t) * c[k] + t * d[k]);
        }
}

/* ---- one parameter ---- */

typedef struct loader {
    tp_params *P;
    tp_file *F;
    tp_vil_cfg old; /* of the file; without stages if it has none */
} loader;

/* Tables of positions and a head with more classes are resized. Linformer's mixtures of another map and
 * the tensors of another number of global tokens keep their initial values, as in the official code. */
bool tp__vil_resizes(const char *name, const tp_shape *here, const tp_shape *there)
{
    static const char *const leaves[] = { "cls_token",   "cls_pos_embed", "x_pos_embed",
                                          "y_pos_embed", "attn.proj_k",   "attn.proj_v",
                                          TP_VIL_TABLE };
    const int last = here->ndim - 1;
    if (here->ndim != there->ndim || last < 0) return false;
    if (tp_ends_in(name, "g2l_relative_position_bias")) return here->dim[1] == there->dim[1];
    if (tp_ends_in(name, "g2g_relative_position_bias")) return here->dim[0] == there->dim[0];
    if (last > 0 && here->dim[last] != there->dim[last]) return false;
    if (tp_ends_in(name, "head.weight") || tp_ends_in(name, "head.bias"))
        return there->dim[0] > here->dim[0];
    for (size_t i = 0; i < sizeof leaves / sizeof *leaves; i++)
        if (tp_ends_in(name, leaves[i])) return true;
    return false;
}

/* The tensor of a parameter in the file if it has another shape, with as many axes and the same
 * last one; else NULL. */
static const tp_file_tensor *other_shape(const loader *l, const char *name, tp_tensor p)
{
    const tp_file_tensor *t = tp_given(p) ? tp_file_find(l->F, name) : NULL;
    const tp_shape s = tp_shape_of(p);
    if (!t || tp__equal_shapes(&t->shape, &s) || t->shape.ndim != s.ndim || t->numel == 0)
        return NULL;
    return t->shape.dim[s.ndim - 1] == s.dim[s.ndim - 1] || s.ndim == 1 ? t : NULL;
}

static void load_resized(loader *l, const tp_file_tensor *t, tp_tensor p, const int64_t from[2],
                         const int64_t to[2])
{
    const int64_t channels = tp_dim(p, -1);
    const size_t old = (size_t)t->numel, size = (size_t)tp_numel(p);
    double *x = malloc((old + size) * sizeof *x);

    if (!x)
        tp_params_raise(l->P, TP_E_MEMORY, "%s: out of host memory", t->name);
    else if (!tp_file_read(l->F, t, TP_F64, x))
        tp_params_raise(l->P, TP_E_IO, "%s", tp_file_why(l->F));
    else {
        tp_vil_resize(x, from, x + old, to, channels);
        if (!tp_param_set(l->P, p, TP_F64, x + old, size * sizeof *x))
            tp_params_raise(l->P, TP_E_VALUE, "%s", tp_params_why(l->P));
    }
    free(x);
}

/* x_pos_embed, y_pos_embed [1,n,d/2] */
static void load_positions(loader *l, const char *path, const char *leaf, tp_tensor p)
{
    char name[256];
    snprintf(name, sizeof name, "%s%s%s", path, *path ? "." : "", leaf);
    const tp_file_tensor *t = other_shape(l, name, p);
    if (t && t->shape.dim[1] > 1)
        load_resized(l, t, p, (int64_t[]){ t->shape.dim[1], 1 }, (int64_t[]){ tp_dim(p, 1), 1 });
}

/* The sides of the rectangle of offsets in a table of `rows` rows; false: they are unknown. */
static bool table_sides(int64_t rows, const int64_t map[2], int64_t side[2])
{
    const int64_t root = llround(sqrt((double)rows));
    for (int i = 0; i < 2; i++) side[i] = map ? 2 * map[i] - 1 : root;
    if (side[0] * side[1] != rows) side[0] = side[1] = root;
    return side[0] * side[1] == rows;
}

/* The file's table if it has another shape, and the sides here and there; NULL: none. False: it cannot be resized,
 * which P refuses. */
static bool find_table(loader *l, const tp_vil_attn *m, int stage, const tp_file_tensor **t,
                       int64_t from[2], int64_t to[2])
{
    const bool full = m->kind == TP_VIL_FULL;
    int64_t map[2] = { 0 };
    char name[256];

    snprintf(name, sizeof name, "%s.%s", m->path, TP_VIL_TABLE);
    *t = other_shape(l, name, m->table);
    if (!*t) return true;
    if (l->old.stages > stage) tp__vil_map(&l->old, stage, map);
    if (table_sides((*t)->shape.dim[0], full && map[0] ? map : NULL, from) &&
        table_sides(tp_dim(m->table, 0), full ? m->map : NULL, to))
        return true;
    return tp_params_refuse(
        l->P, TP_E_SHAPE, "%s: %s has %lld rows, which cannot be resized to %lld",
        tp_file_path(l->F), name, (long long)(*t)->shape.dim[0], (long long)tp_dim(m->table, 0));
}

static void load_table(loader *l, const tp_vil_attn *m, int stage)
{
    const tp_file_tensor *t;
    int64_t from[2], to[2];
    if (find_table(l, m, stage, &t, from, to) && t) load_resized(l, t, m->table, from, to);
}

/* Loads the first rows of a head with more classes. */
static void load_head(loader *l, const char *path, const char *leaf, tp_tensor p)
{
    char name[256];
    const size_t bytes = (size_t)tp_numel(p) * sizeof(double);
    snprintf(name, sizeof name, "%s.%s", path, leaf);
    const tp_file_tensor *t = other_shape(l, name, p);
    if (!t || t->shape.dim[0] < tp_dim(p, 0)) return;
    double *x = malloc((size_t)t->numel * sizeof *x);
    if (!x)
        tp_params_raise(l->P, TP_E_MEMORY, "%s: out of host memory", name);
    else if (!tp_file_read(l->F, t, TP_F64, x))
        tp_params_raise(l->P, TP_E_IO, "%s", tp_file_why(l->F));
    else if (!tp_param_set(l->P, p, TP_F64, x, bytes))
        tp_params_raise(l->P, TP_E_VALUE, "%s", tp_params_why(l->P));
    free(x);
}

/* ---- the file ---- */

/* Before anything is changed: can all tables be resized? */
static bool check_tables(loader *l, const tp_vil *m)
{
    const tp_vil_block *block = m->block;
    const tp_file_tensor *t;
    int64_t from[2], to[2];
    for (int k = 0; k < m->cfg.stages; k++)
        for (int i = 0; i < m->cfg.stage[k].blocks; i++)
            if (!find_table(l, &block++->attn, k, &t, from, to)) return false;
    return true;
}

static void load_others(loader *l, const tp_vil *m)
{
    const tp_vil_block *block = m->block;
    for (int k = 0; k < m->cfg.stages; k++) {
        load_positions(l, m->embed[k].path, "x_pos_embed", m->embed[k].row_pos);
        load_positions(l, m->embed[k].path, "y_pos_embed", m->embed[k].col_pos);
        for (int i = 0; i < m->cfg.stage[k].blocks; i++) load_table(l, &block++->attn, k);
    }
    if (!m->head.path) return;
    load_head(l, m->head.path, "weight", m->head.weight);
    load_head(l, m->head.path, "bias", m->head.bias);
}

/* Position tables are resized; a head with more classes contributes its first rows; Linformer's mixtures of another
 * map and tensors of another number of global tokens are skipped. Any other difference is refused. Tables of maps
 * that are not square need the file's metadata; those of ViL-LS, whose entries collide, cannot be resized. */
bool tp__vil_load(tp_params *P, const void *m, tp_file *F)
{
    loader l = { .P = P, .F = F };
    char why[256];
    if (!tp_model_read_cfg(&tp_model_vil, &l.old, F, why, sizeof why)) l.old.stages = 0;
    if (!tp_params_ok(P) || !check_tables(&l, m) ||
        !tp_params_read(P, F, "", &(tp_load_opts){ .convert = true, .resizes = tp__vil_resizes }))
        return false;
    load_others(&l, m);
    return tp_params_ok(P);
}
