/* presets.c - Vision Longformers by name, and what the papers print. A published name combines a shape and an
 * attention; names of small models for a first run choose the attention only. */
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

/* A published model, "vil-SHAPE-ATTENTION", followed by "-384" for images of that side instead of 224.
 * SHAPE: tiny, small, medium, base, medium-wide, base-wide, swin-tiny, swin-small; or tiny or small
 * with 1-2-8-1, 1-1-9-1, 1-1-8-2, 1-10-1, 2-9-1, 1-9-2, 2-8-2 blocks ("small-1-2-8-1"); or as one
 * stage of 12 blocks with patches of 16 pixels ("small-flat"; "small-flat-full" is E-ViT).
 * ATTENTION: ape, rpb (ViL with absolute or relative positions), ls (ViL-LS), full, linformer,
 * sra64, sra32, global, performer, or partial-linformer, -sra32, -global, -performer.
 * Also the small models for images of 64 x 64: "vil-small", "vil-ls-small", "vil-full-small". */
bool tp__vil_preset(void *config, const char *name, char *why, size_t size)
{
    tp_vil_cfg *cfg = config;
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

/* Vision Longformer: Tables 2, 4, 5, 11, 12 and 14; ViL-LS: Table 5 of Transformer-LS. LAYOUTS: the four divisions
 * of twelve blocks into stages, each with parameters and multiply-adds. */
/* clang-format off */
#define ROW(name, p, f) { "vil-" name, "ViL", .params = p, .flops = f }
#define LAYOUTS(size, attention, p0, f0, p1, f1, p2, f2, p3, f3) \
    ROW(size "-1-10-1-" attention, p0, f0), \
    ROW(size "-2-9-1-" attention, p1, f1), \
    ROW(size "-1-1-9-1-" attention, p2, f2), \
    ROW(size "-1-2-8-1-" attention, p3, f3)
const tp_model_row tp__vil_presets[] = {
    LAYOUTS("tiny",  "full",              7.1e6, 1.35e9, 6.8e6, 1.45e9, 6.7e6, 2.29e9, 6.4e6, 2.39e9),
    LAYOUTS("small", "full",              27.6e6, 4.84e9, 26.3e6, 5.05e9, 26.0e6, 6.74e9, 24.6e6, 6.95e9),
    LAYOUTS("tiny",  "ape",               7.1e6, 1.27e9, 6.8e6, 1.29e9, 6.7e6, 1.33e9, 6.4e6, 1.35e9),
    LAYOUTS("small", "ape",               27.6e6, 4.67e9, 26.3e6, 4.71e9, 26.0e6, 4.82e9, 24.6e6, 4.86e9),
    LAYOUTS("tiny",  "linformer",         7.8e6, 1.57e9, 7.7e6, 1.60e9, 8.2e6, 1.69e9, 8.0e6, 1.73e9),
    LAYOUTS("small", "linformer",         28.3e6, 5.27e9, 27.1e6, 5.35e9, 27.4e6, 5.55e9, 26.3e6, 5.62e9),
    LAYOUTS("tiny",  "partial-linformer", 7.3e6, 1.31e9, 7.2e6, 1.37e9, 7.7e6, 1.46e9, 7.6e6, 1.52e9),
    LAYOUTS("small", "partial-linformer", 27.8e6, 4.76e9, 26.7e6, 4.88e9, 27.0e6, 5.08e9, 25.8e6, 5.21e9),
    LAYOUTS("tiny",  "sra64",             14.2e6, 0.99e9, 13.9e6, 0.99e9, 13.8e6, 1.0e9, 13.5e6, 1.0e9),
    LAYOUTS("small", "sra64",             55.9e6, 3.92e9, 54.6e6, 3.92e9, 54.3e6, 3.97e9, 52.9e6, 3.97e9),
    LAYOUTS("tiny",  "sra32",             8.7e6, 1.09e9, 8.4e6, 1.09e9, 8.3e6, 1.1e9, 8.0e6, 1.1e9),
    LAYOUTS("small", "sra32",             34.1e6, 4.23e9, 32.7e6, 4.23e9, 32.5e6, 4.28e9, 31.1e6, 4.28e9),
    LAYOUTS("tiny",  "partial-sra32",     7.3e6, 1.23e9, 7.1e6, 1.22e9, 7.0e6, 1.24e9, 6.8e6, 1.22e9),
    LAYOUTS("small", "partial-sra32",     28.2e6, 4.60e9, 27.4e6, 4.56e9, 27.1e6, 4.61e9, 26.4e6, 4.57e9),
    LAYOUTS("tiny",  "global",            7.2e6, 1.69e9, 6.9e6, 1.70e9, 6.8e6, 1.75e9, 6.5e6, 1.76e9),
    LAYOUTS("small", "global",            27.8e6, 6.65e9, 26.4e6, 6.67e9, 26.2e6, 6.76e9, 24.9e6, 6.78e9),
    LAYOUTS("tiny",  "partial-global",    7.2e6, 1.60e9, 6.9e6, 1.62e9, 6.8e6, 1.68e9, 6.5e6, 1.70e9),
    LAYOUTS("small", "partial-global",    27.8e6, 6.07e9, 26.4e6, 6.14e9, 26.2e6, 6.23e9, 24.9e6, 6.30e9),
    LAYOUTS("tiny",  "performer",         7.3e6, 1.81e9, 7.0e6, 1.86e9, 6.9e6, 1.99e9, 6.6e6, 2.05e9),
    LAYOUTS("small", "performer",         27.8e6, 5.75e9, 26.5e6, 5.87e9, 26.2e6, 6.14e9, 24.8e6, 6.26e9),
    LAYOUTS("tiny",  "partial-performer", 7.1e6, 1.35e9, 6.8e6, 1.45e9, 6.7e6, 1.57e9, 6.4e6, 1.67e9),
    LAYOUTS("small", "partial-performer", 27.6e6, 4.84e9, 26.3e6, 5.04e9, 26.0e6, 5.31e9, 24.7e6, 5.52e9),
    { "vil-tiny-ape", "ViL", .also = "ViL-Tiny-APE", .params = 6.7e6, .flops = 1.3e9 },
    { "vil-tiny-rpb", "ViL", .also = "vil-tiny ViL-Tiny-RPB", .params = 6.7e6, .flops = 1.3e9 },
    { "vil-small-ape", "ViL", .also = "ViL-Small-APE", .params = 24.6e6, .flops = 4.86e9 },
    { "vil-small-rpb", "ViL", .also = "ViL-Small-RPB", .params = 24.6e6, .flops = 4.86e9 },
    { "vil-medium-ape", "ViL", .also = "ViL-Medium-APE", .params = 39.7e6, .flops = 8.7e9 },
    { "vil-medium-rpb", "ViL", .also = "ViL-Medium-RPB", .params = 39.7e6, .flops = 8.7e9 },
    { "vil-base-ape", "ViL", .also = "ViL-Base-APE", .params = 55.7e6, .flops = 13.4e9 },
    { "vil-base-rpb", "ViL", .also = "ViL-Base-RPB", .params = 55.7e6, .flops = 13.4e9 },
    /* Only the code has these shapes. The FLOPs in its readme count 9w^2 keys, not (2w+1)^2. */
    ROW("medium-wide-ape", 39.8e6, 0),
    ROW("medium-wide-rpb", 39.8e6, 0),
    ROW("base-wide-ape", 79e6, 0),
    ROW("base-wide-rpb", 79e6, 0),
    ROW("swin-tiny-ape", 28e6, 0),
    ROW("swin-tiny-rpb", 28e6, 0),
    ROW("swin-small-ape", 50e6, 0),
    ROW("swin-small-rpb", 50e6, 0),
    /* The papers again: 384 x 384, ViL-LS, flat models and ablations; then small ones. */
    ROW("medium-ape-384", 39.7e6, 28.4e9),
    ROW("medium-rpb-384", 39.7e6, 28.4e9),
    ROW("base-ape-384", 55.7e6, 43.7e9),
    ROW("base-rpb-384", 55.7e6, 43.7e9),
    { "vil-medium-ls", "ViL-LS", .also = "ViL-LS-Medium", .params = 39.8e6, .flops = 8.7e9, .norm_cost = 5 },
    { "vil-base-ls", "ViL-LS", .also = "ViL-LS-Base", .params = 55.8e6, .flops = 13.4e9, .norm_cost = 5 },
    { "vil-medium-ls-384", "ViL-LS", .params = 39.9e6, .flops = 28.7e9, .norm_cost = 5 },
    ROW("tiny-flat-full", 0, 0),
    { "vil-small-flat-full", "ViL", .also = "E-ViT", .flops = 4.6e9 },
    ROW("small-1-10-1-rpb", 0, 0),
    ROW("small-2-9-1-rpb", 0, 0),
    ROW("small-1-1-9-1-rpb", 0, 0),
    ROW("tiny-1-9-2-ape", 0, 0),
    ROW("tiny-2-8-2-ape", 0, 0),
    ROW("tiny-1-1-8-2-ape", 0, 0),
    ROW("small-1-9-2-ape", 0, 0),
    ROW("small-2-8-2-ape", 0, 0),
    ROW("small-1-1-8-2-ape", 0, 0),
    ROW("small", 0, 0),
    { "vil-ls-small", "ViL-LS", .norm_cost = 5 },
    ROW("full-small", 0, 0),
    { 0 },
};
#undef LAYOUTS
#undef ROW
/* clang-format on */
