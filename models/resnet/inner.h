/* inner.h - shared by the files of ResNet. */
#ifndef TP_RESNET_INNER_H
#define TP_RESNET_INNER_H

#include <tapegrad/resnet.h>

#include "model_inner.h"
#include "parts.h"

extern const tp_model_row tp__resnet_presets[];
extern const tp_model_member tp__resnet_members[];
bool tp__resnet_preset(void *cfg, const char *name, char *why, size_t size);
bool tp__resnet_check(const void *cfg, char *why, size_t size);
extern const tp_backbone_kind tp__resnet_backbone;

#endif
