/* backbone_load.c - the weights of a classifier as those of a detector's backbone. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/detection/detector.h>

typedef struct loading {
    tp_params *P;
    tp_file *F;
    char *why;
    size_t size;
} loading;

static bool fail(const loading *l, const char *fmt, const char *name)
{
    char reason[600];
    snprintf(reason, sizeof reason, fmt, name);
    snprintf(l->why, l->size, "%.2000s: %s", tp_file_path(l->F), reason);
    return false;
}

static bool same_shape(const tp_shape *a, const tp_shape *b)
{
    bool same = a->ndim == b->ndim;
    for (int i = 0; same && i < a->ndim; i++) same = a->dim[i] == b->dim[i];
    return same;
}

/* Elements first ... first + n - 1 of a tensor become the parameter's values. */
static bool copy(const loading *l, const tp_file_tensor *t, int64_t first, int64_t n,
                 const tp_param_info *p)
{
    double *x = malloc((size_t)n * sizeof *x);
    const bool done = x && tp_file_read_part(l->F, t, first, n, TP_F64, x) &&
                      tp_param_set(l->P, p->tensor, TP_F64, x, (size_t)n * sizeof *x);
    if (!done)
        snprintf(l->why, l->size, "%s",
                 !x                 ? "out of memory"
                 : tp_file_ok(l->F) ? tp_params_why(l->P)
                                    : tp_file_why(l->F));
    free(x);
    return done;
}

/* ---- sizes that differ ---- */

/* A table [from0,from1,channels], after `skip` rows, resized to [to0,to1,channels]. */
static bool resize(const loading *l, const tp_file_tensor *t, const tp_param_info *p, int64_t skip,
                   const int64_t from[2], const int64_t to[2], int64_t channels)
{
    const int64_t n = to[0] * to[1] * channels;
    double *x = malloc((size_t)(t->numel + n) * sizeof *x), *y = x ? x + t->numel : NULL;
    bool done = x && tp_file_read(l->F, t, TP_F64, x);
    if (done) {
        tp_vil_resize(x + skip * channels, from, y, to, channels);
        done = tp_param_set(l->P, p->tensor, TP_F64, y, (size_t)n * sizeof *y);
    }
    if (!done)
        snprintf(l->why, l->size, "%s",
                 !x                 ? "out of memory"
                 : tp_file_ok(l->F) ? tp_params_why(l->P)
                                    : tp_file_why(l->F));
    free(x);
    return done;
}

static int64_t root_of(int64_t n)
{
    const int64_t root = llround(sqrt((double)n));
    return root * root == n ? root : 0;
}

/* Square tables of relative [rows,heads] or absolute positions [1,rows,channels]; one row more in the file is that of a
 * class token. */
static bool resize_square(const loading *l, const tp_file_tensor *t, const tp_param_info *p)
{
    const int last = p->shape.ndim - 1;
    const int64_t there = t->shape.dim[last - 1], here = p->shape.dim[last - 1];
    const int64_t skip = root_of(there) ? 0 : 1;
    const int64_t a = root_of(there - skip), b = root_of(here);
    if (a == 0 || b == 0 || t->shape.dim[last] != p->shape.dim[last])
        return fail(l, "'%.200s' has a size that cannot be resized", t->name);
    return resize(l, t, p, skip, (int64_t[]){ a, a }, (int64_t[]){ b, b }, p->shape.dim[last]);
}

/* Positions along one axis [1,n,channels]. */
static bool resize_line(const loading *l, const tp_file_tensor *t, const tp_param_info *p)
{
    return resize(l, t, p, 0, (int64_t[]){ t->shape.dim[1], 1 }, (int64_t[]){ p->shape.dim[1], 1 },
                  p->shape.dim[2]);
}

static bool fit(const loading *l, const tp_file_tensor *t, const tp_param_info *p, const char *leaf)
{
    const tp_shape *a = &t->shape, *b = &p->shape;
    if (same_shape(a, b)) return copy(l, t, 0, t->numel, p);
    if (a->ndim != b->ndim || a->ndim < 2 || a->dim[a->ndim - 1] != b->dim[b->ndim - 1])
        return fail(l, "'%.200s' does not fit the backbone", leaf);
    if (tp_ends_in(leaf, "x_pos_embed") || tp_ends_in(leaf, "y_pos_embed"))
        return resize_line(l, t, p);
    if (tp_ends_in(leaf, "relative_position_bias_table") || strstr(leaf, "pos_embed"))
        return resize_square(l, t, p);
    return fail(l, "'%.200s' does not fit the backbone", leaf);
}

/* ---- names that differ ---- */

/* Full attention keeps queries, keys and values in one matrix: d rows are the queries, the others keys and values. */
static bool from_qkv(const loading *l, const tp_param_info *p, const char *leaf, bool *found)
{
    static const char *const parts[] = { ".query.", ".kv." };
    char name[512];
    *found = false;
    for (int k = 0; k < 2; k++) {
        const char *at = strstr(leaf, parts[k]);
        if (!at) continue;
        snprintf(name, sizeof name, "%.*s.qkv.%s", (int)(at - leaf), leaf, at + strlen(parts[k]));
        const tp_file_tensor *t = tp_file_find(l->F, name);
        const int64_t n = tp_numel(p->tensor), query = k ? n / 2 : n;
        *found = t && t->numel == 3 * query && t->shape.ndim == p->shape.ndim;
        return *found && copy(l, t, k ? query : 0, n, p);
    }
    return false;
}

/* Parameters that classifiers may lack: tables of global tokens. They keep their initial values. */
static bool may_lack(const char *leaf)
{
    return tp_ends_in(leaf, "g2l_relative_position_bias") ||
           tp_ends_in(leaf, "g2g_relative_position_bias");
}

static bool load_one(const loading *l, const tp_param_info *p, const char *leaf)
{
    bool found;
    const tp_file_tensor *t = tp_file_find(l->F, leaf);
    if (t) return fit(l, t, p, leaf);
    if (from_qkv(l, p, leaf, &found)) return true;
    if (found) return false;
    return may_lack(leaf) || fail(l, "'%.200s' is missing: this is another model", leaf);
}

/* The file gets this library's names for the classifier. */
static bool adopt(const tp_backbone_cfg *c, tp_file *F)
{
    tp_model_cfg model = { 0 };
    switch (c->kind) {
    case TP_BACKBONE_VIL:
        model.model = &tp_model_vil;
        memcpy(&model.at, &c->of.vil, sizeof c->of.vil);
        break;
    case TP_BACKBONE_RESNET:
        model.model = &tp_model_resnet;
        memcpy(&model.at, &c->of.resnet, sizeof c->of.resnet);
        break;
    case TP_BACKBONE_PVT:
        model.model = &tp_model_pvt;
        memcpy(&model.at, &c->of.pvt, sizeof c->of.pvt);
        break;
    }
    return tp_model_adopt(&model, F, NULL, 0);
}

bool tp_detector_load_backbone(tp_params *P, const tp_detector_cfg *c, const char *name,
                               const char *path, char *why, size_t size)
{
    static const char below[] = "backbone.bottom_up.";
    char prefix[300];
    tp_detector_cfg copied = *c;
    tp_file *F = tp_file_open(path);
    const loading l = { P, F, why, size };
    snprintf(prefix, sizeof prefix, "%s%s%s", name, *name ? "." : "", below);
    bool done = tp_file_ok(F) && adopt(tp_detector_backbone(&copied), F);
    if (!done) snprintf(why, size, "%s", tp_file_why(F));
    for (tp_param_info it = { 0 }; done && tp_next_param(P, &it);)
        if (!it.alias_of && strncmp(it.name, prefix, strlen(prefix)) == 0)
            done = load_one(&l, &it, it.name + strlen(prefix));
    tp_file_close(F);
    return done;
}
