/* layer_decay.c - learning rates that fall with the distance from the head (Clark et al. 2020):
 *
 *     rate of level i = decay^(L + 1 - i);  0: embedding, 1 to L: the blocks, L + 1: head and last norm
 *
 * Levels follow from the names, which in all models have the stage and the block as their first
 * numbers: "blocks.3.", "layer2.3.", "stage1.blocks.3.", "layers.1.blocks.3.", and for the parts of a stage
 * "patch_embed2.", "layers.1.downsample.". Parallel paths of a stage share its levels. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "layer_decay.h"

/* Where a parameter is; -1: in no stage, in no block of it. */
typedef struct place {
    int stage, block;
} place;

/* The component of a name at `at` as a number; -1: it is not one. */
static int number(const char *at)
{
    char *end;
    if (!isdigit((unsigned char)*at)) return -1;
    const long n = strtol(at, &end, 10);
    return (*end == '.' || *end == '\0') && n < LEVEL_STAGES ? (int)n : -1;
}

/* The component after `at`; the end of the name if there is none. */
static const char *next(const char *at)
{
    const char *dot = strchr(at, '.');
    return dot ? dot + 1 : at + strlen(at);
}

/* The number after the last component whose name ends in "blocks" or "layers"; -1: there is none. */
static int block_of(const char *at)
{
    int n = -1;
    for (; *at; at = next(at)) {
        const char *end = at + strcspn(at, ".");
        const bool list = end - at >= 6 && (strncmp(end - 6, "blocks", 6) == 0 ||
                                            strncmp(end - 6, "layers", 6) == 0);
        if (list && number(next(at)) >= 0) n = number(next(at));
    }
    return n;
}

static bool begins(const char *name, const char *const *with, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strncmp(name, with[i], strlen(with[i])) == 0) return true;
    return false;
}

/* A part before the first stage, whatever numbers its name has? */
static bool is_stem(const char *name)
{
    static const char *const stems[] = { "stem.", "conv1.", "bn1.", "stage1_conv_embed." };
    return begins(name, stems, sizeof stems / sizeof *stems);
}

static bool is_top(const char *name)
{
    static const char *const tops[] = { "head", "fc.", "cls_head.", "norm.weight", "norm.bias" };
    return begins(name, tops, sizeof tops / sizeof *tops);
}

static place place_of(const char *name)
{
    const size_t digits = strcspn(name, "0123456789.");
    const char *second = next(name);
    if (is_stem(name) || is_top(name)) return (place){ -1, -1 };
    if (strncmp(name, "blocks.", 7) == 0) return (place){ 0, number(second) };
    if (isdigit((unsigned char)name[digits])) { /* "layer2.3.", "stage1.blocks.3." */
        const int stage = number(name + digits), block = number(second);
        return (place){ stage, stage < 0 || block >= 0 ? block : block_of(second) };
    }
    const int stage = number(second); /* "layers.1.blocks.3." */
    return (place){ stage, stage < 0 ? -1 : block_of(next(second)) };
}

levels levels_of(const tp_params *P)
{
    levels l = { 0 };
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) {
        const place p = place_of(it.name);
        if (p.stage < 0) continue;
        if (l.blocks[p.stage] < p.block + 1) l.blocks[p.stage] = p.block + 1;
        if (l.blocks[p.stage] == 0) l.blocks[p.stage] = 1;
    }
    for (int s = 0; s < LEVEL_STAGES; s++) l.all += l.blocks[s];
    return l;
}

int level_of(const levels *l, const char *name)
{
    const place p = place_of(name);
    if (is_top(name)) return l->all + 1;
    if (p.stage < 0) return 0;
    int before = 0;
    for (int s = 0; s < p.stage; s++) before += l->blocks[s];
    const bool after = strncmp(name, "norm", 4) == 0; /* "norm2.": the norm after the stage */
    return before + (after ? l->blocks[p.stage] : p.block < 0 ? 1 : p.block + 1);
}

double level_factor(const levels *l, const char *name, double decay)
{
    return pow(decay, l->all + 1 - level_of(l, name));
}
