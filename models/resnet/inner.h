/* inner.h - shared by the files of ResNet. */
#ifndef TP_RESNET_INNER_H
#define TP_RESNET_INNER_H

#include <tapegrad/resnet.h>

extern const tp_backbone_kind tp__resnet_backbone;

#endif
