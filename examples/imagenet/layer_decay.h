/* layer_decay.h - parameters' distances from the head, for layer-wise learning-rate decay. */
#ifndef LAYER_DECAY_H
#define LAYER_DECAY_H

#include <tapegrad/tapegrad.h>

enum { LEVEL_STAGES = 16, LEVEL_BLOCKS = 1 << 16 }; /* bounds of numbers in names */

/* Blocks per stage and in all; the last stage with blocks. pairs: a stage's embedding is 0, and
 * attention and MLP of its blocks have separate numbers from 1, as in ViL. */
typedef struct levels {
    int blocks[LEVEL_STAGES], all, last;
    bool pairs;
} levels;

levels levels_of(const tp_params *P);

/* 0: before the first block; 1 to all: the block, or the one nearest to a part outside blocks; all
 * + 1: head or last norm. */
int level_of(const levels *l, const char *name);

/* A parameter's learning-rate factor: decay to the power of its distance from the head. */
double level_factor(const levels *l, const char *name, double decay);

#endif
