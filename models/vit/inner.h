/* inner.h - shared by the files of ViT. */
#ifndef TP_VIT_INNER_H
#define TP_VIT_INNER_H

#include <tapegrad/vit.h>

#include "parts.h"

tp__table tp__vit_table(const tp_vit *m);

#endif
