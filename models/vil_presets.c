/* vil_presets.c - the published Vision Longformers by name: widths and depths from one table,
 * attentions from another. */
#include <stdio.h>
#include <string.h>

#include "vil_inner.h"

typedef struct shape {
    const char *name;
    int stages;
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
    { "tiny",          4, { 1, 1, 9, 1 },  TINY4 },
    { "small",         4, { 1, 2, 8, 1 },  SMALL4 },
    { "medium",        4, { 1, 4, 16, 1 }, SMALL4 },
    { "base",          4, { 1, 8, 24, 1 }, SMALL4 },
    { "medium-wide",   4, { 1, 2, 8, 1 },  { 3, 6, 8, 12 },  { 192, 384, 512, 768 } },
    { "base-wide",     4, { 1, 2, 8, 1 },  { 3, 6, 12, 16 }, { 192, 384, 768, 1024 } },
    { "swin-tiny",     4, { 2, 2, 6, 2 },  SWIN },
    { "swin-small",    4, { 2, 2, 18, 2 }, SWIN },
    { "tiny-1-10-1",   3, { 1, 10, 1 },    TINY3 },
    { "tiny-2-9-1",    3, { 2, 9, 1 },     TINY3 },
    { "tiny-1-9-2",    3, { 1, 9, 2 },     TINY3 },
    { "tiny-2-8-2",    3, { 2, 8, 2 },     TINY3 },
    { "tiny-1-1-9-1",  4, { 1, 1, 9, 1 },  TINY4 },
    { "tiny-1-2-8-1",  4, { 1, 2, 8, 1 },  TINY4 },
    { "small-1-10-1",  3, { 1, 10, 1 },    SMALL3 },
    { "small-2-9-1",   3, { 2, 9, 1 },     SMALL3 },
    { "small-1-9-2",   3, { 1, 9, 2 },     SMALL3 },
    { "small-2-8-2",   3, { 2, 8, 2 },     SMALL3 },
    { "small-1-1-9-1", 4, { 1, 1, 9, 1 },  SMALL4 },
    { "small-1-2-8-1", 4, { 1, 2, 8, 1 },  SMALL4 },
};

/* sparse: stages with the kind's attention, counted from the first (4 stages; one fewer of 3; 9:
 * all). feature and global are those of 4 stages; models of 3 have `feature3`, `global3`. */
typedef struct attention {
    const char *name;
    tp_vil_kind kind;
    bool relative, avg_pool;
    int sparse, rank;
    int feature[TP_VIL_MAX_STAGES], global[TP_VIL_MAX_STAGES], feature3[3], global3[3];
} attention;

#define ALL(f)   { f, f, f, f }
#define ALL3(f)  { f, f, f }
#define ONE      { 1, 1, 1, 0 }
#define ONE3     { 1, 1, 0 }
#define MANY     { 256, 256, 64, 16 }
#define MANY3    { 256, 64, 16 }
static const attention attentions[] = {
    { "ape",               TP_VIL_WINDOW,    false, false, 2, 0, ALL(7),   ONE, ALL3(7),   ONE3 },
    { "rpb",               TP_VIL_WINDOW,    true,  false, 2, 0, ALL(7),   ONE, ALL3(7),   ONE3 },
    { "ls",                TP_VIL_LS,        true,  false, 2, 8, ALL(7),   ONE, ALL3(7),   ONE3 },
    { "full",              TP_VIL_FULL,      false, false, 9, 0, ALL(7),   ONE, ALL3(7),   ONE3 },
    { "linformer",         TP_VIL_LINFORMER, false, false, 9, 0, ALL(256), ONE, ALL3(256), ONE3 },
    { "partial-linformer", TP_VIL_LINFORMER, false, false, 2, 0, ALL(256), ONE, ALL3(256), ONE3 },
    { "sra64",             TP_VIL_SRA,       false, false, 9, 0, { 16, 8, 4, 2 }, ONE, { 8, 4, 2 }, ONE3 },
    { "sra32",             TP_VIL_SRA,       false, false, 3, 0, { 8, 4, 2, 1 },  ONE, { 4, 2, 1 }, ONE3 },
    { "partial-sra32",     TP_VIL_SRA,       false, false, 2, 0, { 8, 4, 2, 1 },  ONE, { 4, 2, 1 }, ONE3 },
    { "global",            TP_VIL_GLOBAL,    false, true,  9, 0, ALL(7),   MANY, ALL3(7),  MANY3 },
    { "partial-global",    TP_VIL_GLOBAL,    false, true,  2, 0, ALL(7),   MANY, ALL3(7),  MANY3 },
    { "performer",         TP_VIL_PERFORMER, false, false, 9, 0, ALL(256), ONE, ALL3(256), ONE3 },
    { "partial-performer", TP_VIL_PERFORMER, false, false, 2, 0, ALL(256), ONE, ALL3(256), ONE3 },
};
/* clang-format on */

/* The longest shape that the name begins with, a '-' following; *rest: what is behind it. */
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

/* The attention whose name text is, but for a "-384" at the end. */
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

/* At 384 the windows of the published codes and papers: Table 15's 13 and 17, ViL-LS 8. */
static int window_384(tp_vil_kind kind, int stage)
{
    static const int table[TP_VIL_MAX_STAGES] = { 6, 8, 12, 12 };
    return kind == TP_VIL_LS ? 8 : table[stage];
}

bool tp_vil_preset(tp_vil_cfg *cfg, const char *name, char *why, size_t size)
{
    const char *rest = NULL;
    int image = 0;
    const shape *s = strncmp(name, "vil-", 4) == 0 ? find_shape(name + 4, &rest) : NULL;
    const attention *a = s ? find_attention(rest, &image) : NULL;

    if (!a) {
        snprintf(why, size, "no Vision Longformer is called '%.80s'", name);
        return false;
    }
    const bool three = s->stages == 3;
    *cfg = (tp_vil_cfg){ .kind = a->kind,
                         .stages = s->stages,
                         .image = { image, image },
                         .classes = 1000,
                         .avg_pool = a->avg_pool };
    for (int k = 0; k < s->stages; k++) {
        const int feature = three ? a->feature3[k] : a->feature[k];
        const bool window = a->kind == TP_VIL_WINDOW || a->kind == TP_VIL_LS;
        cfg->stage[k] = (tp_vil_stage){
            .heads = s->heads[k],
            .blocks = s->blocks[k],
            .dim = s->dim[k],
            .patch = k       ? 2
                     : three ? 8
                             : 4,
            .global = three ? a->global3[k] : a->global[k],
            .feature = window && image == 384 ? window_384(a->kind, k) : feature,
            .rank = a->rank,
            .dense = a->kind == TP_VIL_FULL || k >= a->sparse - (three && a->sparse < 9),
            .absolute = !a->relative,
        };
    }
    return true;
}
