/* parity_baselines.h - shared by the kinds of the image baselines: ViT, ResNet, PVT. */
#ifndef PARITY_BASELINES_H
#define PARITY_BASELINES_H

#include <tapegrad/vision.h>

#include "parity_case.h"

/* Reads one whole number for each of the four stages; fails unless there are four. */
void baseline_stages(parity *p, const char *key, int64_t least, int64_t x[4]);
void baseline_ints(parity *p, const char *key, int least, int x[4]);
/* `img`: height and width, or one side of a square. */
void baseline_image(parity *p, int64_t image[2]);
/* The outputs "c2" to "c5": four feature maps. */
void baseline_maps(parity *p, const tp_tensor maps[4]);

#endif
