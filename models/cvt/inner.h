/* inner.h - what config.c says of CvT's configurations, and the attention. */
#ifndef TP_CVT_INNER_H
#define TP_CVT_INNER_H

#include <tapegrad/cvt.h>

#include "model_inner.h"
#include "parts.h"

extern const tp_model_row tp__cvt_presets[];
extern const tp_model_member tp__cvt_members[];
bool tp__cvt_preset(void *cfg, const char *text, char *why, size_t size);
bool tp__cvt_check(const void *cfg, char *why, size_t size);

/* The part "attn". */
void tp__cvt_attn_init(tp_params *P, void *module, const char *name, const void *cfg);
tp_tensor tp__cvt_attn(tp_tape *T, const void *module, void *grid, tp_tensor x);

#endif
