/* inner.h - what config.c says of ViT's configurations. */
#ifndef TP_VIT_INNER_H
#define TP_VIT_INNER_H

#include <tapegrad/vit.h>

#include "model_inner.h"
#include "parts.h"

extern const tp_model_row tp__vit_presets[];
extern const tp_model_member tp__vit_members[];
bool tp__vit_check(const void *cfg, char *why, size_t size);

#endif
