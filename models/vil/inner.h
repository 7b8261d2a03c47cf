/* inner.h - functions that the files of Vision Longformer share. */
#ifndef TP_VIL_INNER_H
#define TP_VIL_INNER_H

#include <tapegrad/vil.h>

#include "model_inner.h"
#include "parts.h"

#define TP_VIL_TABLE "local_relative_position_bias_table"

/* The size of a stage's map for images of the configured size; zeros if the map is empty. */
void tp__vil_map(const tp_vil_cfg *cfg, int stage, int64_t size[2]);

/* The member `paper` of tp_model_vil; cfg is a tp_vil_cfg. */
void tp__vil_paper(const void *cfg, int64_t tokens, tp_cost *cost);

/* Performer's attention before the last projection, x [B,g+N,d]. */
tp_tensor tp__vil_performer(tp_tape *T, const tp_vil_attn *m, tp_tensor x);

/* The part "attn". */
void tp__vil_attn_init(tp_params *P, void *module, const char *name, const void *cfg);
tp_tensor tp__vil_attn(tp_tape *T, const void *module, void *size, tp_tensor x);

/* presets.c, config.c: what they say of configurations */
extern const tp_model_row tp__vil_presets[];
extern const tp_model_member tp__vil_members[];
bool tp__vil_preset(void *cfg, const char *name, char *why, size_t size);
bool tp__vil_check(const void *cfg, char *why, size_t size);

/* load.c, performer.c: members of the constant */
bool tp__vil_load(tp_params *P, const void *m, tp_file *F);
bool tp__vil_resizes(const char *name, const tp_shape *here, const tp_shape *there);
bool tp__vil_redraw(tp_params *P, const void *m, uint64_t seed, uint64_t draw);

/* backbone.c */
extern const tp_backbone_kind tp__vil_backbone;

#endif
