/* layer_decay.h - the distance of parameters from the head, for layer-wise decay of learning rates. */
#ifndef LAYER_DECAY_H
#define LAYER_DECAY_H

#include <tapegrad/tapegrad.h>

enum { LEVEL_STAGES = 64 };

/* Blocks of each stage, and of all. */
typedef struct levels {
    int blocks[LEVEL_STAGES], all;
} levels;

levels levels_of(const tp_params *P);

/* 0: before the first block; 1 to all: of that block; all + 1: head or last norm. */
int level_of(const levels *l, const char *name);

/* The factor of a parameter's learning rate: decay to the power of its distance from the head. */
double level_factor(const levels *l, const char *name, double decay);

#endif
