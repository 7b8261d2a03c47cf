/* inner.h - the attention of CvT. */
#ifndef TP_CVT_INNER_H
#define TP_CVT_INNER_H

#include <tapegrad/cvt.h>

#include "model_inner.h"
#include "parts.h"

void tp__cvt_attn_init(tp_params *P, void *module, const char *name, const void *cfg);
tp_tensor tp__cvt_attn(tp_tape *T, const void *module, void *grid, tp_tensor x);

#endif
