/* inner.h - the sizes of ViT-LSLA's stages, what config.c says of its configurations, and parts. */
#ifndef TP_VIT_LSLA_INNER_H
#define TP_VIT_LSLA_INNER_H

#include <tapegrad/vit_lsla.h>

#include "model_inner.h"
#include "parts.h"

/* The map of a stage, its channels, and the window of its parameters. */
typedef struct tp_lsla_stage {
    int64_t map[2], dim, window;
} tp_lsla_stage;

static inline tp_lsla_stage tp__lsla_stage(const tp_vit_lsla_cfg *c, int i)
{
    tp_lsla_stage s = { { c->image[0], c->image[1] }, c->dim << i, c->window };
    for (int axis = 0; axis < 2; axis++) {
        for (int half = 0; half < 2 + i; half++) s.map[axis] = (s.map[axis] + 1) / 2;
        if (s.map[axis] < s.window) s.window = s.map[axis];
    }
    return s;
}

static inline int tp__lsla_blocks(const tp_vit_lsla_cfg *c)
{
    int n = 0;
    for (int i = 0; i < c->stages; i++) n += c->depths[i];
    return n;
}

extern const tp_model_row tp__vit_lsla_presets[];
extern const tp_model_member tp__vit_lsla_members[];
bool tp__vit_lsla_check(const void *cfg, char *why, size_t size);

/* The parts "attn" and "stem"; MPViT has the same stem. */
void tp__lsla_attn_init(tp_params *P, void *module, const char *name, const void *cfg);
tp_tensor tp__lsla_attn(tp_tape *T, const void *module, void *shift, tp_tensor map);
void tp__lsla_stem_init(tp_params *P, void *module, const char *name, const void *cfg);
tp_tensor tp__lsla_stem(tp_tape *T, const void *module, void *with, tp_tensor images);

#endif
