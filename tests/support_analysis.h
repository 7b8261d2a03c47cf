/* support_analysis.h - a model for tests of `imagenet analyze`: the weights are random, in f64, the
 * images are noise. */
#ifndef TP_SUPPORT_ANALYSIS_H
#define TP_SUPPORT_ANALYSIS_H

#include "analysis/analyze.h"

void analysis_begin(analysis *a, const char *preset);
void analysis_begin_as(analysis *a, const char *preset, bool raw_kv);
void analysis_end(analysis *a);

/* The images [B,H,W,3] on the tape, which is reset. */
tp_tensor analysis_images(analysis *a);

#endif
