/* inner.h - the sizes of MPViT's stages, and what config.c says of its configurations. */
#ifndef TP_MPVIT_INNER_H
#define TP_MPVIT_INNER_H

#include <tapegrad/mpvit.h>

#include "model_inner.h"
#include "parts.h"

/* The sides of the image after a number of halvings, rounded up. */
static inline void tp__mpvit_map(const tp_mpvit_cfg *c, int halvings, int64_t map[2])
{
    for (int axis = 0; axis < 2; axis++) {
        map[axis] = c->image[axis];
        for (int i = 0; i < halvings; i++) map[axis] = (map[axis] + 1) / 2;
    }
}

/* Width after stage s: that of the next one, or the last one's own. */
static inline int64_t tp__mpvit_out(const tp_mpvit_cfg *c, int s)
{
    return c->dim[s + 1 < TP_MPVIT_STAGES ? s + 1 : s];
}

extern const tp_model_row tp__mpvit_presets[];
extern const tp_model_member tp__mpvit_members[];
bool tp__mpvit_check(const void *cfg, char *why, size_t size);

#endif
