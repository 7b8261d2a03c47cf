/* layer_decay.c - learning rates that fall with the distance from the head (Clark et al. 2020):
 *
 *     rate of level i = decay^(L + 1 - i);  0: embedding, 1 to L: blocks, L + 1: head and last norm
 *
 * Levels come from names: in all models, the first numbers are the stage and the block, as in
 * "blocks.3.", "layer2.3.", "stage1.blocks.3.", "layers.1.blocks.3.". A part of a stage outside its
 * blocks has the first block's level if it runs before the blocks ("patch_embed2."), the last one's
 * if it runs after them ("layers.1.downsample."). Before the first stage's blocks is the embedding;
 * the norm after the last stage is the last norm. Parallel paths of a stage share its levels. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "layer_decay.h"

/* Instead of a block number, for a part outside its stage's blocks. */
enum { BEFORE = -1, AFTER = -2 };

/* A parameter's position. stage -1: none. */
typedef struct place {
    int stage, block;
} place;

/* The component at `at` as a number below `limit`; -1: not a number. */
static int number(const char *at, long limit)
{
    char *end;
    if (!isdigit((unsigned char)*at)) return -1;
    const long n = strtol(at, &end, 10);
    return (*end == '.' || *end == '\0') && n < limit ? (int)n : -1;
}

static int stage_at(const char *at)
{
    return number(at, LEVEL_STAGES);
}

static int block_at(const char *at)
{
    return number(at, LEVEL_BLOCKS);
}

/* The component after `at`; the name's end if there is none. */
static const char *next(const char *at)
{
    const char *dot = strchr(at, '.');
    return dot ? dot + 1 : at + strlen(at);
}

/* The number after the last component ending in "blocks" or "layers"; BEFORE: none. */
static int listed_block(const char *at)
{
    int n = BEFORE;
    for (; *at; at = next(at)) {
        const char *end = at + strcspn(at, ".");
        const bool list = end - at >= 6 && (strncmp(end - 6, "blocks", 6) == 0 ||
                                            strncmp(end - 6, "layers", 6) == 0);
        if (list && block_at(next(at)) >= 0) n = block_at(next(at));
    }
    return n;
}

static bool begins(const char *name, const char *const *with, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strncmp(name, with[i], strlen(with[i])) == 0) return true;
    return false;
}

/* Is it before the first stage, whatever numbers it has? */
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

/* Does a part outside its stage's blocks run after them? MPViT's InvRes runs beside them, and only
 * the aggregation reads its output. */
static bool ends_stage(const char *name)
{
    static const char *const ends[] = { "norm", "merge", "mhca_stages." };
    return begins(name, ends, sizeof ends / sizeof *ends) || strstr(name, ".downsample.");
}

/* Only one stage of blocks? "conv" and "norm" are the convolutional baseline's. */
static bool is_flat(const char *name)
{
    static const char *const lists[] = { "blocks.", "conv.", "norm." };
    return begins(name, lists, sizeof lists / sizeof *lists);
}

/* The block of a name; `rest` is the name without its stage. */
static int block_of(const levels *l, const char *name, const char *rest)
{
    static const char *const shared[] = { "cpe", "crpe" }; /* CoaT's, shared by a stage */
    if (begins(name, shared, sizeof shared / sizeof *shared)) return 0;
    int block = block_at(rest);
    if (l->pairs && block >= 0) return block ? (block - 1) / 2 : BEFORE;
    if (block < 0) block = listed_block(rest);
    return block == BEFORE && ends_stage(name) ? AFTER : block;
}

static place place_of(const levels *l, const char *name)
{
    const size_t digits = strcspn(name, "0123456789.");
    const char *second = next(name);
    if (is_stem(name) || is_top(name)) return (place){ -1, BEFORE };
    if (strcmp(name, "cls_token") == 0) return (place){ l->last, BEFORE };
    if (is_flat(name)) return (place){ 0, block_at(second) };
    if (isdigit((unsigned char)name[digits])) /* "layer2.3.", "stage1.blocks.3." */
        return (place){ stage_at(name + digits), block_of(l, name, second) };
    return (place){ stage_at(second), block_of(l, name, next(second)) }; /* "layers.1.blocks.3." */
}

levels levels_of(const tp_params *P)
{
    levels l = { .pairs = tp_given(tp_find(P, "layer1.0.proj.weight")) };
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) {
        const place p = place_of(&l, it.name);
        if (p.stage >= 0 && l.blocks[p.stage] < p.block + 1) l.blocks[p.stage] = p.block + 1;
    }
    for (int s = 0; s < LEVEL_STAGES; s++) {
        l.all += l.blocks[s];
        if (l.blocks[s] > 0) l.last = s;
    }
    return l;
}

int level_of(const levels *l, const char *name)
{
    const place p = place_of(l, name);
    if (is_top(name)) return l->all + 1;
    if (p.stage < 0) return 0;
    int before = 0;
    for (int s = 0; s < p.stage; s++) before += l->blocks[s];
    if (p.block >= 0) return before + p.block + 1;
    if (p.block == BEFORE) return before ? before + 1 : 0;
    const bool last_norm = p.stage == l->last && strncmp(name, "norm", 4) == 0;
    return before + l->blocks[p.stage] + last_norm;
}

double level_factor(const levels *l, const char *name, double decay)
{
    return pow(decay, l->all + 1 - level_of(l, name));
}
