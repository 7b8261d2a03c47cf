/* roberta.h - small models of the RoBERTa family and texts for them. */
#ifndef SUPPORT_ROBERTA_H
#define SUPPORT_ROBERTA_H

#include <tapegrad/roberta.h>

#include "support/rig.h"

enum { ROBERTA_TEXTS = 2, ROBERTA_WORDS = 50, ROBERTA_DIM = 16 };

/* Two layers of that width, for texts of at most 32 tokens. */
tp_roberta_cfg roberta_small(tp_roberta_kind kind, tp_roberta_head head);

/* A newly initialised model on the suite's device; m is a tp_roberta. */
rig *roberta_open(tp_roberta_cfg c, uint64_t seed);
void roberta_close(rig *r);
const tp_roberta *roberta_of(const rig *r);

/* Two texts of n tokens, at most 64; the second ends in `padding` pad tokens. */
tp_tensor roberta_texts(tp_tape *T, int n, int padding);

/* Expects that no two numbers differ by more than `most`. */
void roberta_expect_near(const char *what, const float *a, const float *b, int n, double most);

/* Reads the n numbers of a tensor. */
void roberta_values(rig *r, tp_tensor x, float *to, int n);

#endif
