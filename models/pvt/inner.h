/* inner.h - shared by the files of PVT. */
#ifndef TP_PVT_INNER_H
#define TP_PVT_INNER_H

#include <tapegrad/pvt.h>

#include "parts.h"

/* Kernel, stride and padding of the patches of a stage. */
tp_conv_cfg tp__pvt_patches(const tp_pvt_cfg *cfg, int stage, int64_t *kernel);

/* Replaces the size of the map before a stage by that of the map after its patches. */
void tp__pvt_shrink(const tp_pvt_cfg *cfg, int stage, int64_t map[2]);

/* PVT's table of positions of a stage. */
tp__table tp__pvt_table(const tp_pvt *m, int stage);

extern const tp_backbone_kind tp__pvt_backbone;

#endif
