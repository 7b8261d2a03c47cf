/* inner.h - the sizes of Swin's stages, and what config.c says of its configurations. */
#ifndef TP_SWIN_INNER_H
#define TP_SWIN_INNER_H

#include <tapegrad/swin.h>

#include "model_inner.h"
#include "parts.h"

/* The map of a stage, its channels, and the window of its parameters. */
typedef struct tp_swin_stage {
    int64_t map[2], dim, window;
} tp_swin_stage;

static inline tp_swin_stage tp__swin_stage(const tp_swin_cfg *c, int i)
{
    tp_swin_stage s = { .dim = c->dim << i, .window = c->window };
    for (int axis = 0; axis < 2; axis++) {
        s.map[axis] = c->image[axis] / 4 >> i;
        if (s.map[axis] < s.window) s.window = s.map[axis];
    }
    return s;
}

static inline int tp__swin_blocks(const tp_swin_cfg *c)
{
    int n = 0;
    for (int i = 0; i < c->stages; i++) n += c->depths[i];
    return n;
}

extern const tp_model_row tp__swin_presets[];
extern const tp_model_member tp__swin_members[];
bool tp__swin_check(const void *cfg, char *why, size_t size);

#endif
