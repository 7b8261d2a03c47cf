/* analysis.h - a model for tests of `imagenet analyze`, with random f64 weights and
 * drawn shapes as images. */
#ifndef TP_SUPPORT_ANALYSIS_H
#define TP_SUPPORT_ANALYSIS_H

#include "analysis/analyze.h"

void analysis_begin(analysis *a, const char *preset);
void analysis_begin_as(analysis *a, const char *preset, bool raw_kv);
void analysis_end(analysis *a);

/* Resets the tape and returns images [B,H,W,3] on it. */
tp_tensor analysis_images(analysis *a);

#endif
