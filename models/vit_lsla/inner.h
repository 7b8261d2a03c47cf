/* inner.h - the sizes of ViT-LSLA's stages. */
#ifndef TP_VIT_LSLA_INNER_H
#define TP_VIT_LSLA_INNER_H

#include <tapegrad/vit_lsla.h>

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

#endif
