/* inner.h - parts of ViT-LSLA; MPViT shares the stem. */
#ifndef TP_VIT_LSLA_INNER_H
#define TP_VIT_LSLA_INNER_H

#include <tapegrad/vit_lsla.h>

#include "model_inner.h"
#include "parts.h"

void tp__lsla_attn_init(tp_params *P, void *module, const char *name, const void *cfg);
tp_tensor tp__lsla_attn(tp_tape *T, const void *module, void *shift, tp_tensor map);
void tp__lsla_stem_init(tp_params *P, void *module, const char *name, const void *cfg);
tp_tensor tp__lsla_stem(tp_tape *T, const void *module, void *with, tp_tensor images);

#endif
