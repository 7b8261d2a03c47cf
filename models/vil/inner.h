/* inner.h - functions shared inside Vision Longformer. */
#ifndef TP_VIL_INNER_H
#define TP_VIL_INNER_H

#include <tapegrad/vil.h>

#include "model_inner.h"
#include "parts.h"

#define TP_VIL_TABLE "local_relative_position_bias_table"

/* Size of a stage's map at the configured image size; zeros if empty. */
void tp__vil_map(const tp_vil_cfg *cfg, int stage, int64_t size[2]);

/* The part "attn". */
void tp__vil_attn_init(tp_params *P, void *module, const char *name, const void *cfg);
tp_tensor tp__vil_attn(tp_tape *T, const void *module, void *size, tp_tensor x);

/* Runs the model to its last tokens; out: NULL or one tp_vil_out per stage. */
tp_tensor tp__vil_trunk(tp_tape *T, const void *module, void *out, tp_tensor images);

/* ---- config.c ---- */

extern const tp_model_row tp__vil_presets[];
extern const tp_model_member tp__vil_members[];
bool tp__vil_preset(void *cfg, const char *name, char *why, size_t size);
bool tp__vil_check(const void *cfg, char *why, size_t size);
bool tp__vil_check_any(const tp_vil_cfg *cfg, char *why,
                       size_t size); /* also of a backbone, without classes */
bool tp__vil_parse(void *cfg, const char *text, char *why, size_t size); /* the member "arch" */
void tp__vil_paper(const void *cfg, int64_t tokens, tp_cost *cost);

/* ---- load.c ---- */

bool tp__vil_load(tp_params *P, const void *m, tp_file *F);
bool tp__vil_resizes(const char *name, const tp_shape *here, const tp_shape *there);
extern const tp_backbone_kind tp__vil_backbone;

#endif
