/* config.c - Vision Longformer configurations: official stage notation, presets with published
 * figures, checks, members, and the paper's cost counting. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inner.h"

void tp__vil_map(const tp_vil_cfg *cfg, int stage, int64_t size[2])
{
    for (int i = 0; i < 2; i++) {
        size[i] = cfg->image[i];
        for (int k = 0; k <= stage; k++)
            size[i] = cfg->stage[k].patch > 0 ? size[i] / cfg->stage[k].patch : 0;
    }
}

/* ---- notation ---- */

/* Sets a letter's field; false if the letter or its value is invalid. */
static bool set_letter(tp_vil_stage *s, char letter, long value)
{
    switch (letter) {
    case 'h': s->heads = (int)value; return true;
    case 'd': s->dim = value; return true;
    case 'n': s->blocks = (int)value; return true;
    case 's': s->dense = value == 0; return value == 0 || value == 1;
    case 'g': s->global = value; return true;
    case 'p': s->patch = value; return true;
    case 'f': s->feature = value; return true;
    case 'a': s->absolute = value == 1; return value == 0 || value == 1;
    case 'r': s->rank = (int)value; return true;
    default: return false;
    }
}

/* Parses stage `number` from *at to the next '_' or the end. */
static bool parse_stage(tp_vil_stage *s, int number, const char **at)
{
    *s = (tp_vil_stage){
        .heads = 3, .blocks = 1, .dim = 192, .patch = 2, .global = 1, .feature = 7, .absolute = true
    };
    for (const char *p = *at;; p++) {
        const char letter = *p;
        char *end;
        if (!letter || p[1] < '0' || p[1] > '9') return false;
        const long value = strtol(p + 1, &end, 10);
        if (value > TP_VIL_MAX_SIZE) return false;
        if (letter == 'l' ? value != number : !set_letter(s, letter, value)) return false;
        *at = p = end;
        if (!*p || *p == '_') return true;
        if (*p != ',') return false;
    }
}

bool tp__vil_parse(void *to, const char *text, char *why, size_t size)
{
    tp_vil_cfg *cfg = to;
    const char *at = text;
    bool dense = false;

    cfg->stages = 0;
    for (; cfg->stages < TP_VIL_MAX_STAGES; at++) {
        tp_vil_stage *s = &cfg->stage[cfg->stages++];
        if (!parse_stage(s, cfg->stages, &at)) {
            snprintf(why, size, "stage %d of '%.80s' cannot be read at '%.20s'", cfg->stages, text,
                     at);
            return false;
        }
        dense = s->dense = s->dense || dense;
        if (!*at) return true;
    }
    snprintf(why, size, "'%.80s' has more than %d stages", text, TP_VIL_MAX_STAGES);
    return false;
}

static void print_stages(const void *from, char *buf, size_t size)
{
    const tp_vil_cfg *cfg = from;
    size_t used = 0;
    if (size) buf[0] = '\0';
    for (int k = 0; k < cfg->stages && used < size; k++) {
        const tp_vil_stage *s = &cfg->stage[k];
        const int n = snprintf(
            buf + used, size - used, "%sl%d,h%d,d%lld,n%d,s%d,g%lld,p%lld,f%lld,a%d,r%d",
            k ? "_" : "", k + 1, s->heads, (long long)s->dim, s->blocks, !s->dense,
            (long long)s->global, (long long)s->patch, (long long)s->feature, s->absolute, s->rank);
        used += n > 0 ? (size_t)n : size;
    }
}

/* ---- presets ----
 *
 * A published name combines a shape and an attention; small models' names give only the
 * attention. */

/* scale: the first map has 1/4 (0), 1/8 (1) or 1/16 (2) of the image's sides. */
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

/* Per-stage values are for four stages; models with fewer use those of their scales. sparse: number
 * of leading stages with this kind of attention. */
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

/* Finds the longest shape name that starts `name` before a "-"; *rest: the text after it. */
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

/* Finds the attention; text may end in "-384". */
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
        return tp__vil_parse(cfg,
                             "l1,h1,d48,n1,s1,g1,p4,f4,a0,r8_l2,h2,d96,n2,s1,g1,p2,f2,a0,r8_"
                             "l3,h4,d192,n4,s0,g0,p2,f2,a0",
                             why, size);
    }
    return false;
}

/* A published model, "vil-SHAPE-ATTENTION", followed by "-384" for images of that side instead of
 * 224. SHAPE: tiny, small, medium, base, medium-wide, base-wide, swin-tiny, swin-small; or tiny or
 * small with 1-2-8-1, 1-1-9-1, 1-1-8-2, 1-10-1, 2-9-1, 1-9-2, 2-8-2 blocks ("small-1-2-8-1"); or as
 * one stage of 12 blocks with patches of 16 pixels ("small-flat"; "small-flat-full" is E-ViT).
 * ATTENTION: ape, rpb (ViL with absolute or relative positions), ls (ViL-LS), full, linformer,
 * sra64, sra32, global, performer, or partial-linformer, -sra32, -global, -performer. Also the
 * small models for images of 64 x 64: "vil-small", "vil-ls-small", "vil-full-small". */
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

/* Vision Longformer: Tables 2, 4, 5, 11, 12 and 14; ViL-LS: Table 5 of Transformer-LS. LAYOUTS: the
 * four divisions of twelve blocks into stages, each with parameters and multiply-adds. */
/* clang-format off */
#define ROW(name, p, f) { "vil-" name, "ViL", .params = p, .flops = f }
#define LAYOUTS(size, attention, p0, f0, p1, f1, p2, f2, p3, f3) \
    ROW(size "-1-10-1-" attention, p0, f0), \
    ROW(size "-2-9-1-" attention, p1, f1), \
    ROW(size "-1-1-9-1-" attention, p2, f2), \
    ROW(size "-1-2-8-1-" attention, p3, f3)
/* clang-format on */
const tp_model_row tp__vil_presets[] = {
    LAYOUTS("tiny", "full", 7.1e6, 1.35e9, 6.8e6, 1.45e9, 6.7e6, 2.29e9, 6.4e6, 2.39e9),
    LAYOUTS("small", "full", 27.6e6, 4.84e9, 26.3e6, 5.05e9, 26.0e6, 6.74e9, 24.6e6, 6.95e9),
    LAYOUTS("tiny", "ape", 7.1e6, 1.27e9, 6.8e6, 1.29e9, 6.7e6, 1.33e9, 6.4e6, 1.35e9),
    LAYOUTS("small", "ape", 27.6e6, 4.67e9, 26.3e6, 4.71e9, 26.0e6, 4.82e9, 24.6e6, 4.86e9),
    LAYOUTS("tiny", "linformer", 7.8e6, 1.57e9, 7.7e6, 1.60e9, 8.2e6, 1.69e9, 8.0e6, 1.73e9),
    LAYOUTS("small", "linformer", 28.3e6, 5.27e9, 27.1e6, 5.35e9, 27.4e6, 5.55e9, 26.3e6, 5.62e9),
    LAYOUTS("tiny", "partial-linformer", 7.3e6, 1.31e9, 7.2e6, 1.37e9, 7.7e6, 1.46e9, 7.6e6,
            1.52e9),
    LAYOUTS("small", "partial-linformer", 27.8e6, 4.76e9, 26.7e6, 4.88e9, 27.0e6, 5.08e9, 25.8e6,
            5.21e9),
    LAYOUTS("tiny", "sra64", 14.2e6, 0.99e9, 13.9e6, 0.99e9, 13.8e6, 1.0e9, 13.5e6, 1.0e9),
    LAYOUTS("small", "sra64", 55.9e6, 3.92e9, 54.6e6, 3.92e9, 54.3e6, 3.97e9, 52.9e6, 3.97e9),
    LAYOUTS("tiny", "sra32", 8.7e6, 1.09e9, 8.4e6, 1.09e9, 8.3e6, 1.1e9, 8.0e6, 1.1e9),
    LAYOUTS("small", "sra32", 34.1e6, 4.23e9, 32.7e6, 4.23e9, 32.5e6, 4.28e9, 31.1e6, 4.28e9),
    LAYOUTS("tiny", "partial-sra32", 7.3e6, 1.23e9, 7.1e6, 1.22e9, 7.0e6, 1.24e9, 6.8e6, 1.22e9),
    LAYOUTS("small", "partial-sra32", 28.2e6, 4.60e9, 27.4e6, 4.56e9, 27.1e6, 4.61e9, 26.4e6,
            4.57e9),
    LAYOUTS("tiny", "global", 7.2e6, 1.69e9, 6.9e6, 1.70e9, 6.8e6, 1.75e9, 6.5e6, 1.76e9),
    LAYOUTS("small", "global", 27.8e6, 6.65e9, 26.4e6, 6.67e9, 26.2e6, 6.76e9, 24.9e6, 6.78e9),
    LAYOUTS("tiny", "partial-global", 7.2e6, 1.60e9, 6.9e6, 1.62e9, 6.8e6, 1.68e9, 6.5e6, 1.70e9),
    LAYOUTS("small", "partial-global", 27.8e6, 6.07e9, 26.4e6, 6.14e9, 26.2e6, 6.23e9, 24.9e6,
            6.30e9),
    LAYOUTS("tiny", "performer", 7.3e6, 1.81e9, 7.0e6, 1.86e9, 6.9e6, 1.99e9, 6.6e6, 2.05e9),
    LAYOUTS("small", "performer", 27.8e6, 5.75e9, 26.5e6, 5.87e9, 26.2e6, 6.14e9, 24.8e6, 6.26e9),
    LAYOUTS("tiny", "partial-performer", 7.1e6, 1.35e9, 6.8e6, 1.45e9, 6.7e6, 1.57e9, 6.4e6,
            1.67e9),
    LAYOUTS("small", "partial-performer", 27.6e6, 4.84e9, 26.3e6, 5.04e9, 26.0e6, 5.31e9, 24.7e6,
            5.52e9),
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
    /* From the papers: 384 x 384, ViL-LS, flat models, ablations; then small ones. */
    ROW("medium-ape-384", 39.7e6, 28.4e9),
    ROW("medium-rpb-384", 39.7e6, 28.4e9),
    ROW("base-ape-384", 55.7e6, 43.7e9),
    ROW("base-rpb-384", 55.7e6, 43.7e9),
    { "vil-medium-ls", "ViL-LS", .also = "ViL-LS-Medium", .params = 39.8e6, .flops = 8.7e9,
      .norm_cost = 5 },
    { "vil-base-ls", "ViL-LS", .also = "ViL-LS-Base", .params = 55.8e6, .flops = 13.4e9,
      .norm_cost = 5 },
    { "vil-medium-ls-384", "ViL-LS", .params = 39.9e6, .flops = 28.7e9, .norm_cost = 5 },
    ROW("tiny-flat-full", 5.7e6, 1.3e9),
    { "vil-small-flat-full", "ViL", .also = "E-ViT", .params = 22.1e6, .flops = 4.6e9 },
    ROW("small-1-10-1-rpb", 27.61e6, 4.67e9),
    ROW("small-2-9-1-rpb", 26.28e6, 4.71e9),
    ROW("small-1-1-9-1-rpb", 25.98e6, 4.82e9),
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

/* ---- members; keys are the official code's options ---- */

static const char *const kinds[] = { "longformer", "global",    "full", "linformer",
                                     "srformer",   "performer", "ls",   NULL };
static const char *const edges[] = { "mask", "exact", "cyclic", NULL };

#define AT(member) offsetof(tp_vil_cfg, member)
const tp_model_member tp__vil_members[] = {
    { "arch", TP_MEMBER_TEXT, .print = print_stages, .parse = tp__vil_parse },
    { "attn_type", TP_MEMBER_WORD, .at = AT(kind), .words = kinds },
    { "edge", TP_MEMBER_WORD, .at = AT(edge), .words = edges },
    { "mode", TP_MEMBER_INT, .at = AT(shift), .least = TP_BLOCK_OWN, .most = TP_VIL_SHIFT_RANDOM },
    { "image_height", TP_MEMBER_INT64, .at = AT(image[0]), .common = TP_COMMON_IMAGE, .least = 1,
      .most = TP_VIL_MAX_SIZE },
    { "image_width", TP_MEMBER_INT64, .at = AT(image[1]), .least = 1, .most = TP_VIL_MAX_SIZE },
    { "num_classes", TP_MEMBER_INT64, .at = AT(classes), .common = TP_COMMON_OUTPUTS, .least = 0,
      .most = TP_VIL_MAX_SIZE },
    { "drop_path", TP_MEMBER_RATE, .at = AT(drop_path), .common = TP_COMMON_DROP_PATH },
    { "avg_pool", TP_MEMBER_FLAG, .at = AT(avg_pool) },
    { "mask_wrapped", TP_MEMBER_FLAG, .at = AT(mask_wrapped) },
    { "share_w", TP_MEMBER_NOT, .at = AT(separate_global) },
    { "share_kv", TP_MEMBER_NOT, .at = AT(separate_kv) },
    { "norm_embed", TP_MEMBER_NOT, .at = AT(raw_embed) },
    { "qkv_bias", TP_MEMBER_NOT, .at = AT(linear_qkv) },
    { "distinct_bias", TP_MEMBER_FLAG, .at = AT(distinct_bias) },
    { .kind = TP_MEMBER_HIDDEN, .at = AT(recompute), .common = TP_COMMON_RECOMPUTE },
    { .kind = TP_MEMBER_END },
};

/* ---- checks ---- */

static bool is_size(int64_t n)
{
    return tp__in_range(n, 1, TP_VIL_MAX_SIZE);
}

/* Checks a stage's numbers; buf stays empty if they are valid. */
static void check_stage(const tp_vil_cfg *c, int k, char *buf, size_t size)
{
    const tp_vil_stage *s = &c->stage[k];
    const tp_vil_kind kind = s->dense ? TP_VIL_FULL : c->kind;
    const long long d = (long long)s->dim, f = (long long)s->feature;
    int64_t map[2];

    tp__vil_map(c, k, map);
    if (!is_size(s->dim) || s->heads < 1 || s->dim % s->heads)
        snprintf(buf, size, "stage %d: the width %lld does not divide into %d heads", k + 1, d,
                 s->heads);
    else if (s->blocks < 1 || s->blocks > TP_VIL_MAX_BLOCKS)
        snprintf(buf, size, "stage %d has %d blocks, not 1 to %d", k + 1, s->blocks,
                 TP_VIL_MAX_BLOCKS);
    else if (!is_size(s->patch) || map[0] < 1 || map[1] < 1)
        snprintf(buf, size, "stage %d: patches of side %lld leave nothing of %lld x %lld pixels",
                 k + 1, (long long)s->patch, (long long)c->image[0], (long long)c->image[1]);
    else if (s->absolute && s->dim % 2)
        snprintf(
            buf, size,
            "stage %d: the width %lld is odd, but positions of rows and columns each take half",
            k + 1, d);
    else if (s->global < 0 || s->global > TP_VIL_MAX_SIZE)
        snprintf(buf, size, "stage %d has %lld global tokens, not 0 to %d", k + 1,
                 (long long)s->global, TP_VIL_MAX_SIZE);
    else if (kind == TP_VIL_GLOBAL && s->global == 0)
        snprintf(buf, size, "stage %d: attention to global tokens needs at least one", k + 1);
    else if (kind != TP_VIL_FULL && kind != TP_VIL_GLOBAL && kind != TP_VIL_LS && !is_size(f))
        snprintf(buf, size, "stage %d: the window or number of features is %lld, not 1 to %d",
                 k + 1, f, TP_VIL_MAX_SIZE);
    else if (kind == TP_VIL_SRA && (map[0] < f || map[1] < f))
        snprintf(buf, size, "stage %d: a reduction by %lld leaves nothing of %lld x %lld tokens",
                 k + 1, f, (long long)map[0], (long long)map[1]);
    else if (kind == TP_VIL_LS && (f < 0 || f > TP_VIL_MAX_SIZE || s->rank < 0 ||
                                   s->rank > TP_VIL_MAX_SIZE || (f == 0 && s->rank == 0)))
        snprintf(
            buf, size,
            "stage %d has a window of %lld and rank %d: at most one may be 0, and none above %d",
            k + 1, f, s->rank, TP_VIL_MAX_SIZE);
    else if (kind == TP_VIL_LS && f == 1 && !s->absolute)
        snprintf(
            buf, size,
            "stage %d: long-short attention with a window of 1 has no table of relative positions",
            k + 1);
}

bool tp__vil_check_any(const tp_vil_cfg *c, char *why, size_t size)
{
    int blocks = 0;

    if (!tp__check_members(tp__vil_members, c, why, size)) return false;
    if (c->stages < 1 || c->stages > TP_VIL_MAX_STAGES)
        snprintf(why, size, "the model has %d stages, not 1 to %d", c->stages, TP_VIL_MAX_STAGES);
    else if (c->edge == TP_EDGE_EXACT && c->shift != TP_BLOCK_ALL)
        snprintf(why, size, "exact windows see all neighbours, so a shift is impossible");
    for (int k = 0; k < c->stages && !why[0]; k++) {
        check_stage(c, k, why, size);
        blocks += c->stage[k].blocks;
        if (!why[0] && blocks > TP_VIL_MAX_BLOCKS)
            snprintf(why, size, "the model has more than %d blocks", TP_VIL_MAX_BLOCKS);
    }
    return !why[0];
}

/* Models in the table are classifiers. */
bool tp__vil_check(const void *cfg, char *why, size_t size)
{
    const tp_vil_cfg *c = cfg;
    if (c->classes != 0) return tp__vil_check_any(c, why, size);
    snprintf(why, size, "there are no classes");
    return false;
}

/* ---- costs ----
 *
 * Multiply-adds of Vision Longformer by the rule behind the figures of its paper.
 *
 * The rule counts no global tokens, (2w+1)^2 keys per window, and six products with Performer's
 * features; its rows of Global models count global tokens, a second kv and windows that the models
 * do not have. Another paper counts ViL-LS, with whole windows and without scores of the global
 * tokens' dynamic projection. Neither counts the last norm. */

/* Cost of attention over N tokens, with projections. reduced: tokens of SRA's map. window: of
 * Global models, 8, 4, 2, 1 in stages 1 to 4. */
static double paper_attention(const tp_vil_cfg *c, const tp_vil_stage *s, double N, double reduced,
                              double window)
{
    const bool full = s->dense || c->kind == TP_VIL_FULL;
    const double g = (double)s->global, d = (double)s->dim, f = (double)s->feature;
    const double seen = 2.0 * f + 1.0, old = 2.0 * window + 1.0, dense = 4.0 * N * d * d;
    if (c->kind == TP_VIL_GLOBAL)
        return (full ? 4.0 : 6.0) * (N + g) * d * d + 2.0 * N * (full ? N : old * old) * d;
    if (full) return dense + 2.0 * N * N * d;
    switch (c->kind) {
    case TP_VIL_WINDOW: return dense + 2.0 * N * seen * seen * d;
    case TP_VIL_PERFORMER: return dense + 6.0 * N * f * d;
    case TP_VIL_LINFORMER: return dense + 4.0 * N * f * d;
    default: /* SRA */
        return 2.0 * N * d * d + reduced * (f * f + 2.0) * d * d + 2.0 * N * reduced * d;
    }
}

void tp__vil_paper(const void *cfg, int64_t tokens, tp_cost *cost)
{
    const tp_vil_cfg *c = cfg;
    double macs = 0.0, in = 3.0, N = 0.0, spared = 0.0;
    (void)tokens;
    for (int k = 0; k < c->stages; k++) {
        const tp_vil_stage *s = &c->stage[k];
        const int64_t f = s->feature > 0 ? s->feature : 1;
        int64_t map[2];
        tp__vil_map(c, k, map);
        N = (double)(map[0] * map[1]);
        const double d = (double)s->dim, p = (double)s->patch,
                     window = (double)(1 << (c->stages - 1 - k));
        const double rows = c->kind == TP_VIL_GLOBAL ? N + (double)s->global : N;
        macs +=
            N * d * in * p * p +
            s->blocks * (8.0 * rows * d * d +
                         paper_attention(c, s, N, (double)((map[0] / f) * (map[1] / f)), window));
        spared += s->blocks * (double)s->global * d * (double)(s->dense ? 0 : s->heads * s->rank);
        in = d;
    }
    const bool pools = c->avg_pool || c->stage[c->stages - 1].global == 0;
    cost->norm -= (pools ? N + (double)c->stage[c->stages - 1].global : 1.0) * in;
    cost->paper =
        c->kind == TP_VIL_LS ? cost->macs + cost->beyond - spared : macs + in * (double)c->classes;
}
