/* inner.h - the sizes of PVT's stages, and what config.c says of its configurations. */
#ifndef TP_PVT_INNER_H
#define TP_PVT_INNER_H

#include <tapegrad/pvt.h>

#include "model_inner.h"
#include "parts.h"

/* Kernel, stride and padding of the patches of a stage. */
tp_conv_cfg tp__pvt_patches(const tp_pvt_cfg *cfg, int stage, int64_t *kernel);

/* Replaces the size of the map before a stage by that of the map after its patches. */
void tp__pvt_shrink(const tp_pvt_cfg *cfg, int stage, int64_t map[2]);

extern const tp_model_row tp__pvt_presets[];
extern const tp_model_member tp__pvt_members[];
bool tp__pvt_check(const void *cfg, char *why, size_t size);

extern const tp_backbone_kind tp__pvt_backbone;

#endif
