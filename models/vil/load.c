/* load.c - loads Vision Longformer weights for another resolution, window or class count by the
 * official rule, and for detector backbones. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inner.h"

/* ---- resizing ---- */

/* Finds samples *low and *high of `from` around sample i of `to`; returns the offset from *low. */
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
    tp_vil_cfg old; /* of the file; no stages if absent */
} loader;

/* Accepts position tables and heads with more classes. As in the official code, Linformer's
 * mixtures of another map and tensors of another number of global tokens keep their initial
 * values. */
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

/* Returns the file's tensor if only its shape differs, with equal rank and last axis; else NULL. */
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

/* Finds the offset rectangle's sides for a table of `rows` rows; false if unknown. */
static bool table_sides(int64_t rows, const int64_t map[2], int64_t side[2])
{
    const int64_t root = llround(sqrt((double)rows));
    for (int i = 0; i < 2; i++) side[i] = map ? 2 * map[i] - 1 : root;
    if (side[0] * side[1] != rows) side[0] = side[1] = root;
    return side[0] * side[1] == rows;
}

/* Finds the file's table if its shape differs (else NULL), and both pairs of sides. P refuses a
 * table that cannot be resized. */
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

/* Can all tables be resized? Runs before any change. */
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

/* Position tables are resized; a head with more classes contributes its first rows; Linformer's
 * mixtures of another map and tensors of another number of global tokens are skipped. Other
 * differences are refused. Tables of non-square maps need the file's metadata; ViL-LS tables, whose
 * entries collide, cannot be resized. */
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

/* ---- detector backbones: presets ---- */

enum {
    STAGES = TP_BACKBONE_STAGES,
    LONGEST = 512,
    SIDE = 1344 /* of images: 1333, rounded up to whole units */
};

/* Attention suffixes and their classifier names. The first two use windows in all stages. */
static const struct {
    const char *name, *like;
} attentions[] = {
    { "", "rpb" },
    { "-ape", "ape" },
    { "-partial", "ape" },
    { "-sra64", "sra64" },
    { "-sra32", "sra32" },
    { "-global", "global" },
    { "-performer", "performer" },
    { "-partial-sra32", "partial-sra32" },
    { "-partial-global", "partial-global" },
    { "-partial-performer", "partial-performer" },
};
enum { ATTENTIONS = sizeof attentions / sizeof *attentions, WINDOWS = 2 };

#define SIZE(vil)                                                                                  \
    vil, vil "-ape", vil "-sra64", vil "-sra32", vil "-global", vil "-performer", vil "-partial",  \
        vil "-partial-sra32", vil "-partial-global", vil "-partial-performer"
static const char *const names[] = { "vil-mini",         SIZE("vil-tiny"), SIZE("vil-small"),
                                     SIZE("vil-medium"), SIZE("vil-base"), NULL };

static bool set_attention(tp_vil_cfg *v, const char *size_name, int attention)
{
    char full[64], why[256];
    snprintf(full, sizeof full, "vil-%s-%s", size_name, attentions[attention].like);
    if (!tp__vil_preset(v, full, why, sizeof why)) return false;
    for (int k = 0; k < STAGES && attention < WINDOWS; k++) v->stage[k].dense = false;
    /* also of partial-global, as the published multiply-adds show */
    for (int k = 2; k < STAGES; k++)
        if (v->kind != TP_VIL_GLOBAL || v->stage[k].dense) v->stage[k].global = k == 2;
    return true;
}

static bool find_preset(tp_vil_cfg *v, const char *name)
{
    static const char *const sizes[] = { "tiny", "small", "medium", "base" };
    static const char mini[] = "l1,h1,d32,n1,s1,g1,p4,f4,a0_l2,h2,d64,n1,s1,g1,p2,f4,a0_"
                               "l3,h4,d128,n2,s1,g1,p2,f4,a0_l4,h6,d192,n1,s1,g0,p2,f4,a0";
    char full[64], why[256];
    if (strcmp(name, "vil-mini") == 0) {
        *v = (tp_vil_cfg){ .kind = TP_VIL_WINDOW };
        return tp__vil_parse(v, mini, why, sizeof why);
    }
    for (int s = 0; s < 4; s++)
        for (int a = 0; a < ATTENTIONS; a++) {
            snprintf(full, sizeof full, "vil-%s%s", sizes[s], attentions[a].name);
            if (strcmp(name, full) == 0) return set_attention(v, sizes[s], a);
        }
    return false;
}

static bool backbone_preset(void *cfg, int *frozen, const char *name, tp_detection_profile profile)
{
    tp_vil_cfg *v = cfg;
    (void)frozen;
    (void)profile;
    if (!find_preset(v, name)) return false;
    v->image[0] = v->image[1] = SIDE;
    return true;
}

/* ---- detector backbones: maps ---- */

/* Patches of 4, 2, 2 and 2 pixels. */
static bool maps(const void *cfg, int64_t channels[STAGES], char *why, size_t size)
{
    const tp_vil_cfg *v = cfg;
    if (!tp__vil_check_any(v, why, size)) return false;
    for (int k = 0; k < STAGES; k++) {
        if (v->stages != STAGES || v->stage[k].patch != (k ? 2 : 4)) {
            snprintf(why, size, "a backbone has four stages with patches of 4, 2, 2 and 2 pixels");
            return false;
        }
        channels[k] = v->stage[k].dim;
    }
    return true;
}

static void features(tp_tape *T, const void *m, tp_tensor images, tp_tensor map[STAGES])
{
    tp_vil_out out[STAGES];
    if (!tp_given(tp__vil_trunk(T, m, out, images))) return;
    for (int k = 0; k < STAGES; k++) map[k] = out[k].map;
}

/* ---- detector backbones: published multiply-adds ---- */

/* Published figures of ViL detectors count biases and one unused classifier. For a window's
 * products they mistake channels for tokens, so nearly none of these count. */
typedef struct stage {
    tp_vil_kind kind;
    double N, T, g, d, heads, f; /* tokens of the map, all tokens, global ones, width ... */
    double reduced;              /* tokens of SRA's map                                   */
} stage;

static stage stage_of(const tp_vil_cfg *c, int k, const int64_t image[2])
{
    const tp_vil_stage *s = &c->stage[k];
    const int64_t rows = image[0] / (4 << k), cols = image[1] / (4 << k), f = s->feature;
    const double g = (double)s->global, N = (double)(rows * cols);
    return (stage){ .kind = s->dense ? TP_VIL_FULL : c->kind,
                    .N = N,
                    .T = N + g,
                    .g = g,
                    .d = (double)s->dim,
                    .heads = (double)s->heads,
                    .f = (double)f,
                    .reduced = f > 0 ? (double)((rows / f) * (cols / f)) : 0.0 };
}

/* A convolution or linear layer with bias. */
static double layer(double kernel, double in, double out, double positions)
{
    return (kernel * kernel * in + 1.0) * out * positions;
}

/* The products of queries, keys and values. */
static double products(const stage *z)
{
    const double rows = z->g * z->T * z->d;
    switch (z->kind) {
    case TP_VIL_WINDOW: return 2.0 * ((z->d - z->g) * (9.0 * z->f * z->f + z->g) * z->d + rows);
    case TP_VIL_GLOBAL: return 2.0 * ((z->d - z->g) * z->g * z->d + rows);
    case TP_VIL_SRA: return 2.0 * z->T * (z->reduced + z->g) * z->d;
    case TP_VIL_PERFORMER: return z->T * z->f * (5.0 * z->d + 6.0 * z->heads);
    default: return 2.0 * z->T * z->T * z->d;
    }
}

static double projections(const stage *z)
{
    if (z->kind != TP_VIL_SRA) return 4.0 * layer(1.0, z->d, z->d, z->T);
    return 2.0 * layer(1.0, z->d, z->d, z->T) + layer(z->f, z->d, z->d, z->reduced) +
           2.0 * layer(1.0, z->d, z->d, z->reduced + z->g);
}

static double paper(const void *cfg, const int64_t image[2])
{
    enum { CLASSES = 1000 };
    const tp_vil_cfg *c = cfg;
    double macs = 0.0, in = 3.0;
    for (int k = 0; k < STAGES; k++) {
        const stage z = stage_of(c, k, image);
        const double mlp = 8.0 * z.d * z.d * z.T + 5.0 * z.d;
        macs += layer((double)c->stage[k].patch, in, z.d, z.N) +
                c->stage[k].blocks * (projections(&z) + products(&z) + mlp);
        in = z.d;
    }
    return macs + (double)CLASSES * in;
}

/* ---- detector backbones: classifier weights ----
 *
 * More than names differ: detectors use windows where classifiers use full attention with one
 * matrix of queries, keys and values, and table sizes differ. */

static const char *const spare[] = { ".cls_token", ".cls_pos_embed", "g2l_relative_position_bias",
                                     "g2g_relative_position_bias", NULL };

static int64_t root(int64_t n)
{
    const int64_t r = llround(sqrt((double)n));
    return r * r == n ? r : 0;
}

/* Copies rows starting at s->first. */
static void make_rows(const tp_backbone_source *s, const tp_shape *here, const double *x, double *y)
{
    int64_t row = 1;
    for (int i = 1; i < here->ndim; i++) row *= here->dim[i];
    memcpy(y, x + s->first * row, (size_t)(here->dim[0] * row) * sizeof *y);
}

/* [a^2,heads] -> [b^2,heads] */
static void make_table(const tp_backbone_source *s, const tp_shape *here, const double *x,
                       double *y)
{
    const int64_t a = root(s->tensor->shape.dim[0]), b = root(here->dim[0]);
    tp_vil_resize(x, (int64_t[]){ a, a }, y, (int64_t[]){ b, b }, here->dim[1]);
}

/* [1,a,d] -> [1,b,d] */
static void make_line(const tp_backbone_source *s, const tp_shape *here, const double *x, double *y)
{
    tp_vil_resize(x, (int64_t[]){ s->tensor->shape.dim[1], 1 }, y, (int64_t[]){ here->dim[1], 1 },
                  here->dim[2]);
}

/* Repeats the tokens of [1,a,d] to [1,b,d]. */
static void make_repeated(const tp_backbone_source *s, const tp_shape *here, const double *x,
                          double *y)
{
    const int64_t n = here->dim[0] * here->dim[1] * here->dim[2];
    for (int64_t i = 0; i < n; i++) y[i] = x[i % s->tensor->numel];
}

static bool is_global_bias(const char *name)
{
    return tp_ends_in(name, "g2l_relative_position_bias") ||
           tp_ends_in(name, "g2g_relative_position_bias");
}

/* Takes queries, or keys and values, from full attention's matrix. */
static bool from_matrix(tp_backbone_source *s, const tp_param_info *it, const char *name,
                        const tp_file *F)
{
    const char *query = strstr(name, "attn.query."), *kv = strstr(name, "attn.kv.");
    const char *part = query ? query : kv;
    const tp_shape *here = &it->shape;
    char full[LONGEST];
    if (!part) return false;
    snprintf(full, sizeof full, "%.*sattn.qkv.%s", (int)(part - name), name,
             part + strlen(query ? "attn.query." : "attn.kv."));
    const tp_file_tensor *t = tp_file_find(F, full);
    const int64_t d = here->dim[0] / (query ? 1 : 2);
    if (!t || t->shape.ndim != here->ndim || t->shape.dim[0] != 3 * d) return false;
    if (t->shape.ndim == 2 && t->shape.dim[1] != here->dim[1]) return false;
    *s = (tp_backbone_source){ .tensor = t, .make = make_rows, .first = query ? 0 : d };
    return true;
}

/* Converts s->tensor to another shape. */
static bool from_other_shape(tp_backbone_source *s, const tp_param_info *it, const char *name)
{
    const tp_shape *here = &it->shape, *there = &s->tensor->shape;
    const int last = here->ndim - 1;
    if (there->ndim != here->ndim || last < 1 || here->dim[last] != there->dim[last])
        return is_global_bias(name);
    const bool tokens = there->ndim == 3 && there->dim[0] == 1 && there->dim[1] > 0;
    if (tp_ends_in(name, "local_relative_position_bias_table"))
        s->make = root(here->dim[0]) && root(there->dim[0]) ? make_table : NULL;
    else if (tp_ends_in(name, "x_pos_embed") || tp_ends_in(name, "y_pos_embed"))
        s->make = tokens ? make_line : NULL;
    else if (tp_ends_in(name, "cls_token") || tp_ends_in(name, "cls_pos_embed"))
        s->make = tokens ? make_repeated : NULL;
    return s->make || is_global_bias(name);
}

static bool source(tp_backbone_source *s, const tp_param_info *it, const char *name,
                   const tp_file *F)
{
    *s = (tp_backbone_source){ .tensor = tp_file_find(F, name) };
    if (s->tensor) return from_other_shape(s, it, name);
    return is_global_bias(name) || from_matrix(s, it, name, F);
}

const tp_backbone_kind tp__vil_backbone = {
    .names = names,
    .preset = backbone_preset,
    .maps = maps,
    .features = features,
    .paper = paper,
    .source = source,
    .spare = spare,
};
