/* inner.h - functions that the files of Vision Longformer share. */
#ifndef TP_VIL_INNER_H
#define TP_VIL_INNER_H

#include <tapegrad/vil.h>

#include "parts.h"

#define TP_VIL_TABLE "local_relative_position_bias_table"

/* The size of a stage's map for images of the configured size; zeros if the map is empty. */
void tp__vil_map(const tp_vil_cfg *cfg, int stage, int64_t size[2]);

/* The member `paper` of tp_model_vil; cfg is a tp_vil_cfg. */
void tp__vil_paper(const void *cfg, int64_t tokens, tp_cost *cost);

/* Performer's attention before the last projection, x [B,g+N,d]. */
tp_tensor tp__vil_performer(tp_tape *T, const tp_vil_attn *m, tp_tensor x);

extern const tp_backbone_kind tp__vil_backbone;

#endif
