/* inner.h - the sizes of CSWin's stages, and what config.c says of its configurations. */
#ifndef TP_CSWIN_INNER_H
#define TP_CSWIN_INNER_H

#include <tapegrad/cswin.h>

#include "model_inner.h"
#include "parts.h"

typedef struct tp_cswin_stage {
    int64_t side, dim; /* of the map, which is a square */
    int branches;
} tp_cswin_stage;

static inline tp_cswin_stage tp__cswin_stage(const tp_cswin_cfg *c, int i)
{
    tp_cswin_stage s = { c->image[0] < 3 ? 0 : (c->image[0] - 3) / 4 + 1, c->dim << i, 2 };
    for (int k = 0; k < i; k++) s.side = (s.side + 1) / 2;
    if (i == TP_CSWIN_STAGES - 1 || s.side == c->split[i]) s.branches = 1;
    return s;
}

static inline int tp__cswin_blocks(const tp_cswin_cfg *c)
{
    int n = 0;
    for (int i = 0; i < TP_CSWIN_STAGES; i++) n += c->depths[i];
    return n;
}

extern const tp_model_row tp__cswin_presets[];
extern const tp_model_member tp__cswin_members[];
bool tp__cswin_check(const void *cfg, char *why, size_t size);

#endif
