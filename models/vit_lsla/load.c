/* load.c - loads weights of a ViT-LSLA for another image size.
 *
 * Parameters whose shape depends on the window are resized over positions: tables [(2w-1)^2,H] over the
 * differences of rows and of columns, scales [w^2,w^2] over the rows and columns of queries and of keys. */
#include <string.h>
#include <tapegrad/vit_lsla.h>

#include "model_inner.h"
#include "parts.h"

/* True, with p filled, if the parameter depends on the window: its positions in the file and here. */
static bool positions(const char *name, const tp_shape *here, const tp_shape *there, tp__grid *p)
{
    if (strstr(name, "relative_position_bias_table")) return tp__relative_table(here, there, p);
    if (!strstr(name, "dynamic_scale") || here->ndim != 2 || there->ndim != 2) return false;
    const int64_t from = tp__root(there->dim[0]), to = tp__root(here->dim[0]);
    *p = (tp__grid){ 4, { from, from, from, from }, { to, to, to, to }, 1 };
    return from > 0 && to > 0 && there->dim[1] == there->dim[0];
}

bool tp__vit_lsla_resizes(const char *name, const tp_shape *here, const tp_shape *there)
{
    tp__grid p;
    return positions(name, here, there, &p);
}

bool tp__vit_lsla_load(tp_params *P, tp_file *F)
{
    const tp_load_opts o = { .convert = true, .resizes = tp__vit_lsla_resizes };
    if (!tp_params_read(P, F, "", &o)) return false;
    for (tp_param_info it = { 0 }; tp_params_ok(P) && tp_next_param(P, &it);) {
        const tp_file_tensor *t = tp_file_find(F, it.name);
        tp__grid p;
        if (t && !tp__equal_shapes(&t->shape, &it.shape) &&
            positions(it.name, &it.shape, &t->shape, &p))
            tp__load_positions(P, F, &it, t, &p);
    }
    return tp_params_ok(P);
}

bool tp_vit_lsla_load(tp_params *P, const char *path)
{
    tp_file *F = tp_file_open(path);
    tp__published_enter(&tp_model_vit_lsla, P, F, NULL, 0);
    const bool ok = tp__vit_lsla_load(P, F);
    tp_file_close(F);
    return ok;
}
