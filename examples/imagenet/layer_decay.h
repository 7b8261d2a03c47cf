/* layer_decay.h - the distance of parameters from the head, for layer-wise decay of learning rates. */
#ifndef LAYER_DECAY_H
#define LAYER_DECAY_H

#include <tapegrad/tapegrad.h>

enum { LEVEL_STAGES = 16, LEVEL_BLOCKS = 1 << 16 }; /* numbers in names are below these */

/* Blocks of each stage and of all; the last stage that has any. pairs: attention and MLP of a block are numbered
 * apart from 1, and the embedding of the stage is 0, as in ViL. */
typedef struct levels {
    int blocks[LEVEL_STAGES], all, last;
    bool pairs;
} levels;

levels levels_of(const tp_params *P);

/* 0: before the first block; 1 to all: of that block, or of a part of its stage that is nearest to it;
 * all + 1: head or last norm. */
int level_of(const levels *l, const char *name);

/* The factor of a parameter's learning rate: decay to the power of its distance from the head. */
double level_factor(const levels *l, const char *name, double decay);

#endif
