/* presets.c - Vision Longformers by name. A published name combines a shape and an attention; names
 * of small models for a first run choose the attention only. */
#include <stdio.h>
#include <string.h>

#include "inner.h"

/* scale: the first stage's map has a 4th of the image's sides (0), an 8th (1) or a 16th (2). */
typedef struct shape {
    const char *name;
    int stages, scale;
    int blocks[TP_VIL_MAX_STAGES], heads[TP_VIL_MAX_STAGES];
    int dim[TP_VIL_MAX_STAGES];
} shape;

/* clang-format off */
#define TINY4  { 1, 3, 3, 6 },   { 48, 96, 192, 384 }
#define SMALL4 { 3, 3, 6, 12 },  { 96, 192, 384, 768 }
#define TINY3  { 3, 3, 6 },      { 96, 192, 384 }
#define SMALL3 { 3, 6, 12 },     { 192, 384, 768 }
#define SWIN   { 3, 6, 12, 24 }, { 96, 192, 384, 768 }
static const shape shapes[] = {
    { "tiny",          4, 0, { 1, 1, 9, 1 },  TINY4 },
    { "small",         4, 0, { 1, 2, 8, 1 },  SMALL4 },
    { "medium",        4, 0, { 1, 4, 16, 1 }, SMALL4 },
    { "base",          4, 0, { 1, 8, 24, 1 }, SMALL4 },
    { "medium-wide",   4, 0, { 1, 2, 8, 1 },  { 3, 6, 8, 12 },  { 192, 384, 512, 768 } },
    { "base-wide",     4, 0, { 1, 2, 8, 1 },  { 3, 6, 12, 16 }, { 192, 384, 768, 1024 } },
    { "swin-tiny",     4, 0, { 2, 2, 6, 2 },  SWIN },
    { "swin-small",    4, 0, { 2, 2, 18, 2 }, SWIN },
    { "tiny-flat",     1, 2, { 12 },          { 3 },             { 192 } },
    { "small-flat",    1, 2, { 12 },          { 6 },             { 384 } },
    { "tiny-1-10-1",   3, 1, { 1, 10, 1 },    TINY3 },
    { "tiny-2-9-1",    3, 1, { 2, 9, 1 },     TINY3 },
    { "tiny-1-9-2",    3, 1, { 1, 9, 2 },     TINY3 },
    { "tiny-2-8-2",    3, 1, { 2, 8, 2 },     TINY3 },
    { "tiny-1-1-9-1",  4, 0, { 1, 1, 9, 1 },  TINY4 },
    { "tiny-1-2-8-1",  4, 0, { 1, 2, 8, 1 },  TINY4 },
    { "tiny-1-1-8-2",  4, 0, { 1, 1, 8, 2 },  TINY4 },
    { "small-1-10-1",  3, 1, { 1, 10, 1 },    SMALL3 },
    { "small-2-9-1",   3, 1, { 2, 9, 1 },     SMALL3 },
    { "small-1-9-2",   3, 1, { 1, 9, 2 },     SMALL3 },
    { "small-2-8-2",   3, 1, { 2, 8, 2 },     SMALL3 },
    { "small-1-1-9-1", 4, 0, { 1, 1, 9, 1 },  SMALL4 },
    { "small-1-2-8-1", 4, 0, { 1, 2, 8, 1 },  SMALL4 },
    { "small-1-1-8-2", 4, 0, { 1, 1, 8, 2 },  SMALL4 },
};

/* Values per stage are for models of four stages; models with fewer use the values at their scales.
 * sparse: the number of stages, from the first on, with the attention of the kind. */
typedef struct attention {
    const char *name;
    tp_vil_kind kind;
    bool relative, avg_pool;
    int sparse, rank;
    int feature[TP_VIL_MAX_STAGES], global[TP_VIL_MAX_STAGES];
} attention;

#define ALL(f)   { f, f, f, f }
#define ONE      { 1, 1, 1, 0 }
#define MANY     { 256, 256, 64, 16 }
static const attention attentions[] = {
    { "ape",               TP_VIL_WINDOW,    false, false, 2, 0, ALL(7), ONE },
    { "rpb",               TP_VIL_WINDOW,    true,  false, 2, 0, ALL(7), ONE },
    { "ls",                TP_VIL_LS,        true,  false, 2, 8, ALL(7), ONE },
    { "full",              TP_VIL_FULL,      false, false, 4, 0, ALL(7), ONE },
    { "linformer",         TP_VIL_LINFORMER, false, false, 4, 0, ALL(256), ONE },
    { "partial-linformer", TP_VIL_LINFORMER, false, false, 2, 0, ALL(256), ONE },
    { "sra64",             TP_VIL_SRA,       false, false, 4, 0, { 16, 8, 4, 2 }, ONE },
    { "sra32",             TP_VIL_SRA,       false, false, 3, 0, { 8, 4, 2, 1 }, ONE },
    { "partial-sra32",     TP_VIL_SRA,       false, false, 2, 0, { 8, 4, 2, 1 }, ONE },
    { "global",            TP_VIL_GLOBAL,    false, true,  4, 0, ALL(7),   MANY },
    { "partial-global",    TP_VIL_GLOBAL,    false, true,  2, 0, ALL(7),   MANY },
    { "performer",         TP_VIL_PERFORMER, false, false, 4, 0, ALL(256), ONE },
    { "partial-performer", TP_VIL_PERFORMER, false, false, 2, 0, ALL(256), ONE },
};
/* clang-format on */

/* The longest shape name that `name` begins with, before a "-"; *rest: the text after it. */
static const shape *find_shape(const char *name, const char **rest)
{
    const shape *found = NULL;
    size_t longest = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const size_t n = strlen(shapes[i].name);
        if (n <= longest || strncmp(name, shapes[i].name, n) != 0 || name[n] != '-') continue;
        found = &shapes[i];
        longest = n;
        *rest = name + n + 1;
    }
    return found;
}

/* The attention of the name, which may end in "-384". */
static const attention *find_attention(const char *text, int *image)
{
    for (size_t i = 0; i < sizeof attentions / sizeof *attentions; i++) {
        const size_t n = strlen(attentions[i].name);
        if (strncmp(text, attentions[i].name, n) != 0) continue;
        *image = text[n] ? 384 : 224;
        if (!text[n] || strcmp(text + n, "-384") == 0) return &attentions[i];
    }
    return NULL;
}

/* Windows at 384 in the published code and papers: Table 15's 13 and 17 are 2w+1; 8 for ViL-LS. */
static int window_384(tp_vil_kind kind, int scale)
{
    static const int table[TP_VIL_MAX_STAGES] = { 6, 8, 12, 12 };
    return kind == TP_VIL_LS ? 8 : table[scale];
}

/* Three stages of 48 to 192 channels: maps of 16, 8 and 4 for images of 64 x 64. */
static bool small_preset(tp_vil_cfg *cfg, const char *name, char *why, size_t size)
{
    static const struct {
        const char *name;
        tp_vil_kind kind;
    } small[] = {
        { "vil-small", TP_VIL_WINDOW },
        { "vil-ls-small", TP_VIL_LS },
        { "vil-full-small", TP_VIL_FULL },
    };
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        if (strcmp(name, small[i].name) != 0) continue;
        *cfg = (tp_vil_cfg){ .kind = small[i].kind, .image = { 64, 64 }, .classes = 1000 };
        return tp_vil_parse(cfg,
                            "l1,h1,d48,n1,s1,g1,p4,f4,a0,r8_l2,h2,d96,n2,s1,g1,p2,f2,a0,r8_"
                            "l3,h4,d192,n4,s0,g0,p2,f2,a0",
                            why, size);
    }
    return false;
}

bool tp_vil_preset(tp_vil_cfg *cfg, const char *name, char *why, size_t size)
{
    if (!cfg) {
        if (why) snprintf(why, size, "vil_preset: NULL was given in place of a configuration");
        return false;
    }
    const char *rest = NULL;
    int image = 0;
    const shape *s = strncmp(name, "vil-", 4) == 0 ? find_shape(name + 4, &rest) : NULL;
    const attention *a = s ? find_attention(rest, &image) : NULL;

    if (!a) {
        if (small_preset(cfg, name, why, size)) return true;
        snprintf(why, size, "no Vision Longformer is called '%.80s'", name);
        return false;
    }
    *cfg = (tp_vil_cfg){ .kind = a->kind,
                         .stages = s->stages,
                         .image = { image, image },
                         .classes = 1000,
                         .avg_pool = a->avg_pool };
    for (int k = 0; k < s->stages; k++) {
        const int scale = s->scale + k;
        const bool window = a->kind == TP_VIL_WINDOW || a->kind == TP_VIL_LS;
        cfg->stage[k] = (tp_vil_stage){
            .heads = s->heads[k],
            .blocks = s->blocks[k],
            .dim = s->dim[k],
            .patch = k ? 2 : 4 << scale,
            .global = a->global[scale],
            .feature = window && image == 384 ? window_384(a->kind, scale) : a->feature[scale],
            .rank = a->rank,
            .dense = a->kind == TP_VIL_FULL || scale >= a->sparse,
            .absolute = !a->relative,
        };
    }
    return true;
}
