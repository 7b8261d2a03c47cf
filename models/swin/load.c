/* load.c - loads weights of a Swin for another image size.
 *
 * Tables of relative positions [(2w-1)^2,H] are resized where windows differ. The position embedding
 * [1,tokens,D] has a row for each patch; the patches of the file form a square, or a map of the same
 * proportions as here. */
#include <math.h>
#include <string.h>

#include "inner.h"
#include "model_inner.h"

static bool is_embedding(const char *name)
{
    return tp_ends_in(name, "absolute_pos_embed");
}

bool tp__swin_resizes(const char *name, const tp_shape *here, const tp_shape *there)
{
    tp__grid p;
    if (is_embedding(name))
        return here->ndim == 3 && there->ndim == 3 && there->dim[0] == 1 && there->dim[1] > 0 &&
               here->dim[2] == there->dim[2];
    return strstr(name, "relative_position_bias_table") && tp__relative_table(here, there, &p);
}

/* The map of n patches. False: none is known. */
static bool map_of(const tp_swin_stage *here, int64_t n, int64_t map[2])
{
    const double scale = sqrt((double)n / (double)(here->map[0] * here->map[1]));
    map[0] = map[1] = tp__root(n);
    if (map[0] > 0) return true;
    for (int i = 0; i < 2; i++) map[i] = llround((double)here->map[i] * scale);
    return map[0] * map[1] == n;
}

/* The positions in the file and here. False: the file's are not known, which P refuses. */
static bool find_grid(tp_params *P, const tp_swin *m, const tp_file *F, const tp_param_info *it,
                      const tp_file_tensor *t, tp__grid *p)
{
    *p = (tp__grid){ .axes = 2, .inner = it->shape.dim[it->shape.ndim - 1] };
    if (!is_embedding(it->name)) return tp__relative_table(&it->shape, &t->shape, p);
    const tp_swin_stage s = tp__swin_stage(&m->cfg, 0);
    memcpy(p->to, s.map, sizeof s.map);
    return map_of(&s, t->shape.dim[1], p->from) ||
           tp_params_refuse(
               P, TP_E_SHAPE,
               "%s: %s has positions of %lld patches, which are neither a square nor a "
               "map of the proportions of %lld x %lld",
               tp_file_path(F), it->name, (long long)t->shape.dim[1], (long long)s.map[0],
               (long long)s.map[1]);
}

/* Loads what is resized or, unless `load`, only checks that this is possible. */
static bool visit_resized(tp_params *P, const tp_swin *m, tp_file *F, bool load)
{
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) {
        const tp_file_tensor *t = tp_file_find(F, it.name);
        tp__grid p;
        if (!t || tp__equal_shapes(&t->shape, &it.shape) ||
            !tp__swin_resizes(it.name, &it.shape, &t->shape))
            continue;
        if (!find_grid(P, m, F, &it, t, &p)) return false;
        if (load) tp__load_positions(P, F, &it, t, &p);
        if (!tp_params_ok(P)) return false;
    }
    return true;
}

bool tp__swin_load(tp_params *P, const void *m, tp_file *F)
{
    const tp_load_opts o = { .convert = true, .resizes = tp__swin_resizes };
    return tp_params_ok(P) && visit_resized(P, m, F, false) && tp_params_read(P, F, "", &o) &&
           visit_resized(P, m, F, true);
}

bool tp_swin_load(tp_params *P, const tp_swin *m, const char *path)
{
    if (!tp_params_want_module(P, m, "swin")) return false;
    tp_file *F = tp_file_open(path);
    tp__published_enter(&tp_model_swin, P, F, NULL, 0);
    const bool ok = tp__swin_load(P, m, F);
    tp_file_close(F);
    return ok;
}
